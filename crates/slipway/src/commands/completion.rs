//! `slipway completion`

use clap_complete::{Shell, generate};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  slipway completion bash > /etc/bash_completion.d/slipway
  slipway completion zsh > /usr/local/share/zsh/site-functions/_slipway
  slipway completion fish > ~/.config/fish/completions/slipway.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut (context.command)(), "slipway", &mut script);
        context.print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Success)
    }
}

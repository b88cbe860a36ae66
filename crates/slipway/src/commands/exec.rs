//! `slipway exec`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use slipway_engine::exec::{Entry, Launcher, Program};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts::{Elsewhere, option};
use crate::{labs, user};

/// Run a program in a node
#[derive(Debug, clap::Args)]
#[command(
    visible_alias = "execute",
    override_usage = "slipway exec [OPTIONS] [LAB] <NODE> -- <PROGRAM>...",
    after_help = "\
The command passes standard input, output, error and signals between caller and
program. At a terminal the program has one of the node's own. The command
returns when the program ends, even if other processes run on in the background.
The exit code is the program's, or 128 and the number of the signal that ended
it. Code 127 means no such program, 126 that it cannot be executed, and 125 that
Slipway cannot enter the node. The environment is the node's and --env's;
nothing of the caller's passes.

Examples:
  slipway exec n1 -- ping -c1 n2                  where one lab runs
  slipway exec demo n1 -- sh -c 'echo $HOSTNAME'
  slipway exec -t demo n1 -- top                  on a terminal
  slipway exec -u nobody -w /tmp -e N=3 demo n1 -- env
  tar c data | slipway exec demo n1 -- tar x -C /scratch"
)]
pub(crate) struct Args {
    /// Lab (name or file) and node; the node alone where one lab runs
    #[arg(value_names = ["LAB", "NODE"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    argv: Vec<OsString>,
    /// Give the program a terminal
    #[arg(short, long)]
    tty: bool,
    /// Pass standard input on (always so; it makes `-it` valid)
    #[arg(short, long)]
    interactive: bool,
    #[command(flatten)]
    way: Way,
}

/// How a program is run in a node.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Way {
    /// Run as this user, and group: a name of the node's /etc/passwd and /etc/group, or a number
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Run in this folder of the node
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) workdir: Option<PathBuf>,
    /// Set a variable of its environment; without a value, with the caller's
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub(crate) env: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        enter(context, &self.words, self.argv, &self.way, self.tty)
    }
}

/// Runs a program in the node that `words` name, in front of the caller.
pub(crate) fn enter(context: &Context, words: &[String], argv: Vec<OsString>, way: &Way, tty: bool) -> Result<Exit, Failure> {
    let run = || {
        let (running, node) = labs::node(&context.root, words)?;
        if let Some(elsewhere) = Elsewhere::find(&running, node, "exec", way.options(tty)?)? {
            return Err(elsewhere.on_terminal(tty).instead(std::iter::once("--".into()).chain(argv)));
        }
        let entry = Entry::to(&running, node)?;
        let user = way.user.as_deref().map(|word| user::find(&entry, word)).transpose()?;
        let program = Program { argv, env: environment(&way.env)?, workdir: way.workdir.clone(), user };
        let launcher = Launcher::new().map_err(Failure::io("prepare to start programs"))?;
        Ok(launcher.foreground(&entry, &program, tty)?.code())
    };
    // A script must be able to tell the program's failures from slipway's own.
    run().map(Exit::Program).map_err(|failure: Failure| match failure.exit() {
        Exit::Program(_) => failure,
        _ => failure.with_exit(Exit::Program(125)),
    })
}

impl Way {
    /// The same as options for another machine. Variables have their values from here.
    fn options(&self, tty: bool) -> Result<Vec<OsString>, Failure> {
        let mut options: Vec<OsString> = tty.then(|| "--tty".into()).into_iter().collect();
        options.extend(option("--user", self.user.as_ref()));
        options.extend(option("--workdir", self.workdir.as_ref()));
        let env = environment(&self.env)?.into_iter().map(|(key, value)| format!("{key}={value}"));
        options.extend(env.flat_map(|variable| option("--env", Some(variable))));
        Ok(options)
    }
}

/// Variables as they are written on the command line.
pub(crate) fn environment(words: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::new();
    for word in words {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (word.as_str(), std::env::var(word).ok()),
        };
        if key.is_empty() {
            return Err(Failure::usage(format!("read --env `{word}`: it has no name\nHint: write KEY=VALUE")));
        }
        env.extend(value.map(|value| (key.to_owned(), value)));
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_may_hold_anything_but_needs_a_name() {
        let env = environment(&["A=b=c".to_owned(), "E=".to_owned(), "NO_SUCH_VARIABLE_HERE".to_owned()]).expect("fine");
        assert_eq!(env, BTreeMap::from([("A".into(), "b=c".into()), ("E".into(), String::new())]));
        assert_eq!(environment(&["=x".to_owned()]).expect_err("no name").exit(), Exit::Usage);
    }
}

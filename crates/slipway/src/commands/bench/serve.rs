//! `slipway bench serve`

use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Serve benchmarks of other machines, until Ctrl-C
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command becomes `iperf3 --server`. Whoever reaches the port can send to this machine: end it after the benchmark.

Examples:
  slipway bench serve
  slipway bench serve --bind 192.0.2.7 --port 5300")]
pub(super) struct Args {
    /// Address to listen at [default: all]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// TCP port
    #[arg(long, default_value_t = 5201, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

#[derive(Serialize)]
struct Serving {
    address: Option<IpAddr>,
    port: u16,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self { bind, port } = self;
        let serving = Serving { address: bind, port };
        context.tell(&serving, |_| format!("serving benchmarks on port {port} until Ctrl-C\n"))?;
        let mut server = Command::new("iperf3");
        server.args(["--server", "--port", &port.to_string()]);
        server.args(bind.iter().flat_map(|address| ["--bind".to_owned(), address.to_string()]));
        // Nobody parses the program's report of each test.
        server.stdout(std::process::Stdio::null());
        let error = server.exec();
        Err(Failure::new(Exit::Unable, &format!("start iperf3: {error}\nHint: apt-get install iperf3")))
    }
}

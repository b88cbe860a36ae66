//! `slipway agent serve`

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::Serialize;
use slipway_agent::Agent;
use slipway_agent::keys::{Keys, PORT};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Let the machines of the file execute commands of Slipway here
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file of machines is read for each client, so a line that is removed counts at
once. Labs stay when the agent ends.

Examples:
  slipway agent serve
  slipway agent serve --listen 192.0.2.1:7412")]
pub(super) struct Args {
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT))]
    listen: SocketAddr,
}

#[derive(Serialize)]
struct Listening {
    address: SocketAddr,
}

impl Args {
    pub(super) fn run(self, context: &Context, keys: Keys) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        let program = slipway_sys::exe::path().map_err(Failure::io("find this program's own file"))?;
        let agent = Agent::bind(self.listen, keys, program)?;
        let address = agent.address().map_err(Failure::io("see where it listens"))?;
        context.tell(&Listening { address }, |at| format!("commands are taken at {} until Ctrl-C\n", at.address))?;
        match agent.serve()? {}
    }
}

//! `slipway transfer serve`

use std::io::Read as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::Serialize;
use slipway_transfer::send::ssh::READY;
use slipway_transfer::serve::{Server, hold_more_files};
use slipway_transfer::token::Token;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Receive transfers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Clients with the token write below the root, and nowhere else; with --send they
read there too: paths that lead
out and symbolic links on the way are refused. The token's file is made where it
is missing; copy it to the clients, and keep it secret. As root the server gives
files the owners that clients name.

Examples:
  slipway transfer serve --listen 0.0.0.0:7411 --root /data --token-file t
  slipway transfer serve --listen 0.0.0.0:7411 --root /data --token-file t --send
  slipway transfer serve --listen [::]:7411 --root /data --token-file t --once")]
pub(super) struct Args {
    /// Address to listen at; without it, standard input brings the token, as ssh starts it
    #[arg(long, value_name = "ADDRESS", requires_all = ["root", "token_file"])]
    listen: Option<SocketAddr>,
    /// Directory that all destinations lie in
    #[arg(long, value_name = "DIRECTORY", requires = "listen")]
    root: Option<PathBuf>,
    /// The token: 64 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// End after one transfer
    #[arg(long)]
    once: bool,
    /// Let clients fetch what lies below the root, too
    #[arg(long, requires = "listen")]
    send: bool,
    /// Take data without TLS, from clients that ask for it
    #[arg(long)]
    clear: bool,
}

#[derive(Serialize)]
struct Listening {
    address: SocketAddr,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        hold_more_files();
        if let (Some(listen), Some(file)) = (self.listen, &self.token_file) {
            if let Some(root) = &self.root {
                let found = std::fs::metadata(root).map_err(|error| Failure::usage(format!("serve {}: {error}", root.display())))?;
                if !found.is_dir() {
                    return Err(Failure::usage(format!("serve {}: it is no directory", root.display())));
                }
            }
            let token = Token::read_or_write(file)?;
            let server = Server::bind(listen, &token, self.root, self.clear)?.sending(self.send);
            let address = server.address().map_err(Failure::io("see where it listens"))?;
            context.tell(&Listening { address }, |at| format!("transfers are received at {} until Ctrl-C\n", at.address))?;
            server.run(self.once, |outcome| match outcome {
                Ok(()) => tracing::info!("a transfer ended well"),
                Err(error) => tracing::warn!("a transfer ended early: {error}"),
            })?;
            return Ok(Exit::Success);
        }
        if !self.once {
            return Err(Failure::usage("serve nowhere\nHint: give --listen, --root and --token-file; --once alone is for ssh"));
        }
        over_ssh(context, self.clear)
    }
}

/// The token comes from standard input, and the port goes to standard output.
fn over_ssh(context: &Context, clear: bool) -> Result<Exit, Failure> {
    let mut line = String::new();
    let mut input = std::io::stdin();
    // Byte by byte: what follows is the sender's life, told by the end of the input.
    let mut byte = [0];
    while line.len() < 256 && matches!(input.read(&mut byte), Ok(1)) && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    let token = Token::parse(&line)
        .ok_or_else(|| Failure::usage("read a token from standard input\nHint: `slipway transfer` starts this by ssh; by hand, use --listen"))?;
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    let server = Server::bind(address, &token, None, clear)
        .or_else(|_| Server::bind(SocketAddr::from(([0, 0, 0, 0], 0)), &token, None, clear))?
        .sending(true);
    let address = server.address().map_err(Failure::io("see where it listens"))?;
    context.print(&format!("{READY} {}\n", address.port()))?;
    std::thread::spawn(move || {
        // The sender is gone, or done: its session ends by itself, and without one nobody comes any more.
        while matches!(input.read(&mut byte), Ok(1)) {}
        std::process::exit(1);
    });
    server.run(true, |_| {})?;
    Ok(Exit::Success)
}

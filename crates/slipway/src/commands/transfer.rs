//! `slipway transfer`

mod answer;
mod nodes;
mod place;
mod serve;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use slipway_document::units::Rate;
use slipway_engine::rsh::VARIABLE;
use slipway_transfer::TransferError;
use slipway_transfer::agent::Task;
use slipway_transfer::pull::{Pull, pull};
use slipway_transfer::send::{Request, send, ssh};
use slipway_transfer::token::Token;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter::{Meter, Progress};
use answer::Answer;
use place::{Course, Side};

/// Port of `slipway transfer serve --listen`.
const PORT: u16 = 7411;

/// Move files and directories between machines, at the speed of disk or network
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "slipway transfer [OPTIONS] <SOURCE>... <HOST:DIRECTORY>\n       slipway transfer [OPTIONS] <HOST:SOURCE>... <DIRECTORY>\n       slipway transfer [OPTIONS] <LAB:NODE:SOURCE>... <LAB:NODE:DIRECTORY>\n       slipway transfer serve [OPTIONS]",
    after_help = "\
Each source goes into the directory under its own name; of one that ends in /,
the content goes. Modes, times, links, holes and extended attributes go along,
owners where the receiver is root.

ssh starts the other end and carries a token to it; data then takes its own
connections, TLS 1.3 with a key that follows from the token. SLIPWAY_RSH names
another command in the place of ssh. With --token-file the other end is a
`slipway transfer serve` that listens already.

What is there already is compared by BLAKE3, and only other blocks are sent. So
the same command goes on after any interruption. Files are renamed into place
when they are whole. More streams open while that makes the transfer faster.

Between nodes of a running lab nothing is installed: the data takes a network
that both are on, with its conditions, and the fast path where the network has
it. One side may be a host that the node reaches, or a path of this machine
where the node has the machine's own network (hosts: machine, driver host).

Exit code 5: done, but a file changed, could not be read or written, or
differs (--verify-only); the answer names it.

Examples:
  slipway transfer results/ dtn2:/data/results
  slipway transfer dtn2:/data/results .
  slipway transfer --verify-only results/ dtn2:/data/results
  slipway transfer --limit 5gbit a.h5 b.h5 user@dtn2:in
  slipway transfer demo:n1:/data/set demo:n2:/scratch
  slipway transfer serve --listen 0.0.0.0:7411 --root /data --token-file t
  slipway transfer --token-file t results dtn2:archive"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Files and directories, then the directory that they go to; one side is HOST:PATH, or both are LAB:NODE:PATH
    #[arg(value_name = "SOURCE", num_args = 2.., required = true)]
    words: Vec<String>,
    /// Compare both trees by hash, and change nothing
    #[arg(long)]
    verify_only: bool,
    /// Bits per second at most, as in 5gbit
    #[arg(long, value_name = "RATE")]
    limit: Option<Rate>,
    /// Send data without TLS (tags still show a change on the way)
    #[arg(long)]
    clear: bool,
    /// End without waiting for the other end's disk
    #[arg(long)]
    no_sync: bool,
    /// Network between two nodes [default: the sender's first that the receiver is on too]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Reach a server that listens already, and that has this token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote"])]
    token_file: Option<PathBuf>,
    /// Port of that server
    #[arg(long, value_name = "PORT", requires = "token_file", default_value_t = PORT)]
    port: u16,
    /// The ssh command, with options [default: ssh, or what the environment names]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// The slipway program at the other end
    #[arg(long, value_name = "PROGRAM", default_value = "slipway")]
    remote: String,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Receive transfers
    Serve(serve::Args),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(What::Serve(args)) = self.what {
            return args.run(context);
        }
        let (destination, sources) = self.words.split_last().ok_or_else(|| Failure::usage("transfer nothing"))?;
        let course = Course::read(sources, destination, &context.root)?;
        let limit = self.limit.map(|limit| limit.0);
        if limit == Some(0) {
            return Err(Failure::usage("transfer at no rate"));
        }
        if course.client == Side::Here && !course.fetches {
            for source in &course.sources {
                std::fs::symlink_metadata(source).map_err(|error| Failure::usage(format!("read {source}: {error}")))?;
            }
        }
        if self.network.is_some() && !matches!((&course.client, &course.server), (Side::Node(_), Side::Node(_))) {
            return Err(Failure::usage("choose a network: it is for transfers between nodes\nHint: leave --network out"));
        }
        let inside = match &course.client {
            Side::Node(words) => Some(nodes::Inside::of(context, words)?),
            _ => None,
        };
        let (mut network, mut remote, mut served) = (None, None, None);
        let (address, token) = match (&course.server, &inside, &self.token_file) {
            (Side::Node(words), Some(inside), _) => {
                let token = Token::random()?;
                let (end, way) = inside.serve(context, words, self.network.as_deref(), &token, self.clear)?;
                served = Some(end);
                network = Some(way.network);
                (way.address, token)
            }
            (Side::Node(words), None, _) => {
                let token = Token::random()?;
                let (end, way) = nodes::Inside::of(context, words)?.serve_here(&token, self.clear)?;
                served = Some(end);
                network = Some(way.network);
                (way.address, token)
            }
            (Side::Host(host), _, Some(file)) => (resolve(host, self.port)?, Token::read(file)?),
            (Side::Host(host), ..) => {
                let token = Token::random()?;
                let named = self.ssh.or_else(|| std::env::var(VARIABLE).ok()).filter(|words| !words.trim().is_empty());
                let words: Vec<String> =
                    named.as_deref().unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
                let remote = remote.insert(ssh::start(&words, host, &self.remote, self.clear, &token)?);
                (remote.address, token)
            }
            (Side::Here, ..) => return Err(Failure::usage("transfer to no server")),
        };
        let mut meter = Meter::new(&context.global);
        let mut show = |progress: &slipway_transfer::send::Progress| {
            meter.show(Progress::Transfer {
                done: progress.done,
                total: progress.total,
                streams: progress.streams,
                limit: progress.limit,
            });
        };
        let (verify, clear, sync) = (self.verify_only, self.clear, !self.no_sync);
        let Course { sources, directory, .. } = course;
        let report = if course.fetches {
            let sources = sources.into_iter().map(String::into_bytes).collect();
            let request = Pull { sources, destination: directory.into(), verify, clear, limit, sync };
            match &inside {
                Some(inside) => inside.transfer(&token, Task::Fetch(address, request), show),
                None => pull(&request, address, &token, &mut show).map_err(Failure::from),
            }
        } else {
            let sources = sources.into_iter().map(PathBuf::from).collect();
            let request = Request { sources, destination: directory.into_bytes(), verify, clear, limit, sync };
            match &inside {
                Some(inside) => inside.transfer(&token, Task::Send(address, request), show),
                None => send(&request, address, &token, &mut show).map_err(Failure::from),
            }
        };
        meter.finish();
        let answer = Answer {
            destination: destination.clone(),
            network,
            tls: !self.clear,
            verified_only: self.verify_only,
            report: report?,
        };
        drop((remote, served));
        let complete = answer.report.is_complete();
        context.tell(&answer, answer::text)?;
        Ok(if complete { Exit::Success } else { Exit::Strained })
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let mut found = (host, port).to_socket_addrs().map_err(Failure::io(format!("look up {host}")))?;
    found.next().ok_or_else(|| Failure::usage(format!("look up {host}: it has no address")))
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let exit = match &error {
            TransferError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Unable,
            TransferError::Token { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

//! `slipway bench tcp` and `slipway bench udp`

use std::net::IpAddr;

use slipway_document::units::{Bytes, Rate, Seconds, UnitError};
use slipway_engine::facts::numa_nodes;
use slipway_study::bench::Subject;
use slipway_study::bench::path::{Ends, Path};

use super::{Rounds, distinct, take, whole};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// Measure TCP between two nodes, or to another machine, by iperf3
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway bench tcp [OPTIONS] [LAB] <CLIENT> <SERVER>\n       slipway bench tcp [OPTIONS] --peer <ADDRESS>",
    after_help = "\
The limit is --limit, or the rate to which the link between the nodes is set, or the speed of the network card. Where
there is none of these, it is memory: one stream over loopback, measured in the same rounds.

`--congestion all` takes all that the kernel has. A congestion control that the kernel keeps from the node is named and
left out; a node with `capabilities: [NET_ADMIN]` may use all.

Examples:
  slipway bench tcp lab n1 n2
  slipway bench tcp lab n1 n2 --buffer 256KiB,1MiB,16MiB
  slipway bench tcp lab n1 n2 --congestion cubic,bbr --time 10s
  slipway bench tcp lab n1 n2 --streams 1,4,16 --zero-copy
  slipway bench tcp --peer 192.0.2.7 --reverse"
)]
pub(super) struct Tcp {
    #[command(flatten)]
    ends: EndsArgs,
    /// Numbers of parallel streams
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: Vec<u16>,
    /// Sizes of both ends' socket buffers [default: the kernel's, which grow]
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = some)]
    buffer: Vec<Bytes>,
    /// Congestion controls, or `all` [default: the kernel's]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = congestion)]
    congestion: Vec<String>,
    /// Compare with sending without a copy (sendfile)
    #[arg(long)]
    zero_copy: bool,
    /// Sizes of a write
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = some)]
    length: Vec<Bytes>,
    #[command(flatten)]
    rounds: Rounds,
}

/// Measure UDP between two nodes, or to another machine, by iperf3
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway bench udp [OPTIONS] [LAB] <CLIENT> <SERVER>\n       slipway bench udp [OPTIONS] --peer <ADDRESS>",
    after_help = "\
The client sends as fast as it can, or at --rate. The figure is the rate of the datagrams that arrived. Where --mtu is
given and --length is not, datagrams are as large as fit a packet.

--mtu sets both nodes' interfaces for the time of the measurement. A greater value than the network's takes `mtu:` of
the network in the lab file.

Examples:
  slipway bench udp lab n1 n2
  slipway bench udp lab n1 n2 --mtu 1500,9000
  slipway bench udp lab n1 n2 --length 1400B,8900B --rate 1gbit
  slipway bench udp --peer 192.0.2.7 --processors near,far"
)]
pub(super) struct Udp {
    #[command(flatten)]
    ends: EndsArgs,
    /// Sizes of a datagram's payload
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = some, conflicts_with = "mtu")]
    length: Vec<Bytes>,
    /// Greatest packets of both nodes' interfaces
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…", value_parser = clap::value_parser!(u32).range(576..=65_535), conflicts_with = "peer")]
    mtu: Vec<u32>,
    /// Rate at which to send [default: as much as goes]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    #[command(flatten)]
    rounds: Rounds,
}

/// The ends of a path, and the options of both protocols.
#[derive(Debug, clap::Args)]
struct EndsArgs {
    /// A running lab, which may be left out where one runs, and two of its nodes
    #[arg(value_names = ["LAB", "CLIENT", "SERVER"], num_args = 2..=3, conflicts_with = "peer", required_unless_present = "peer")]
    words: Vec<String>,
    /// Another machine, where `slipway bench serve` runs
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// TCP port of the server
    #[arg(long, default_value_t = 5201, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The server sends
    #[arg(long)]
    reverse: bool,
    /// Duration of each test
    #[arg(long, default_value = "2s", value_name = "TIME")]
    time: Seconds,
    /// The limit [default: the link's rate or speed; else memory]
    #[arg(long, value_name = "RATE")]
    limit: Option<Rate>,
    /// Processors of client and server: of one NUMA node (near), of two (far)
    #[arg(long, value_delimiter = ',', value_name = "near,far")]
    processors: Vec<Processors>,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Processors {
    Near,
    Far,
}

/// A size of at least a byte, which the measuring programs count in 32 bits.
fn some(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: UnitError| error.to_string())?;
    if (1..=1 << 30).contains(&bytes.0) { Ok(bytes) } else { Err("write a size from 1B to 1GiB".to_owned()) }
}

/// A name as the kernel has them (`TCP_CA_NAME_MAX`).
fn congestion(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..16).contains(&text.len()) && text.chars().all(fits) { Ok(text.to_owned()) } else { Err("write a name, such as cubic".to_owned()) }
}

impl EndsArgs {
    /// The path, with nothing compared yet.
    fn path(self, context: &Context) -> Result<Path, Failure> {
        let processors = if self.processors.is_empty() { Vec::new() } else { pairs(&distinct(self.processors), self.peer.is_some())? };
        let ends = match (self.peer, self.words.as_slice()) {
            (Some(peer), _) => Ends::Peer(peer),
            (None, [before @ .., client, server]) => nodes(context, before, client, server)?,
            (None, _) => return Err(Failure::usage("measure without ends\nHint: name two nodes, or --peer")),
        };
        Ok(Path {
            processors,
            reverse: self.reverse,
            seconds: whole(self.time),
            port: self.port,
            limit: self.limit,
            ..Path::plain(ends)
        })
    }
}

/// Two nodes of a running lab, which `before` may name.
pub(super) fn nodes(context: &Context, before: &[String], client: &str, server: &str) -> Result<Ends, Failure> {
    let lab = labs::running(&context.root, before.first().map(String::as_str))?;
    let (client, server) = (labs::one(&lab.lab, client)?, labs::one(&lab.lab, server)?);
    if client == server {
        return Err(Failure::usage("measure between a node and itself\nHint: name two nodes"));
    }
    Ok(Ends::Nodes { lab: Box::new(lab), client, server })
}

/// Processors of client and server. Those of another machine are its own.
fn pairs(words: &[Processors], is_peer: bool) -> Result<Vec<(String, u32, Option<u32>)>, Failure> {
    let nodes = numa_nodes();
    let [first, second, ..] = nodes.as_slice() else {
        return Err(Failure::usage("compare near and far processors: this machine has one NUMA node\nHint: leave --processors out"));
    };
    let of = |word: &Processors| match word {
        Processors::Near => ("near".to_owned(), first[0], (!is_peer).then(|| *first.get(1).unwrap_or(&first[0]))),
        Processors::Far if is_peer => ("far".to_owned(), second[0], None),
        Processors::Far => ("far".to_owned(), first[0], Some(second[0])),
    };
    Ok(words.iter().map(of).collect())
}

impl Tcp {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut congestions = Vec::new();
        for name in self.congestion {
            if name == "all" {
                let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
                let known = known.map_err(Failure::io("list congestion controls"))?;
                congestions.extend(known.split_whitespace().map(str::to_owned));
            } else {
                congestions.push(name);
            }
        }
        let path = Path {
            streams: distinct(self.streams),
            buffers: distinct(self.buffer),
            congestions: distinct(congestions),
            zero_copy: if self.zero_copy { vec![false, true] } else { Vec::new() },
            lengths: distinct(self.length),
            ..self.ends.path(context)?
        };
        take(context, Subject::Path(path), self.rounds)
    }
}

impl Udp {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let path = Path {
            udp: true,
            streams: Vec::new(),
            lengths: distinct(self.length),
            mtus: distinct(self.mtu),
            rate: self.rate,
            ..self.ends.path(context)?
        };
        take(context, Subject::Path(path), self.rounds)
    }
}

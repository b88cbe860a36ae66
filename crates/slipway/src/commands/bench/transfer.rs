//! `slipway bench transfer`

use std::net::ToSocketAddrs as _;
use std::path::PathBuf;

use clap::ValueEnum;
use slipway_document::units::{Rate, Seconds};
use slipway_study::bench::Subject;
use slipway_study::bench::path::Ends;
use slipway_study::bench::transfer::{Beside, Transfer};
use slipway_transfer::send::ssh;

use super::{Rounds, distinct, take, whole};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Measure transfers of a data set against path and disk, beside rsync and scp
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway bench transfer [OPTIONS] --data <PATH> --into <FOLDER> [LAB] <SENDER> <RECEIVER>\n       slipway bench transfer [OPTIONS] --data <PATH> --into <FOLDER> --peer <HOST>",
    after_help = "\
All programs start their other end over ssh, and copy into an empty folder each time. Nodes take `sshd: true`, and see
this program at its path: those with an image mount it. The command makes a folder of its own in FOLDER, and removes it at the end and after Ctrl-C.

The limit is the smaller of the path's TCP rate (iperf3) and of the rate at which the disk at the other end is written
(fio), both measured in the same rounds, or --limit. Where one of them cannot be measured, the answer says so, and the
other is the limit. iperf3 reaches another machine where `slipway bench serve` runs.

`slipway transfer` ends when the data are on the disk. rsync and scp end when the kernel has them: --no-sync makes that
alike. Processor time counts for this whole machine: benchmark an idle one.

Examples:
  slipway bench transfer lab n1 n2 --data /data/set --into /data/in
  slipway bench transfer --peer dtn2 --data results --into /data/in
  slipway bench transfer --peer user@dtn2 --data a.h5 --into in --beside rsync --repeat 10
  slipway bench transfer lab n1 n2 --data /data/set --into /data/in --json | jq '.refused'"
)]
pub(super) struct Args {
    /// A running lab, which may be left out where one runs, and two of its nodes
    #[arg(value_names = ["LAB", "SENDER", "RECEIVER"], num_args = 2..=3, conflicts_with = "peer", required_unless_present = "peer")]
    words: Vec<String>,
    /// Another machine, as ssh knows it
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// A file or directory at the sender
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// A folder at the receiver
    #[arg(long, value_name = "FOLDER")]
    into: String,
    /// Programs to compare with
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM,…", default_value = "rsync,scp")]
    beside: Vec<BesideWord>,
    /// End `slipway transfer` without waiting for the disk
    #[arg(long)]
    no_sync: bool,
    /// The limit [default: measured]
    #[arg(long, value_name = "RATE")]
    limit: Option<Rate>,
    /// Duration of iperf3's test; fio's ends after it at the latest
    #[arg(long, default_value = "2s", value_name = "TIME")]
    time: Seconds,
    /// TCP port of iperf3's server
    #[arg(long, default_value_t = 5201, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The ssh command, with options
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    ssh: String,
    /// The slipway program at the receiver [default: slipway; between nodes, this one]
    #[arg(long, value_name = "PROGRAM")]
    remote: Option<String>,
    #[command(flatten)]
    rounds: Rounds,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum BesideWord {
    Rsync,
    Scp,
    None,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let own = slipway_sys::exe::path().map_err(Failure::io("find this program's own file"))?.display().to_string();
        let ssh: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
        let Some((command, options)) = ssh.split_first() else {
            return Err(Failure::usage("start nothing: --ssh is empty"));
        };
        let (ends, host, remote) = match (&self.peer, self.words.as_slice()) {
            (Some(host), _) => {
                if host.starts_with('-') || host.contains(['/', ':']) {
                    return Err(Failure::usage(format!("reach {host}: it is no host\nHint: write HOST or USER@HOST")));
                }
                let name = ssh::hostname(command, options, host);
                let look_up = format!("look up {name}");
                let mut found = (name.as_str(), 0).to_socket_addrs().map_err(Failure::io(look_up.clone()))?;
                let address = found.next().ok_or_else(|| Failure::usage(format!("{look_up}: it has no address")))?;
                (Ends::Peer(address.ip()), host.clone(), "slipway".to_owned())
            }
            (None, [before @ .., client, server]) => {
                let ends = super::path::nodes(context, before, client, server)?;
                let Ends::Nodes { lab, server, .. } = &ends else { return Err(Failure::usage("measure without nodes")) };
                if !lab.lab.nodes[*server].sshd {
                    return Err(Failure::usage(format!(
                        "reach node {} by ssh: it has no server\nHint: write `sshd: true` for both nodes in the lab file",
                        lab.lab.nodes[*server].name
                    )));
                }
                if !self.data.is_absolute() {
                    return Err(Failure::usage(format!("find {} in a node\nHint: write the path from /", self.data.display())));
                }
                let host = lab.lab.nodes[*server].name.clone();
                (ends, host, own.clone())
            }
            (None, _) => return Err(Failure::usage("measure without ends\nHint: name two nodes, or --peer")),
        };
        let beside = self.beside.iter().filter_map(|word| match word {
            BesideWord::Rsync => Some(Beside::Rsync),
            BesideWord::Scp => Some(Beside::Scp),
            BesideWord::None => None,
        });
        let transfer = Transfer {
            ends,
            host,
            data: self.data,
            into: self.into,
            beside: distinct(beside.collect()),
            ssh,
            program: own,
            remote: self.remote.unwrap_or(remote),
            no_sync: self.no_sync,
            seconds: whole(self.time),
            port: self.port,
            limit: self.limit,
        };
        take(context, Subject::Transfer(transfer), self.rounds)
    }
}

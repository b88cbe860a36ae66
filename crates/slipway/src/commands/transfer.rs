//! `slipway transfer`

mod serve;

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use serde::Serialize;
use slipway_document::units::{Bytes, Rate};
use slipway_transfer::TransferError;
use slipway_transfer::pull::{Pull, pull};
use slipway_transfer::send::{Named, Report, Request, send, ssh};
use slipway_transfer::token::Token;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::meter::{Meter, Progress};
use crate::view;

/// Port of `slipway transfer serve --listen`.
const PORT: u16 = 7411;

/// Move files and directories between machines, at the speed of disk or network
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "slipway transfer [OPTIONS] <SOURCE>... <HOST:DIRECTORY>\n       slipway transfer [OPTIONS] <HOST:SOURCE>... <DIRECTORY>\n       slipway transfer serve [OPTIONS]",
    after_help = "\
Each source goes into the directory under its own name; of one that ends in /,
the content goes. Modes, times, links, holes and extended attributes go along,
owners where the receiver is root.

ssh starts the other end and carries a token to it; data then takes its own
connections, TLS 1.3 with a key that follows from the token. With --token-file
the other end is a `slipway transfer serve` that listens already.

What is there already is compared by BLAKE3, and only other blocks are sent. So
the same command goes on after any interruption. Files are renamed into place
when they are whole. More streams open while that makes the transfer faster.

Exit code 5: done, but a file changed, could not be read or written, or
differs (--verify-only); the answer names it.

Examples:
  slipway transfer results/ dtn2:/data/results
  slipway transfer dtn2:/data/results .
  slipway transfer --verify-only results/ dtn2:/data/results
  slipway transfer --limit 5gbit a.h5 b.h5 user@dtn2:in
  slipway transfer serve --listen 0.0.0.0:7411 --root /data --token-file t
  slipway transfer --token-file t results dtn2:archive"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Files and directories, then the directory that they go to; one side is HOST:PATH
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
    /// Reach a server that listens already, and that has this token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote"])]
    token_file: Option<PathBuf>,
    /// Port of that server
    #[arg(long, value_name = "PORT", requires = "token_file", default_value_t = PORT)]
    port: u16,
    /// The ssh command, with options
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
    /// The slipway program at the other end
    #[arg(long, value_name = "PROGRAM", default_value = "slipway")]
    remote: String,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Receive transfers
    Serve(serve::Args),
}

#[derive(Serialize)]
struct Answer {
    destination: String,
    /// True where data went by TLS.
    tls: bool,
    verified_only: bool,
    #[serde(flatten)]
    report: Report,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(What::Serve(args)) = self.what {
            return args.run(context);
        }
        let (destination, sources) = self.words.split_last().ok_or_else(|| Failure::usage("transfer nothing"))?;
        let way = Way::read(sources, destination)?;
        let limit = self.limit.map(|limit| limit.0);
        if limit == Some(0) {
            return Err(Failure::usage("transfer at no rate"));
        }
        if let Way::There { sources, .. } = &way {
            for source in sources {
                std::fs::symlink_metadata(source).map_err(|error| Failure::usage(format!("read {}: {error}", source.display())))?;
            }
        }
        let (Way::There { host, .. } | Way::Here { host, .. }) = &way;
        let mut remote = None;
        let (address, token) = if let Some(file) = &self.token_file {
            (resolve(host, self.port)?, Token::read(file)?)
        } else {
            let token = Token::random()?;
            let words: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
            let remote = remote.insert(ssh::start(&words, host, &self.remote, self.clear, &token)?);
            (remote.address, token)
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
        let report = match way {
            Way::There { sources, directory, .. } => {
                let request = Request { sources, destination: directory.into_bytes(), verify, clear, limit, sync };
                send(&request, address, &token, &mut show)
            }
            Way::Here { sources, .. } => {
                let request = Pull { sources, destination: destination.into(), verify, clear, limit, sync };
                pull(&request, address, &token, &mut show)
            }
        };
        meter.finish();
        let answer = Answer {
            destination: destination.clone(),
            tls: !self.clear,
            verified_only: self.verify_only,
            report: report?,
        };
        drop(remote);
        let complete = answer.report.is_complete();
        context.tell(&answer, text)?;
        Ok(if complete { Exit::Success } else { Exit::Strained })
    }
}

/// The direction of a transfer.
enum Way {
    /// To a host, into its directory.
    There { host: String, sources: Vec<PathBuf>, directory: String },
    /// From a host.
    Here { host: String, sources: Vec<Vec<u8>> },
}

impl Way {
    fn read(sources: &[String], destination: &str) -> Result<Self, Failure> {
        let remote: Vec<(&str, &str)> = sources.iter().filter_map(|source| split(source)).collect();
        match (split(destination), remote.as_slice()) {
            (Some((host, directory)), _) => Ok(Self::There {
                host: host.to_owned(),
                sources: sources.iter().map(PathBuf::from).collect(),
                directory: directory.to_owned(),
            }),
            (None, [(host, _), ..]) => {
                if remote.len() < sources.len() || remote.iter().any(|(other, _)| other != host) {
                    return Err(Failure::usage("transfer from several machines\nHint: one command has one host; write each source as HOST:PATH"));
                }
                Ok(Self::Here {
                    host: (*host).to_owned(),
                    sources: remote.iter().map(|(_, path)| path.as_bytes().to_vec()).collect(),
                })
            }
            (None, []) => Err(Failure::usage(format!(
                "transfer to {destination}: neither side names a host\nHint: write HOST:PATH; `cp` copies within a machine"
            ))),
        }
    }
}

/// Host and directory of `HOST:DIRECTORY` and `[IPV6]:DIRECTORY`.
fn split(word: &str) -> Option<(&str, &str)> {
    let (host, directory) = match word.strip_prefix('[') {
        Some(rest) => rest.split_once("]:")?,
        None => word.split_once(':')?,
    };
    (!host.is_empty() && !host.contains('/')).then_some((host, directory))
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let mut found = (host, port).to_socket_addrs().map_err(Failure::io(format!("look up {host}")))?;
    found.next().ok_or_else(|| Failure::usage(format!("look up {host}: it has no address")))
}

fn text(answer: &Answer) -> String {
    let report = &answer.report;
    let done = if answer.verified_only { "compared" } else { "transferred" };
    let rate = report.bytes as f64 * 8.0 / report.seconds.max(1e-9) / 1e9;
    let mut text = format!(
        "{done} {}, {} in {:.1} s ({rate:.2} Gbit/s)\n",
        view::count(report.files, "file"),
        view::size(Bytes(report.bytes)),
        report.seconds,
    );
    if !answer.verified_only {
        let protected = if answer.tls { "TLS 1.3" } else { "in clear" };
        text += &view::facts(&[
            ("sent", format!("{}; {} were there", view::size(Bytes(report.sent)), view::size(Bytes(report.kept)))),
            ("path", format!("{}, {}, {protected}, {:.1} ms round trip", view::count(report.streams, "stream"), report.congestion_control, report.rtt * 1e3)),
            ("limited by", report.limited_by.to_string()),
        ]);
    }
    // Writing to a string cannot fail.
    let mut named = |what: &str, list: &[Named]| {
        for Named { path, why } in list {
            let _ = writeln!(text, "{what}: {path}: {why}");
        }
    };
    named("changed", &report.changed);
    named("failed", &report.failed);
    named("different", &report.different);
    for path in &report.extra {
        let _ = writeln!(text, "only at the destination: {path}");
    }
    if !report.skipped.is_empty() {
        let _ = writeln!(text, "left out (sockets, FIFOs, devices): {}", view::listed(&report.skipped));
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_names_its_host() {
        assert_eq!(split("dtn2:/data"), Some(("dtn2", "/data")));
        assert_eq!(split("user@dtn2:in"), Some(("user@dtn2", "in")));
        assert_eq!(split("dtn2:"), Some(("dtn2", "")));
        assert_eq!(split("[fd00::1]:a:b"), Some(("fd00::1", "a:b")));
        for wrong in ["/data", "./a:b", "dir/a:b", ":x", "data"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}

//! `slipway logs`

use std::ffi::OsString;

use serde::Serialize;
use slipway_engine::job::{Line, Stream};
use slipway_engine::lab::OwnProgram;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;
use crate::parts::{Elsewhere, option};

/// Longer lines are shown in pieces of this many bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// Show the output of a node's own program
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway logs [OPTIONS] [LAB] <NODE>",
    after_help = "\
The program is the node's `command` in the lab file, and its sshd. Output and
error are one. The log keeps the last 1 to 2 MiB, over stops and starts of the
node, until the lab is down. On a terminal, control characters are visible.
`slipway ps` and `inspect` say whether the program runs, and how it ended.

Examples:
  slipway logs demo web
  slipway logs -f --tail 10 web     where one lab runs; until the program ends
  slipway logs demo web --json | jq -r .program.code"
)]
pub(crate) struct Args {
    /// Lab (name or file) and node; the node alone where one lab runs
    #[arg(value_names = ["LAB", "NODE"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Follow the output until the program can print no more
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    /// Begin with the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
}

#[derive(Serialize)]
struct Log<'a> {
    lab: &'a str,
    node: &'a str,
    lines: Vec<String>,
    /// The state of the node's own program.
    program: Option<OwnProgram>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, index) = labs::node(&context.root, &self.words)?;
        let node = &running.lab.nodes[index].name;
        let mut options: Vec<OsString> = context.global.json.then(|| "--json".into()).into_iter().collect();
        options.extend(self.follow.then(|| "--follow".into()));
        options.extend(option("--tail", self.tail.map(|tail| tail.to_string())));
        if let Some(elsewhere) = Elsewhere::find(&running, index, "logs", options)? {
            return Err(elsewhere.instead([]));
        }
        let says = |what: &str| Failure::io(format!("{what} the log of node {node}"));
        let mut log = running.log(index, self.follow)?;
        let mut bytes = Vec::new();
        log.read(&mut bytes)?;
        if let Some(tail) = self.tail {
            bytes.drain(..start_of_last(&bytes, tail));
        }
        if context.global.json {
            let lines = lines(&bytes).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            let program = running.row(index)?.program;
            let log = Log { lab: &running.lab.name, node, lines, program };
            context.answer(&log, |_| String::new())?;
            return Ok(Exit::Success);
        }
        let show = |bytes: &[u8]| {
            let mut lines = lines(bytes).map(|bytes| Line { node, stream: Stream::Stdout, bytes });
            lines.try_for_each(|line| super::run::show(line, false)).map_err(says("write"))
        };
        loop {
            // The rest of the last line may still come.
            let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
                Some(end) => end + 1,
                None if bytes.len() > LONGEST_LINE => bytes.len(),
                None => 0,
            };
            show(&bytes[..whole])?;
            bytes.drain(..whole);
            let more = self.follow && log.wait().map_err(says("follow"))?;
            log.read(&mut bytes)?;
            if !more {
                show(&bytes)?;
                return Ok(Exit::Success);
            }
        }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// Where the last so many lines begin.
fn start_of_last(bytes: &[u8], lines: usize) -> usize {
    let ends = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let Some(before) = lines.checked_sub(1) else { return bytes.len() };
    let starts = ends.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    starts.map(|(at, _)| at + 1).nth(before).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        let text = b"one\ntwo\nthree\n";
        for (lines, start) in [(0, 14), (1, 8), (2, 4), (3, 0), (9, 0)] {
            assert_eq!(start_of_last(text, lines), start, "{lines}");
        }
        assert_eq!(start_of_last(b"one\ntwo", 1), 4);
        assert_eq!(start_of_last(b"", 1), 0);
    }
}

//! A server in a node of another machine: started, looked at and ended by `slipway exec` there.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use slipway_lab::id::NodeId;
use slipway_lab::model::{Lab, Machine};
use slipway_measure::probe::Server;

use super::is_listening;
use crate::rsh::Rsh;

/// Says its number in the node, and becomes the server.
const START: &str = "echo $$; exec \"$@\" >/dev/null 2>&1";

/// The server, and the way to its node.
#[derive(Debug)]
pub(super) struct Away<'a> {
    rsh: Rsh,
    machine: &'a Machine,
    lab: &'a Lab,
    node: NodeId,
    /// The command that leads there, for as long as the server runs.
    way: Child,
    /// The server's number in its node.
    pid: u32,
}

impl<'a> Away<'a> {
    pub(super) fn start(lab: &'a Lab, node: NodeId, server: &Server) -> io::Result<Self> {
        let machine = lab.machines.get(lab.machine_of(node)).ok_or(io::ErrorKind::NotFound)?;
        let rsh = Rsh::from_env().map_err(io::Error::other)?;
        let words = ["sh", "-c", START, "sh"].into_iter().chain(server.argv.iter().map(String::as_str));
        let mut command = exec(&rsh, machine, lab, node, words);
        let mut way = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = way.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Ok(pid) = line.trim().parse() else {
            let status = way.wait()?;
            let why = format!("`slipway exec` on machine {} ended with {status}", machine.name);
            return Err(io::Error::other(why));
        };
        Ok(Self { rsh, machine, lab, node, way, pid })
    }

    /// Whether anything in its node listens on this TCP port. `None`: the server has ended.
    pub(super) fn listens(&mut self, port: u16) -> io::Result<Option<bool>> {
        if self.way.try_wait()?.is_some() {
            return Ok(None);
        }
        let words = ["cat", "/proc/net/tcp", "/proc/net/tcp6"];
        // A node without IPv6 has no second table.
        let said = exec(&self.rsh, self.machine, self.lab, self.node, words).stderr(Stdio::null()).output()?;
        Ok(Some(is_listening(&String::from_utf8_lossy(&said.stdout), port)))
    }

    /// Ends the server, after `patience`.
    pub(super) fn end(mut self, patience: Duration) -> io::Result<()> {
        let ended = pidfd_open(Pid::from_child(&self.way), PidfdFlags::empty())?;
        if !slipway_sys::process::wait_for_end(&ended, patience)? {
            let kill = format!("kill -9 {}", self.pid);
            // It may have ended meanwhile.
            exec(&self.rsh, self.machine, self.lab, self.node, ["sh", "-c", &kill]).stderr(Stdio::null()).status()?;
        }
        self.way.wait().map(drop)
    }
}

/// A program in the node, by `slipway exec` on its machine.
fn exec<'w>(
    rsh: &Rsh,
    machine: &Machine,
    lab: &'w Lab,
    node: NodeId,
    words: impl IntoIterator<Item = &'w str>,
) -> Command {
    let before = ["exec", lab.name.as_str(), lab.nodes[node].name.as_str(), "--"];
    let mut command = rsh.slipway(machine, false, before.into_iter().chain(words));
    command.stdin(Stdio::null());
    command
}

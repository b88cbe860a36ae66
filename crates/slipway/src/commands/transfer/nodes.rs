//! Ends of a transfer inside nodes of a lab. Each is this program, at the path where every node finds it; programs of the
//! node may have stopped it, or speak in its place.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use slipway_engine::exec::{Child, Entry, Launcher, Program, Stdio};
use slipway_engine::lab::Running;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_transfer::TransferError;
use slipway_transfer::agent::{self, Hearing, Task};
use slipway_transfer::send::{Progress, Report};
use slipway_transfer::token::Token;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::labs;

/// The path at which nodes find this program.
const AGENT: &str = "/run/slipway/agent";
/// How long an end may take to start, and to say anything: it speaks four times a second.
const PATIENCE: Duration = Duration::from_mins(2);

/// A node that a transfer begins in.
pub(super) struct Inside {
    running: Running,
    node: NodeId,
    launcher: Launcher,
}

/// The way to the other node.
pub(super) struct Way {
    /// The server's address.
    pub(super) address: SocketAddr,
    /// Name of the network.
    pub(super) network: String,
}

/// An end at work in a node, which ends with this value.
pub(super) struct End {
    node: String,
    child: Child,
    hearing: Hearing<Patient>,
    /// The end sees it close.
    task: PipeWriter,
}

impl Drop for End {
    fn drop(&mut self) {
        // It ends with this process, and is not waited for: its node may be frozen.
        let _ = self.child.signal(Signal::KILL);
    }
}

impl Inside {
    /// The node of the lab that `words` name.
    pub(super) fn of(context: &Context, words: &[String]) -> Result<Self, Failure> {
        let (running, node) = labs::node(&context.root, words)?;
        let launcher = Launcher::new().map_err(Failure::io("prepare to start programs"))?;
        Ok(Self { running, node, launcher })
    }

    fn name(&self, node: NodeId) -> &str {
        &self.running.lab.nodes[node].name
    }

    /// Starts a server in another node of the lab, which `words` name.
    pub(super) fn serve(
        &self,
        context: &Context,
        words: &[String],
        network: Option<&str>,
        token: &Token,
        clear: bool,
    ) -> Result<(End, Way), Failure> {
        let (running, other) = labs::node(&context.root, words)?;
        let lab = &self.running.lab;
        if running.lab.name != lab.name {
            return Err(Failure::usage(format!(
                "transfer from lab `{}` to lab `{}`: labs share no network\nHint: `slipway copy` to this machine, then into the other lab",
                lab.name, running.lab.name
            )));
        }
        if other == self.node {
            return Err(Failure::usage(format!(
                "transfer from node `{0}` to itself\nHint: `slipway exec {1} {0} -- cp -a …`",
                self.name(other),
                lab.name
            )));
        }
        let (network, address) = way(lab, self.node, other, network).map_err(Failure::usage)?;
        self.listen(other, network, address, token, clear)
    }

    /// Starts a server in the node for this process, which must have the same network.
    pub(super) fn serve_here(&self, token: &Token, clear: bool) -> Result<(End, Way), Failure> {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
        let init = self.running.init(self.node)?.pid.to_string();
        let failed = || Failure::io("look at the node's network");
        let is_same = of(&init).map_err(failed())? == of("self").map_err(failed())?;
        let lab = &self.running.lab;
        match lab.nodes[self.node].interfaces.first().filter(|_| is_same) {
            Some(interface) => {
                let network = lab.networks[interface.network].name.clone();
                self.listen(self.node, network, interface.ipv4.into(), token, clear)
            }
            None => Err(Failure::usage(format!(
                "transfer between this machine and node `{}`: this machine is on none of its networks\nHint: `slipway copy` takes the same words",
                self.name(self.node)
            ))),
        }
    }

    fn listen(
        &self,
        node: NodeId,
        network: String,
        address: IpAddr,
        token: &Token,
        clear: bool,
    ) -> Result<(End, Way), Failure> {
        let mut end = self.start(node, token, Task::Serve { address: SocketAddr::new(address, 0), clear })?;
        let port = end.hearing.port().map_err(|error| end.failure(&error))?;
        Ok((end, Way { address: SocketAddr::new(address, port), network }))
    }

    /// Carries a client's task out in the node, to its end.
    pub(super) fn transfer(&self, token: &Token, task: Task, show: impl FnMut(&Progress)) -> Result<Report, Failure> {
        let mut end = self.start(self.node, token, task)?;
        end.hearing.report(show).map_err(|error| end.failure(&error))
    }

    fn start(&self, node: NodeId, token: &Token, task: Task) -> Result<End, Failure> {
        let entry = Entry::to(&self.running, node)?;
        let (input, to) = io::pipe().map_err(Failure::io("make a pipe"))?;
        let (from, output) = io::pipe().map_err(Failure::io("make a pipe"))?;
        let null = File::options().write(true).open("/dev/null").map_err(Failure::io("open /dev/null"))?;
        let program = Program { argv: vec![AGENT.into(), agent::OPTION.into()], ..Program::default() };
        let stdio = Stdio::Descriptors([input.as_fd(), output.as_fd(), null.as_fd()]);
        let child = self.launcher.spawn(&entry, &program, stdio, None)?;
        drop((input, output));
        let end = End { node: entry.node, child, hearing: Hearing::new(Patient(from)), task: to };
        agent::assign(&end.task, token, task).map_err(|error| end.failure(&error))?;
        Ok(end)
    }
}

impl End {
    fn failure(&self, error: &TransferError) -> Failure {
        let node = &self.node;
        match error {
            TransferError::Lost(_) => Failure::new(
                Exit::Failed,
                &format!("hear from the transfer's end in node `{node}`: it ended, is stopped, or its node is frozen\nHint: `slipway ps` shows the node's state; run the same command again; the transfer goes on where it was"),
            ),
            error => Failure::new(Exit::Failed, &format!("transfer in node `{node}`: {error}")),
        }
    }
}

/// Network and address by which one node reaches another.
fn way(lab: &Lab, from: NodeId, to: NodeId, wanted: Option<&str>) -> Result<(String, IpAddr), String> {
    let (sender, receiver) = (&lab.nodes[from], &lab.nodes[to]);
    let both = || sender.interfaces.iter().filter_map(|own| receiver.interfaces.iter().find(|other| other.network == own.network));
    let name = |interface: &slipway_lab::model::Interface| lab.networks[interface.network].name.clone();
    let ends = format!("transfer from node `{}` to node `{}`", sender.name, receiver.name);
    let found = if let Some(wanted) = wanted {
        both().find(|other| name(other) == wanted).ok_or_else(|| {
            let shared: Vec<String> = both().map(name).collect();
            let hint = if shared.is_empty() { "none".to_owned() } else { shared.join(", ") };
            format!("{ends} over network `{wanted}`: they are not both on it\nHint: they share {hint}")
        })?
    } else {
        let reached = |address: IpAddr| sender.own_routes() || sender.routes.iter().any(|route| route.to.contains(&address));
        let routed = || receiver.interfaces.iter().find(|other| reached(other.ipv4.into()));
        both().next().or_else(routed).ok_or_else(|| {
            format!("{ends}: they share no network, and the first has no route to the second\nHint: a node with `gateway: true` on both networks makes one")
        })?
    };
    Ok((name(found), found.ipv4.into()))
}

/// A pipe from a node, which must say something in time.
struct Patient(PipeReader);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return self.0.read(buffer),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

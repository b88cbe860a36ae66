//! Workers as nodes of a lab.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;
use slipway_campaign::model::Campaign;
use slipway_coordinator::{Fleet, Folder};
use slipway_document::text::printable;
use slipway_engine::exec::{Child, Entry, ExecError, Exit, Launcher, Program, Stdio};
use slipway_engine::lab::{self, Passing, Running};
use slipway_engine::state::StateRoot;
use slipway_lab::id::NodeId;
use slipway_lab::scenario::{Kill, Order};
use slipway_python::Environment;
use slipway_sys::process::ProcessId;

use super::CampaignError;
use super::layout::{self, AGENT, CALL, WORDS, WORK};
use crate::{Event, Events, Machine, Source, StudyError};

/// Bytes of it that are read.
const MOST_WORDS: u64 = 4096;

/// The nodes of a campaign's workers: `w1`, `w2`, …
pub(super) struct Nodes<'a> {
    labs: StateRoot,
    folder: &'a Folder,
    lab: Running,
    launcher: Launcher,
    /// The nodes of workers 1, 2, …: a lab sorts its nodes by name.
    ids: Vec<NodeId>,
    workers: BTreeMap<u32, Worker>,
}

/// A worker's program.
struct Worker {
    child: Child,
    is_reaped: bool,
}

impl Worker {
    /// Waits for its end, once: its node cannot end before.
    fn reap(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_reaped, true) {
            self.child.wait()?;
        }
        Ok(())
    }
}

impl<'a> Nodes<'a> {
    /// Brings the lab of so many workers up.
    pub(super) fn up(
        machine: &Machine,
        campaign: &Campaign,
        folder: &'a Folder,
        environment: Option<&Environment>,
        most: u32,
        events: &mut Events<'_>,
    ) -> Result<(Self, Passing), CampaignError> {
        for worker in 1..=most {
            folder.make_worker(worker)?;
        }
        let name = layout::lab_name(campaign, folder.path());
        let source = Source::new(&name, lab_file(&name, campaign, folder, environment, most).to_string(), "/");
        let lab = source.lab()?;
        events(Event::LabStarting { lab: &name });
        let up = lab::up_in_passing(machine, &lab, &mut |progress| events(Event::LabProgress(progress)));
        events(Event::LabDone);
        let (running, passing) = up.map_err(|error| source.refused(error))?;
        let by_name: BTreeMap<&str, NodeId> =
            running.lab.nodes.enumerate().map(|(id, node)| (node.name.as_str(), id)).collect();
        let ids = (1..=most).filter_map(|worker| by_name.get(node_name(worker).as_str()).copied()).collect();
        let launcher = Launcher::new().map_err(StudyError::io("prepare to start workers"))?;
        let (labs, workers) = (machine.labs.clone(), BTreeMap::new());
        Ok((Self { labs, folder, lab: running, launcher, ids, workers }, passing))
    }

    fn node(&self, worker: u32) -> NodeId {
        self.ids[worker as usize - 1]
    }

    /// Ends the worker's node.
    fn kill(&mut self, worker: u32) -> io::Result<()> {
        self.give(Order::Kill { nodes: vec![self.node(worker)], how: Kill::Soft })
    }

    /// Starts the worker's node if it has ended.
    fn revive(&mut self, node: NodeId) -> io::Result<()> {
        if self.lab.state.nodes[node].init.is_some_and(ProcessId::is_alive) {
            return Ok(());
        }
        self.give(Order::Start { nodes: vec![node] })?;
        self.lab = Running::open(&self.labs, &self.lab.lab.name).map_err(io::Error::other)?;
        Ok(())
    }

    /// Has the anchor carry an order out. Workers that end meanwhile are reaped: the anchor may be ending their nodes for
    /// somebody else, and would wait for that before it comes to this order.
    fn give(&mut self, order: Order) -> io::Result<()> {
        let change = self.lab.begin(order).map_err(io::Error::other)?;
        loop {
            let mut alive: Vec<&mut Worker> = self.workers.values_mut().filter(|worker| !worker.is_reaped).collect();
            let mut awaited = vec![PollFd::new(&change, PollFlags::IN)];
            awaited.extend(alive.iter().map(|worker| PollFd::new(&worker.child, PollFlags::IN)));
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let ready: Vec<bool> = awaited.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(awaited);
            for (worker, _) in alive.iter_mut().zip(&ready[1..]).filter(|(_, has_ended)| **has_ended) {
                worker.reap()?;
            }
            if ready[0] {
                return change.end().map_err(io::Error::other);
            }
        }
    }

    /// Starts a worker in its node, which is made anew where it has ended.
    fn start_one(&mut self, worker: u32) -> io::Result<OwnedFd> {
        let _ = std::fs::remove_file(self.folder.work(worker).join(WORDS));
        self.revive(self.node(worker))?;
        let child = match self.launch(worker)? {
            // Somebody froze a node without a worker. It ends as the node of a silent worker does.
            Err(ExecError::Frozen(_)) => {
                self.kill(worker)?;
                self.revive(self.node(worker))?;
                self.launch(worker)?
            }
            launched => launched,
        };
        let child = child.map_err(io::Error::other)?;
        let pidfd = child.as_fd().try_clone_to_owned()?;
        self.workers.insert(worker, Worker { child, is_reaped: false });
        Ok(pidfd)
    }

    /// Starts the worker's program in its node.
    fn launch(&self, worker: u32) -> io::Result<Result<Child, ExecError>> {
        let program = Program { argv: vec![AGENT.into(), "worker".into()], ..Program::default() };
        self.spawn(worker, &program, None)
    }

    /// Starts a program in a worker's node. `stderr`: a pipe; without one, its words are lost.
    fn spawn(
        &self,
        worker: u32,
        program: &Program,
        stderr: Option<BorrowedFd<'_>>,
    ) -> io::Result<Result<Child, ExecError>> {
        let entry = Entry::to(&self.lab, self.node(worker)).map_err(io::Error::other)?;
        let null: OwnedFd = File::options().read(true).write(true).open("/dev/null")?.into();
        let null = null.as_fd();
        Ok(self.launcher.spawn(&entry, program, Stdio::Descriptors([null, null, stderr.unwrap_or(null)]), None))
    }

    /// Runs a program in the first worker's node to its end. Returns whether it ended well, and its last words.
    pub(super) fn run(&self, program: &Program) -> io::Result<(bool, String)> {
        let (mut reader, writer) = io::pipe()?;
        let child = self.spawn(1, program, Some(writer.as_fd()))?.map_err(io::Error::other)?;
        drop(writer);
        let mut words = Vec::new();
        reader.by_ref().take(MOST_WORDS).read_to_end(&mut words)?;
        // Words beyond are not wanted, and must not stop the program.
        io::copy(&mut reader, &mut io::sink())?;
        let is_good = child.wait()? == Exit::Code(0);
        Ok((is_good, printable(&String::from_utf8_lossy(&words))))
    }

    /// The reason that a worker wrote down, if it did.
    fn words(&self, worker: u32) -> String {
        let mut words = String::new();
        let read = File::open(self.folder.work(worker).join(WORDS))
            .and_then(|file| file.take(MOST_WORDS).read_to_string(&mut words));
        if read.is_ok() { printable(&words) } else { String::new() }
    }
}

fn node_name(worker: u32) -> String {
    format!("w{worker}")
}

/// The lab file of workers.
fn lab_file(name: &str, campaign: &Campaign, folder: &Folder, environment: Option<&Environment>, most: u32) -> Value {
    let node = |worker| {
        let mut mounts = layout::shared(folder, environment);
        mounts.push(layout::mount(&folder.call(worker), &format!("{CALL}:ro")));
        mounts.push(layout::mount(&folder.work(worker), WORK));
        (node_name(worker), mounts)
    };
    layout::lab(name, campaign, (1..=most).map(node))
}

impl Fleet for Nodes<'_> {
    fn start(&mut self, workers: &[u32], _start: u64) -> io::Result<Vec<OwnedFd>> {
        workers.iter().map(|&worker| self.start_one(worker)).collect()
    }

    fn end(&mut self, worker: u32) -> String {
        let Some(mut ended) = self.workers.remove(&worker) else { return String::new() };
        // A node ends after its last process is reaped, so that the worker goes first.
        if let Err(error) = ended.child.signal(rustix::process::Signal::KILL).and_then(|()| ended.reap()) {
            tracing::warn!(worker, "end a worker: {error}");
        }
        // Its programs, and what they left in the background.
        if let Err(error) = self.kill(worker) {
            tracing::warn!(worker, "end a worker's node: {error}");
        }
        self.words(worker)
    }
}

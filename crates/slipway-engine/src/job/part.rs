//! A job's part on another machine than its process: it starts programs in this machine's nodes, and passes their streams on.
//!
//! It ends with its link. Where something kills it, its [guard](crate::guard) ends what it started.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use slipway_lab::id::NodeId;

use super::JobError;
use super::far::{Order, Report, VERSION, Wanted};
use super::link::{Event, Link};
use super::local::{Local, Locals};
use super::node_file::{NodeFile, Written};
use crate::exec::pump::{pipe_from_program, pipe_to_program};
use crate::exec::{Child, ExecError, Exit, Launcher, Stdio};
use crate::lab::Running;
use crate::protocol::Hello;
use crate::state::StateRoot;

/// A program that was started.
#[derive(Debug)]
enum Task {
    Runs(Child),
    /// It has ended, and its last words are not sent yet.
    Ended(Exit),
}

#[derive(Debug, Clone, Copy)]
enum Token {
    Link(Event),
    End(u32),
    /// The lab's anchor has ended.
    Over,
}

/// Serves the part of a job on this machine until the job's process closes its end.
///
/// The caller must have one thread.
///
/// # Errors
/// When the job's process cannot be understood or answered. That nothing could be prepared is told to it, and no error here.
pub fn serve(labs: &StateRoot, input: OwnedFd, output: OwnedFd) -> Result<(), JobError> {
    let mut link = Link::new(input, output).map_err(JobError::io("open the link to the job"))?;
    let says = JobError::io("serve a part of a job");
    let mut orders = Vec::new();
    while orders.is_empty() {
        match wait(&link, None, &BTreeMap::new()).and_then(|tokens| handle(&mut link, &tokens)) {
            Ok(came) => orders = came,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(says(error)),
        }
    }
    let opened = match orders.remove(0) {
        Order::Open { hello, lab, number, nodes, node_file } => {
            Part::open(labs, &hello, (&lab, number), &nodes, node_file.as_ref())
        }
        _ => Err("open the part of a job: its process gave another order first".to_owned()),
    };
    let mut part = match opened {
        Ok(part) => part,
        Err(reason) => {
            link.say(&Report::Refused { reason }).map_err(says)?;
            return Ok(());
        }
    };
    let served = link.say(&Report::Opened).and_then(|()| part.serve(&mut link, orders));
    // With the link, the job is over.
    part.places.end()?;
    match served {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(says(error)),
        _ => Ok(()),
    }
}

struct Part {
    /// With it, all programs of the part have ended. The job's process may be out of reach by then.
    anchor: OwnedFd,
    launcher: Launcher,
    nodes: Vec<NodeId>,
    places: Locals,
    before: Vec<u64>,
    tasks: BTreeMap<u32, Task>,
    /// Removed with the part.
    _node_file: Option<Written>,
    finishing: bool,
}

impl Part {
    fn open(
        labs: &StateRoot,
        hello: &Hello,
        (lab, number): (&str, u64),
        nodes: &[NodeId],
        node_file: Option<&NodeFile>,
    ) -> Result<Self, String> {
        let told = |error: JobError| error.to_string();
        Hello::of(VERSION).meet(hello).map_err(|error| error.to_string())?;
        let running = Running::open(labs, lab).map_err(|error| error.to_string())?;
        let known = |&&node: &&NodeId| running.lab.nodes.get(node).is_some() && running.lab.has_here(node);
        if running.lab.part.number != number || !nodes.iter().all(|node| known(&node)) {
            return Err(format!(
                "open the part of a job: lab `{lab}` here is another one\nHint: `slipway down {lab}` on all machines, then up again"
            ));
        }
        let anchor =
            running.state.anchor.open().map_err(|error| told(JobError::io("watch the lab's anchor")(error)))?;
        let anchor = anchor.ok_or_else(|| format!("open the part of a job: lab `{lab}` has ended here"))?;
        let launcher = Launcher::new().map_err(|error| told(JobError::io("prepare to start programs")(error)))?;
        let mut places = Locals::default();
        let name = format!("job-{}", std::process::id());
        for &node in nodes {
            places.all.push(Local::open(&running, node, &name).map_err(told)?);
        }
        let node_file = node_file.map(|file| file.write(&running.dir().join("node"))).transpose();
        let node_file = node_file.map_err(|error| told(JobError::io("write the node file")(error)))?;
        places.post(|| node_file.iter().for_each(Written::remove)).map_err(told)?;
        let before = places.all.iter().map(Local::sent).collect();
        let (nodes, tasks) = (nodes.to_vec(), BTreeMap::new());
        Ok(Self { anchor, launcher, nodes, places, before, tasks, _node_file: node_file, finishing: false })
    }

    fn serve(&mut self, link: &mut Link, mut orders: Vec<Order>) -> io::Result<()> {
        loop {
            for order in orders.drain(..) {
                self.obey(order, link)?;
            }
            self.tell_of_the_ended(link)?;
            if self.finishing && self.tasks.is_empty() && link.finish()? {
                let sent = self.places.all.iter().zip(&self.before);
                let sent = sent.map(|(place, before)| place.sent().saturating_sub(*before)).collect();
                self.places.end().map_err(io::Error::other)?;
                link.say(&Report::Finished { sent })?;
                while !link.is_sent() {
                    handle(link, &wait(link, None, &self.tasks)?)?;
                }
                return Ok(());
            }
            let tokens = wait(link, Some(&self.anchor), &self.tasks)?;
            if tokens.iter().any(|token| matches!(token, Token::Over)) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for &token in &tokens {
                if let Token::End(program) = token
                    && let Some(task) = self.tasks.get_mut(&program)
                    && let Task::Runs(child) = task
                {
                    *task = Task::Ended(child.wait()?);
                }
            }
            orders = handle(link, &tokens)?;
        }
    }

    fn obey(&mut self, order: Order, link: &mut Link) -> io::Result<()> {
        match order {
            Order::Start { program, node, wanted, input } => {
                if let Err(error) = self.start(program, node, wanted, input, link) {
                    link.forget(program);
                    let (code, reason) = (error.code(), error.to_string());
                    link.say(&Report::NotStarted { program, code, reason })?;
                }
            }
            Order::Signal { program, number } => {
                if let (Some(Task::Runs(child)), Some(signal)) =
                    (self.tasks.get(&program), Signal::from_named_raw(number))
                {
                    child.signal_group(signal)?;
                }
            }
            Order::Kill => self.kill()?,
            Order::Finish => {
                self.kill()?;
                self.finishing = true;
            }
            Order::Open { .. } => return Err(io::Error::new(io::ErrorKind::InvalidData, "the part is open already")),
        }
        Ok(())
    }

    fn start(
        &mut self,
        program: u32,
        node: NodeId,
        wanted: Wanted,
        input: bool,
        link: &mut Link,
    ) -> Result<(), JobError> {
        let impossible = |why: &str| JobError::Impossible(why.to_owned());
        let place = self.nodes.iter().position(|&one| one == node);
        let place = place.map(|at| &self.places.all[at]).ok_or_else(|| impossible("the node is not of its part"))?;
        if self.tasks.contains_key(&program) {
            return Err(impossible("two programs have one number"));
        }
        let pipes = || -> io::Result<_> { Ok((pipe_to_program()?, pipe_from_program()?, pipe_from_program()?)) };
        let ((stdin, to_stdin), (stdout, from_stdout), (stderr, from_stderr)) =
            pipes().map_err(JobError::io("open pipes"))?;
        if input {
            link.sink((program, 0), to_stdin);
        } else {
            drop(to_stdin);
        }
        link.source((program, 1), from_stdout);
        link.source((program, 2), from_stderr);
        let null = std::fs::File::open("/dev/null").map_err(JobError::io("open /dev/null"))?;
        let stdin = if input { stdin.as_fd() } else { null.as_fd() };
        let streams = Stdio::Descriptors([stdin, stdout.as_fd(), stderr.as_fd()]);
        let child = self.launcher.spawn(&place.entry, &wanted.program(), streams, place.group.as_ref());
        self.tasks.insert(program, Task::Runs(child.map_err(|error: ExecError| JobError::Exec(error))?));
        Ok(())
    }

    /// Reports programs that have ended, once their last words are sent.
    fn tell_of_the_ended(&mut self, link: &mut Link) -> io::Result<()> {
        let ended = self.tasks.iter().filter_map(|(&program, task)| match task {
            Task::Ended(exit) => Some((program, *exit)),
            Task::Runs(_) => None,
        });
        for (program, exit) in ended.collect::<Vec<_>>() {
            if link.flush(program)? {
                link.say(&Report::Ended { program, exit })?;
                self.tasks.remove(&program);
            }
        }
        Ok(())
    }

    fn kill(&self) -> io::Result<()> {
        for task in self.tasks.values() {
            if let Task::Runs(child) = task {
                child.signal_group(Signal::KILL)?;
            }
        }
        self.places.kill().map_err(io::Error::other)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Reached with programs left only when the link broke.
        for task in self.tasks.values() {
            if let Task::Runs(child) = task {
                let _ = child.signal_group(Signal::KILL);
                let _ = child.wait();
            }
        }
    }
}

/// Waits until anything has happened.
fn wait(link: &Link, anchor: Option<&OwnedFd>, tasks: &BTreeMap<u32, Task>) -> io::Result<Vec<Token>> {
    let of_link = link.waits_for().into_iter().map(|(fd, flags, event)| (fd, flags, Token::Link(event)));
    let ends = tasks.iter().filter_map(|(&program, task)| match task {
        Task::Runs(child) => Some((child.as_fd(), PollFlags::IN, Token::End(program))),
        Task::Ended(_) => None,
    });
    let over = anchor.map(|anchor| (anchor.as_fd(), PollFlags::IN, Token::Over));
    let on: Vec<(BorrowedFd<'_>, PollFlags, Token)> = of_link.chain(ends).chain(over).collect();
    let mut polled: Vec<PollFd<'_>> = on.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let happened = polled.iter().zip(&on).filter(|(polled, _)| !polled.revents().is_empty());
    Ok(happened.map(|(_, (_, _, token))| *token).collect())
}

fn handle(link: &mut Link, tokens: &[Token]) -> io::Result<Vec<Order>> {
    let mut orders = Vec::new();
    for token in tokens {
        if let Token::Link(event) = token {
            orders.extend(link.handle(*event)?);
        }
    }
    Ok(orders)
}

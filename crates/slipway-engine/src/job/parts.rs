//! The parts of a job on other machines, as its process has them: a remote shell to each.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use slipway_lab::id::{MachineId, NodeId};

use super::JobError;
use super::far::{Order, Report, VERSION, Wanted};
use super::link::{Event, Link};
use super::node_file::NodeFile;
use crate::lab::Running;
use crate::protocol::Hello;
use crate::rsh::Rsh;

/// The hidden command that serves a part.
const COMMAND: [&str; 2] = ["machine", "--job"];

/// A program on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Far {
    part: usize,
    program: u32,
}

/// News of a program on another machine.
#[derive(Debug)]
pub(super) enum News {
    Ended(Far, crate::exec::Exit),
    NotStarted { program: Far, code: u8, reason: String },
}

#[derive(Debug)]
struct Part {
    machine: MachineId,
    name: String,
    nodes: Vec<NodeId>,
    process: process::Child,
    link: Link,
    finished: Option<Vec<u64>>,
}

/// The parts of a job on other machines.
#[derive(Debug, Default)]
pub(super) struct Parts {
    all: Vec<Part>,
    next: u32,
}

impl Parts {
    /// Has each machine prepare its nodes among `nodes`, all at the same time. Their programs find the node file there.
    pub(super) fn open(lab: &Running, nodes: &[NodeId], node_file: Option<&NodeFile>) -> Result<Self, JobError> {
        let model = &lab.lab;
        let mut parts = Self::default();
        for (number, machine) in model.machines.enumerate() {
            let of_it = |node: &&NodeId| model.machine_of(**node) == number;
            let nodes: Vec<NodeId> = nodes.iter().filter(of_it).copied().collect();
            if number == model.part.machine || nodes.is_empty() {
                continue;
            }
            let rsh = Rsh::from_env()?;
            let reach = || JobError::io(format!("reach machine {}", machine.name));
            let mut command = rsh.slipway(machine, false, COMMAND);
            // A terminal's Ctrl-C is for the job's process, which then ends the job in good order.
            command.stdin(process::Stdio::piped()).stdout(process::Stdio::piped()).process_group(0);
            let mut process = command.spawn().map_err(reach())?;
            let pipes = process.stdout.take().zip(process.stdin.take());
            let (output, input) = pipes.ok_or_else(|| reach()(io::ErrorKind::BrokenPipe.into()))?;
            let mut link = Link::new(output.into(), input.into()).map_err(reach())?;
            let order = Order::Open {
                hello: Hello::of(VERSION),
                lab: model.name.clone(),
                number: model.part.number,
                nodes: nodes.clone(),
                node_file: node_file.cloned(),
            };
            let said = link.say(&order);
            parts.all.push(Part { machine: number, name: machine.name.clone(), nodes, process, link, finished: None });
            said.map_err(reach())?;
        }
        parts.all.iter_mut().try_for_each(Part::opened)?;
        Ok(parts)
    }

    /// Starts a program on a node. `stdio` are ends of pipes that must not block: what to read, and where to write.
    pub(super) fn start(
        &mut self,
        at: (MachineId, NodeId),
        wanted: Wanted,
        stdio: (Option<OwnedFd>, [OwnedFd; 2]),
    ) -> Result<Far, JobError> {
        let (machine, node) = at;
        let number = self.all.iter().position(|part| part.machine == machine);
        let part = number.ok_or_else(|| JobError::Impossible("a node is on no machine of the lab".to_owned()))?;
        let (program, to) = (self.next, &mut self.all[part]);
        self.next += 1;
        let (input, [output, error]) = stdio;
        let order = Order::Start { program, node, wanted, input: input.is_some() };
        to.link.say(&order).map_err(|error| to.lost(&error))?;
        to.link.sink((program, 1), output);
        to.link.sink((program, 2), error);
        if let Some(input) = input {
            to.link.source((program, 0), input);
        }
        Ok(Far { part, program })
    }

    /// Sends a signal to a program and to whatever it started in its process group.
    pub(super) fn signal(&mut self, to: Far, signal: i32) -> io::Result<()> {
        self.all[to.part].link.say(&Order::Signal { program: to.program, number: signal })
    }

    /// Ends all programs at once.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.all.iter_mut().try_for_each(|part| part.link.say(&Order::Kill))
    }

    /// Asks all parts to end.
    pub(super) fn finish(&mut self) -> Result<(), JobError> {
        self.all.iter_mut().try_for_each(|part| part.link.say(&Order::Finish).map_err(|error| part.lost(&error)))
    }

    /// Whether all parts have ended, and all that programs wrote is here.
    pub(super) fn are_finished(&self) -> bool {
        self.all.iter().all(|part| part.finished.is_some() && part.link.has_written_all())
    }

    /// Bytes that a node sent over its networks, once its part has ended.
    pub(super) fn sent(&self, node: NodeId) -> u64 {
        let of_part = |part: &Part| {
            let at = part.nodes.iter().position(|&one| one == node)?;
            part.finished.as_ref()?.get(at).copied()
        };
        self.all.iter().find_map(of_part).unwrap_or(0)
    }

    /// Whether all that a program wrote is where it should go.
    pub(super) fn is_written(&self, far: Far) -> bool {
        self.all[far.part].link.is_written(far.program)
    }

    /// Everything to wait for.
    pub(super) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, PollFlags, (usize, Event))> {
        let mut on = Vec::new();
        for (number, part) in self.all.iter().enumerate() {
            on.extend(part.link.waits_for().into_iter().map(|(fd, flags, event)| (fd, flags, (number, event))));
        }
        on
    }

    /// Acts on what was waited for.
    pub(super) fn handle(&mut self, (number, event): (usize, Event)) -> Result<Vec<News>, JobError> {
        let part = &mut self.all[number];
        if part.finished.is_some() && event == Event::Input {
            return Ok(Vec::new());
        }
        let reports = part.link.handle(event).map_err(|error| part.lost(&error))?;
        let mut news = Vec::new();
        for report in reports {
            let far = |program| Far { part: number, program };
            match report {
                Report::Ended { program, exit } => news.push(News::Ended(far(program), exit)),
                Report::NotStarted { program, code, reason } => {
                    part.link.forget(program);
                    news.push(News::NotStarted { program: far(program), code, reason });
                }
                Report::Finished { sent } => part.finished = Some(sent),
                Report::Opened | Report::Refused { .. } => {
                    return Err(part.lost(&io::Error::new(io::ErrorKind::InvalidData, "it opened twice")));
                }
            }
        }
        Ok(news)
    }
}

impl Part {
    /// Waits until the part is ready.
    fn opened(&mut self) -> Result<(), JobError> {
        loop {
            let mut on: Vec<(PollFd<'_>, Event)> = self
                .link
                .waits_for()
                .into_iter()
                .map(|(fd, flags, event)| (PollFd::from_borrowed_fd(fd, flags), event))
                .collect();
            let mut polled: Vec<PollFd<'_>> = on.iter().map(|(fd, _)| fd.clone()).collect();
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(self.lost(&error.into())),
            }
            let happened: Vec<Event> = on
                .drain(..)
                .zip(polled)
                .filter(|(_, fd)| !fd.revents().is_empty())
                .map(|((_, event), _)| event)
                .collect();
            for event in happened {
                let reports: Vec<Report> = self.link.handle(event).map_err(|error| self.lost(&error))?;
                match reports.into_iter().next() {
                    None => {}
                    Some(Report::Opened) => return Ok(()),
                    Some(Report::Refused { reason }) => {
                        let reason = format!("open the job on machine {}: {reason}", self.name);
                        return Err(JobError::Elsewhere { code: 125, reason });
                    }
                    Some(_) => return Err(self.lost(&io::Error::new(io::ErrorKind::InvalidData, "it did not open"))),
                }
            }
        }
    }

    /// The link broke.
    fn lost(&self, error: &io::Error) -> JobError {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "its part of the job ended".to_owned(),
            _ => error.to_string(),
        };
        let hint = "Hint: what ssh and the part said stands above; `slipway ps` says whether the machine answers";
        JobError::Elsewhere { code: 125, reason: format!("reach machine {}: {reason}\n{hint}", self.name) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.finished.is_none() {
            // Its part sees the end of the link. Best effort: it may have ended.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

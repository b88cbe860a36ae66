//! A job's one loop: starts its programs, reads what they print, serves the launch agent, and ends everything in time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use slipway_sys::signals::Taken;

use super::nodes::{Nodes, Place, Process};
use super::output::{Line, Output, Stream};
use super::parts::News;
use super::service::{self, Service};
use super::{Ended, Exits, JobError, link, local};
use crate::exec::{ExecError, Program};

/// Between asking programs to end and ending them.
const GRACE: Duration = Duration::from_secs(2);

/// A program to be started by this process.
#[derive(Debug)]
pub(super) struct Task {
    /// Index of its place.
    pub(super) place: usize,
    /// The same program by other names; the first that the node has.
    pub(super) variants: Vec<Program>,
}

#[derive(Debug)]
struct Started {
    place: usize,
    process: Process,
    ended: bool,
    outputs: [Output; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signal,
    End(usize),
    Output(usize, usize),
    Service(service::Event),
    Part((usize, link::Event)),
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// Asked to end; ended by force at the time given.
    Ending(Ended, Instant),
    /// Ended by force.
    Killed(Ended),
    /// Ended by force, and a further signal came: other machines are not waited for.
    Left(Ended),
}

/// Everything that goes on in a job.
#[derive(Debug)]
pub(super) struct Attention<'a> {
    nodes: Nodes<'a>,
    folder: &'a Path,
    signals: Taken,
    service: Option<Service>,
    deadline: Option<Instant>,
    started: Vec<Started>,
    exits: Exits,
    phase: Phase,
}

impl<'a> Attention<'a> {
    /// From here on, signals that would end this process end the job, and those that mean what a program likes go to its
    /// programs.
    pub(super) fn new(
        nodes: Nodes<'a>,
        folder: &'a Path,
        service: Option<Service>,
        deadline: Option<Instant>,
    ) -> Result<Self, JobError> {
        let taken = [Number::SIGINT, Number::SIGTERM, Number::SIGHUP, Number::SIGUSR1, Number::SIGUSR2];
        let signals = Taken::new(&taken).map_err(JobError::io("take signals"))?;
        let (started, exits, phase) = (Vec::new(), Vec::new(), Phase::Running);
        Ok(Self { nodes, folder, signals, service, deadline, started, exits, phase })
    }

    /// Runs the tasks to their end. When one cannot be started, none is left.
    pub(super) fn run(&mut self, tasks: &[Task], line: &mut dyn FnMut(Line<'_>)) -> Result<(Ended, Exits), JobError> {
        for task in tasks {
            let started = self.start(task)?;
            self.started.push(started);
        }
        self.attend(line)?;
        // Whatever programs left behind in their nodes is over too, and with it the last writer to each pipe.
        self.kill_here().map_err(JobError::io("end what the job left behind"))?;
        self.finish_elsewhere(line)?;
        for started in &mut self.started {
            let node = &self.nodes.places[started.place].name;
            for output in &mut started.outputs {
                let stream = output.stream;
                let mut tagged = |bytes: &[u8]| line(Line { node, stream, bytes });
                output.take(&mut tagged).map_err(JobError::io("save the output"))?;
                output.finish(&mut tagged);
            }
        }
        let ended = match self.phase {
            Phase::Running => Ended::Itself,
            Phase::Ending(ended, _) | Phase::Killed(ended) | Phase::Left(ended) => ended,
        };
        Ok((ended, std::mem::take(&mut self.exits)))
    }

    /// Bytes that a place sent over its networks, once all has ended.
    pub(super) fn sent(&self, place: &Place, before: &[u64]) -> u64 {
        self.nodes.sent(place, before)
    }

    fn start(&mut self, task: &Task) -> Result<Started, JobError> {
        let open = || -> io::Result<_> {
            let null = std::fs::File::open("/dev/null")?;
            Ok((null, io::pipe()?, io::pipe()?))
        };
        let (null, (out, out_end), (err, err_end)) = open().map_err(JobError::io("open pipes"))?;
        let stdio = [null.as_fd(), out_end.as_fd(), err_end.as_fd()];
        let (last, before) =
            task.variants.split_last().ok_or_else(|| JobError::Impossible("it is empty".to_owned()))?;
        let mut found = None;
        for program in before {
            match self.nodes.start(task.place, program, stdio) {
                Err(JobError::Exec(ExecError::NotFound { .. })) => {}
                other => {
                    found = Some(other?);
                    break;
                }
            }
        }
        let process = match found {
            Some(process) => process,
            None => self.nodes.start(task.place, last, stdio)?,
        };
        let node = &self.nodes.places[task.place].name;
        let output = |pipe: io::PipeReader, stream: Stream| {
            Output::new(pipe.into(), self.folder, node, stream)
                .map_err(JobError::io(format!("save output in {}", self.folder.display())))
        };
        let outputs = [output(out, Stream::Stdout)?, output(err, Stream::Stderr)?];
        Ok(Started { place: task.place, process, ended: false, outputs })
    }

    fn attend(&mut self, line: &mut dyn FnMut(Line<'_>)) -> Result<(), JobError> {
        while self.started.iter().any(|started| !started.ended) {
            self.turn(line)?;
        }
        Ok(())
    }

    /// Has the parts on other machines end, and hears the last of their programs.
    fn finish_elsewhere(&mut self, line: &mut dyn FnMut(Line<'_>)) -> Result<(), JobError> {
        self.deadline = None;
        self.nodes.parts.finish()?;
        while !self.nodes.parts.are_finished() && !matches!(self.phase, Phase::Left(_)) {
            self.turn(line)?;
        }
        Ok(())
    }

    fn turn(&mut self, line: &mut dyn FnMut(Line<'_>)) -> Result<(), JobError> {
        for token in self.wait().map_err(attending())? {
            if let Token::Part(event) = token {
                for news in self.nodes.parts.handle(event)? {
                    self.hear(news)?;
                }
            } else {
                self.handle(token, line).map_err(attending())?;
            }
        }
        if let Some(service) = &mut self.service {
            service.settle(&self.nodes.parts);
        }
        self.keep_time().map_err(attending())
    }

    /// Takes news of a program on another machine.
    fn hear(&mut self, news: News) -> Result<(), JobError> {
        let far = match &news {
            News::Ended(far, _) | News::NotStarted { program: far, .. } => *far,
        };
        let number = self.started.iter().position(|started| started.process.is(far));
        match (number, news) {
            (Some(number), News::Ended(_, exit)) => {
                self.started[number].ended = true;
                self.exits.push((number, exit));
            }
            (Some(_), News::NotStarted { code, reason, .. }) => return Err(JobError::Elsewhere { code, reason }),
            (None, news) => self.service.iter_mut().for_each(|service| service.hear(&news)),
        }
        Ok(())
    }

    /// Everything that has happened since, once anything has.
    fn wait(&self) -> io::Result<Vec<Token>> {
        let mut on: Vec<(BorrowedFd<'_>, PollFlags, Token)> =
            vec![(self.signals.as_fd(), PollFlags::IN, Token::Signal)];
        for (number, started) in self.started.iter().enumerate() {
            if let (false, Process::Here(child)) = (started.ended, &started.process) {
                on.push((child.as_fd(), PollFlags::IN, Token::End(number)));
            }
            for (which, output) in started.outputs.iter().enumerate() {
                on.extend(output.waits_for().map(|pipe| (pipe, PollFlags::IN, Token::Output(number, which))));
            }
        }
        for (descriptor, event) in self.service.iter().flat_map(Service::waits_for) {
            on.push((descriptor, PollFlags::IN, Token::Service(event)));
        }
        let parts = self.nodes.parts.waits_for().into_iter();
        on.extend(parts.map(|(descriptor, flags, event)| (descriptor, flags, Token::Part(event))));
        let until = match self.phase {
            Phase::Running => self.deadline,
            Phase::Ending(_, by) => Some(by),
            Phase::Killed(_) | Phase::Left(_) => None,
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut polled: Vec<PollFd<'_>> =
            on.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = polled.iter().zip(&on).filter(|(polled, _)| !polled.revents().is_empty());
        Ok(happened.map(|(_, (_, _, token))| *token).collect())
    }

    fn handle(&mut self, token: Token, line: &mut dyn FnMut(Line<'_>)) -> io::Result<()> {
        match token {
            Token::Signal => {
                while let Some(signal) = self.signals.take()? {
                    match signal {
                        Number::SIGUSR1 => self.signal_all(Signal::USR1)?,
                        Number::SIGUSR2 => self.signal_all(Signal::USR2)?,
                        _ => self.end(signal)?,
                    }
                }
            }
            Token::End(number) => {
                let started = &mut self.started[number];
                if let Process::Here(child) = &started.process {
                    self.exits.push((number, child.wait()?));
                }
                started.ended = true;
            }
            Token::Output(number, which) => {
                let started = &mut self.started[number];
                let (node, output) = (&self.nodes.places[started.place].name, &mut started.outputs[which]);
                let stream = output.stream;
                output.take(&mut |bytes| line(Line { node, stream, bytes }))?;
            }
            Token::Service(event) => {
                if let Some(service) = &mut self.service {
                    service.handle(event, &mut self.nodes)?;
                }
            }
            // Its news are heard by another.
            Token::Part(_) => {}
        }
        Ok(())
    }

    fn keep_time(&mut self) -> io::Result<()> {
        let now = Instant::now();
        match self.phase {
            Phase::Running if self.deadline.is_some_and(|deadline| now >= deadline) => self.ask_to_end(Ended::Timeout),
            Phase::Ending(ended, by) if now >= by => self.end_by_force(ended),
            _ => Ok(()),
        }
    }

    /// Ends the job, at once where the user asks again.
    fn end(&mut self, signal: Number) -> io::Result<()> {
        // Named signals are small numbers.
        let ended = Ended::Signal(u8::try_from(signal as i32).unwrap_or(0));
        match self.phase {
            Phase::Running => self.ask_to_end(ended),
            Phase::Ending(first, _) => self.end_by_force(first),
            Phase::Killed(first) => {
                self.phase = Phase::Left(first);
                Ok(())
            }
            Phase::Left(_) => Ok(()),
        }
    }

    fn signal_all(&mut self, signal: Signal) -> io::Result<()> {
        for started in self.started.iter().filter(|started| !started.ended) {
            self.nodes.signal(&started.process, signal)?;
        }
        Ok(())
    }

    fn ask_to_end(&mut self, ended: Ended) -> io::Result<()> {
        self.signal_all(Signal::TERM)?;
        self.phase = Phase::Ending(ended, Instant::now() + GRACE);
        Ok(())
    }

    fn end_by_force(&mut self, ended: Ended) -> io::Result<()> {
        self.phase = Phase::Killed(ended);
        self.kill_all()
    }

    fn kill_all(&mut self) -> io::Result<()> {
        self.nodes.parts.kill()?;
        self.kill_here()
    }

    fn kill_here(&self) -> io::Result<()> {
        for started in self.started.iter().filter(|started| !started.ended) {
            if let Process::Here(child) = &started.process {
                child.signal_group(Signal::KILL)?;
            }
        }
        local::kill(self.nodes.locals).map_err(io::Error::other)
    }
}

fn attending() -> impl FnOnce(io::Error) -> JobError {
    JobError::io("attend the job")
}

impl Drop for Attention<'_> {
    fn drop(&mut self) {
        // Reached with programs left only by an error, which is what gets reported.
        for started in self.started.iter().filter(|started| !started.ended) {
            if let Process::Here(child) = &started.process {
                let _ = child.signal_group(Signal::KILL);
                let _ = child.wait();
            }
        }
    }
}

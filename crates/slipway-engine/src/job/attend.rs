//! A job's one loop: starts its programs, reads what they print, serves the launch agent, and ends everything in time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use slipway_sys::cgroup::Group;
use slipway_sys::signals::Taken;

use super::output::{Line, Output, Stream};
use super::service::{self, Service};
use super::{Ended, Exits, JobError, Place};
use crate::exec::{Child, ExecError, Launcher, Program, Stdio};

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
    child: Child,
    ended: bool,
    outputs: [Output; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signal,
    End(usize),
    Output(usize, usize),
    Service(service::Event),
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// Asked to end; ended by force at the time given.
    Ending(Ended, Instant),
    /// Ended by force.
    Killed(Ended),
}

/// Everything that goes on in a job.
#[derive(Debug)]
pub(super) struct Attention<'a> {
    launcher: &'a Launcher,
    places: &'a [Place],
    folder: &'a Path,
    signals: Taken,
    service: Option<Service>,
    deadline: Option<Instant>,
    started: Vec<Started>,
    exits: Exits,
    phase: Phase,
}

impl<'a> Attention<'a> {
    /// From here on, signals that would end this process end the job.
    pub(super) fn new(
        launcher: &'a Launcher,
        places: &'a [Place],
        folder: &'a Path,
        service: Option<Service>,
        deadline: Option<Instant>,
    ) -> Result<Self, JobError> {
        let signals =
            Taken::new(&[Number::SIGINT, Number::SIGTERM, Number::SIGHUP]).map_err(JobError::io("take signals"))?;
        let (started, exits, phase) = (Vec::new(), Vec::new(), Phase::Running);
        Ok(Self { launcher, places, folder, signals, service, deadline, started, exits, phase })
    }

    /// Runs the tasks to their end. When one cannot be started, none is left.
    pub(super) fn run(mut self, tasks: &[Task], line: &mut dyn FnMut(Line<'_>)) -> Result<(Ended, Exits), JobError> {
        for task in tasks {
            let started = self.start(task)?;
            self.started.push(started);
        }
        self.attend(line).map_err(JobError::io("attend the job"))?;
        // Whatever programs left behind in their nodes is over too, and with it the last writer to each pipe.
        self.kill_all().map_err(JobError::io("end what the job left behind"))?;
        for started in &mut self.started {
            let node = &self.places[started.place].entry.node;
            for output in &mut started.outputs {
                let stream = output.stream;
                let mut tagged = |bytes: &[u8]| line(Line { node, stream, bytes });
                output.take(&mut tagged).map_err(JobError::io("save the output"))?;
                output.finish(&mut tagged);
            }
        }
        let ended = match self.phase {
            Phase::Running => Ended::Itself,
            Phase::Ending(ended, _) | Phase::Killed(ended) => ended,
        };
        Ok((ended, std::mem::take(&mut self.exits)))
    }

    fn start(&self, task: &Task) -> Result<Started, JobError> {
        let place = &self.places[task.place];
        let open = || -> io::Result<_> {
            let null = std::fs::File::open("/dev/null")?;
            Ok((null, io::pipe()?, io::pipe()?))
        };
        let (null, (out, out_end), (err, err_end)) = open().map_err(JobError::io("open pipes"))?;
        let stdio = Stdio::Descriptors([null.as_fd(), out_end.as_fd(), err_end.as_fd()]);
        let spawn = |program| self.launcher.spawn(&place.entry, program, stdio, place.group.as_ref());
        let (last, before) =
            task.variants.split_last().ok_or_else(|| JobError::Impossible("it is empty".to_owned()))?;
        let mut found = None;
        for program in before {
            match spawn(program) {
                Err(ExecError::NotFound { .. }) => {}
                other => {
                    found = Some(other?);
                    break;
                }
            }
        }
        let child = match found {
            Some(child) => child,
            None => spawn(last)?,
        };
        let output = |pipe: io::PipeReader, stream: Stream| {
            Output::new(pipe.into(), self.folder, &place.entry.node, stream)
                .map_err(JobError::io(format!("save output in {}", self.folder.display())))
        };
        let outputs = [output(out, Stream::Stdout)?, output(err, Stream::Stderr)?];
        Ok(Started { place: task.place, child, ended: false, outputs })
    }

    fn attend(&mut self, line: &mut dyn FnMut(Line<'_>)) -> io::Result<()> {
        while self.started.iter().any(|started| !started.ended) {
            for token in self.wait()? {
                self.handle(token, line)?;
            }
            self.keep_time()?;
        }
        Ok(())
    }

    /// Everything that has happened since, once anything has.
    fn wait(&self) -> io::Result<Vec<Token>> {
        let mut on: Vec<(BorrowedFd<'_>, Token)> = vec![(self.signals.as_fd(), Token::Signal)];
        for (number, started) in self.started.iter().enumerate() {
            if !started.ended {
                on.push((started.child.as_fd(), Token::End(number)));
            }
            for (which, output) in started.outputs.iter().enumerate() {
                on.extend(output.waits_for().map(|pipe| (pipe, Token::Output(number, which))));
            }
        }
        for (descriptor, event) in self.service.iter().flat_map(Service::waits_for) {
            on.push((descriptor, Token::Service(event)));
        }
        let until = match self.phase {
            Phase::Running => self.deadline,
            Phase::Ending(_, by) => Some(by),
            Phase::Killed(_) => None,
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut polled: Vec<PollFd<'_>> =
            on.iter().map(|(fd, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = polled.iter().zip(&on).filter(|(polled, _)| !polled.revents().is_empty());
        Ok(happened.map(|(_, (_, token))| *token).collect())
    }

    fn handle(&mut self, token: Token, line: &mut dyn FnMut(Line<'_>)) -> io::Result<()> {
        match token {
            Token::Signal => {
                while let Some(signal) = self.signals.take()? {
                    // Named signals are small numbers.
                    let ended = Ended::Signal(u8::try_from(signal as i32).unwrap_or(0));
                    match self.phase {
                        Phase::Running => self.ask_to_end(ended)?,
                        // Asked twice: at once.
                        Phase::Ending(first, _) => self.end_by_force(first)?,
                        Phase::Killed(_) => {}
                    }
                }
            }
            Token::End(number) => {
                let started = &mut self.started[number];
                started.ended = true;
                self.exits.push((number, started.child.wait()?));
            }
            Token::Output(number, which) => {
                let started = &mut self.started[number];
                let (node, output) = (&self.places[started.place].entry.node, &mut started.outputs[which]);
                let stream = output.stream;
                output.take(&mut |bytes| line(Line { node, stream, bytes }))?;
            }
            Token::Service(event) => {
                if let Some(service) = &mut self.service {
                    service.handle(event, self.launcher, self.places)?;
                }
            }
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

    fn ask_to_end(&mut self, ended: Ended) -> io::Result<()> {
        for started in self.started.iter().filter(|started| !started.ended) {
            started.child.signal_group(Signal::TERM)?;
        }
        self.phase = Phase::Ending(ended, Instant::now() + GRACE);
        Ok(())
    }

    fn end_by_force(&mut self, ended: Ended) -> io::Result<()> {
        self.phase = Phase::Killed(ended);
        self.kill_all()
    }

    fn kill_all(&self) -> io::Result<()> {
        for started in self.started.iter().filter(|started| !started.ended) {
            started.child.signal_group(Signal::KILL)?;
        }
        let groups = self.places.iter().filter_map(|place| place.group.as_ref());
        let results: Vec<_> = groups.map(Group::kill).collect();
        results.into_iter().collect::<Result<Vec<()>, _>>().map(drop).map_err(io::Error::other)
    }
}

impl Drop for Attention<'_> {
    fn drop(&mut self) {
        // Reached with programs left only by an error, which is what gets reported.
        for started in self.started.iter().filter(|started| !started.ended) {
            let _ = started.child.signal_group(Signal::KILL);
            let _ = started.child.wait();
        }
    }
}

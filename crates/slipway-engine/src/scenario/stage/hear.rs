//! What happens on a stage: the time that was waited for, answers, ends, requests and signals.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use slipway_measure::play::Change;

use super::super::ask::{Answered, Asked, answer};
use super::super::beside::{News, killed};
use super::super::door;
use super::super::error::ActError;
use super::super::load::Ticks;
use super::super::platform::Happening;
use super::{LOOK_AGAIN, LOOK_AT_WIRE, Stage, monotonic};
use crate::lab::LabError;
use crate::protocol::{Interest, PlayerRequest, ReadLinks, ReadState, State};
use crate::state::NodeStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Time,
    Signal,
    Anchor,
    Watch,
    /// Of the player's own socket and its peers, the one in this place.
    Door(usize),
    Asked(usize),
    Beside(usize),
    Job,
}

impl Stage {
    pub(super) fn hear_job(&mut self) -> io::Result<Option<Happening>> {
        let Some(job) = &mut self.job else { return Ok(None) };
        let (news, ended) = job.hear()?;
        for news in news {
            if let News::Job(outcome) = news {
                self.outcome = Some(outcome);
            }
        }
        if !ended {
            return Ok(None);
        }
        self.job = None;
        self.outcome.get_or_insert_with(killed);
        Ok(Some(Happening::JobEnded))
    }

    /// Reads how the nodes are, and says which run that did not.
    pub(super) fn refresh(&mut self) -> io::Result<Vec<Happening>> {
        match self.running.dir().read_state() {
            Ok(state) => self.take_note(state),
            // Taken down meanwhile: its anchor's end says so.
            Err(_) => Ok(Vec::new()),
        }
    }

    fn take_note(&mut self, state: State) -> io::Result<Vec<Happening>> {
        self.running.state = state;
        Ok(self.watch.refresh(&self.running.state)?.into_iter().map(Happening::NodeStarted).collect())
    }

    pub(super) fn look_around(&mut self) -> io::Result<Vec<Happening>> {
        self.look = monotonic() + LOOK_AGAIN;
        let mut happened = self.refresh()?;
        let (before, now) = (self.ticks, Ticks::now());
        self.ticks = now;
        happened.extend(before.zip(now).and_then(|(before, now)| now.busy_since(before)).map(Happening::Load));
        if monotonic() >= self.look_at_wire {
            self.look_at_wire = monotonic() + LOOK_AT_WIRE;
            self.ask(ReadLinks {}, Asked::Wire);
        }
        Ok(happened)
    }

    /// Everything that has happened since, once anything has.
    pub(super) fn poll(&self) -> io::Result<Vec<Token>> {
        let mut on: Vec<(BorrowedFd<'_>, Token)> = vec![
            (self.timer.as_fd(), Token::Time),
            (self.signals.as_fd(), Token::Signal),
            (self.watch.as_fd(), Token::Watch),
        ];
        on.extend(self.anchor.iter().map(|anchor| (anchor.as_fd(), Token::Anchor)));
        on.extend(self.job.iter().map(|job| (job.as_fd(), Token::Job)));
        on.extend(self.asked.iter().enumerate().map(|(at, asked)| (asked.as_fd(), Token::Asked(at))));
        on.extend(self.beside.iter().enumerate().map(|(at, helper)| (helper.process.as_fd(), Token::Beside(at))));
        let mut polled: Vec<PollFd<'_>> =
            on.iter().map(|(fd, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        for (at, (fd, interest)) in self.own.iter().flat_map(|(_, door)| door.waits_for()).enumerate() {
            let flags = if interest == Interest::Read { PollFlags::IN } else { PollFlags::OUT };
            polled.push(PollFd::from_borrowed_fd(fd, flags));
            on.push((fd, Token::Door(at)));
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = polled.iter().zip(&on).filter(|(polled, _)| !polled.revents().is_empty());
        Ok(happened.map(|(_, (_, token))| *token).collect())
    }

    pub(super) fn hear_beside(&mut self, at: usize) -> io::Result<Vec<Happening>> {
        let helper = &mut self.beside[at];
        let number = helper.event;
        let (news, ended) = helper.process.hear()?;
        helper.told |= news.iter().any(|news| matches!(news, News::Finished(_)));
        let mut happened = Vec::new();
        for news in news {
            match news {
                News::Finished(result) => {
                    happened.extend(self.refresh()?);
                    happened.push(Happening::Finished(number, result.map_err(ActError::from)));
                }
                News::Ended(programs) => {
                    let known = |name: &str| self.running.lab.nodes.position(|node| node.name == name);
                    let ended = programs.into_iter().filter_map(|(name, code)| Some((known(&name)?, code))).collect();
                    happened.push(Happening::ProgramsEnded(number, ended));
                }
                News::Job(_) => {}
            }
        }
        if ended {
            if !self.beside.remove(at).told {
                happened.push(Happening::Finished(number, Err(ActError::Killed)));
            }
            let (over, waiting) = self.ending.iter().partition(|(_, of)| *of == number);
            self.ending = waiting;
            happened.extend(over.into_iter().map(|(number, _): (usize, usize)| Happening::Finished(number, Ok(()))));
        }
        Ok(happened)
    }

    pub(super) fn hear_anchor(&mut self, at: usize) -> io::Result<Vec<Happening>> {
        match self.asked.remove(at) {
            Asked::Forget(_) => Ok(Vec::new()),
            Asked::Nodes(number, pending) => {
                let answered = answer(pending);
                let started = self.refresh()?;
                Ok(told(number, answered, started))
            }
            Asked::Change(number, pending) => Ok(told(number, answer(pending), Vec::new())),
            Asked::Freeze { number, stopped, pending } => {
                let Answered { result, waited } = answer(pending);
                let back = |error: ActError| {
                    let failure = LabError::Refused(error.to_string());
                    ActError::from(self.running.with_programs_back(failure, &stopped))
                };
                Ok(told(number, Answered { result: result.map_err(back), waited }, Vec::new()))
            }
            Asked::Thaw { number, nodes, pending } => {
                let Answered { result, waited } = answer(pending);
                let go_on = |_| self.running.let_programs_go_on(&nodes).map_err(ActError::from);
                Ok(told(number, Answered { result: result.and_then(go_on), waited }, Vec::new()))
            }
            Asked::Look(node, pending) => {
                // Taken down meanwhile: its anchor's end says so.
                let Ok(state) = answer(pending).result else { return Ok(Vec::new()) };
                let mut happened = self.take_note(state)?;
                let change = match self.running.state.nodes[node].status {
                    NodeStatus::Stopped => Change::Stopped,
                    NodeStatus::Dead => Change::Died,
                    // Ended and started again since.
                    NodeStatus::Running => return Ok(happened),
                };
                happened.push(Happening::NodeEnded(node, change));
                Ok(happened)
            }
            Asked::Wire(pending) => {
                if let Ok(report) = answer(pending).result {
                    self.wire.look(&report);
                }
                Ok(Vec::new())
            }
        }
    }

    pub(super) fn hear(&mut self, token: Token) -> io::Result<Vec<Happening>> {
        match token {
            Token::Time => {
                // The timer stays readable until it is set again, which every wait does.
                if monotonic() >= self.look { self.look_around() } else { Ok(Vec::new()) }
            }
            Token::Signal => {
                let signal = self.signals.take()?;
                self.signal = self.signal.or(signal);
                Ok(signal
                    .map(|signal| Happening::Stop(format!("interrupted by {}", signal.as_str())))
                    .into_iter()
                    .collect())
            }
            Token::Anchor => {
                self.anchor = None;
                Ok(vec![Happening::Stop("the lab was taken down".to_owned())])
            }
            Token::Watch => {
                for node in self.watch.ended()? {
                    self.ask(ReadState {}, |pending| Asked::Look(node, pending));
                }
                Ok(Vec::new())
            }
            Token::Door(at) => {
                let ready: Vec<bool> = (0..=at).map(|other| other == at).collect();
                let request = self.own.as_mut().and_then(|(_, door)| door::hear(door, &ready));
                let happening = request.map(|request| match request {
                    PlayerRequest::Pause(_) => Happening::Pause,
                    PlayerRequest::Resume(_) => Happening::Resume,
                    PlayerRequest::JobEnded(_) => Happening::JobEnded,
                    PlayerRequest::End(_) => Happening::Stop("ended by its coordinator".to_owned()),
                    PlayerRequest::Alone(_) => Happening::Alone,
                });
                Ok(happening.into_iter().collect())
            }
            Token::Job => Ok(self.hear_job()?.into_iter().collect()),
            Token::Asked(at) => self.hear_anchor(at),
            Token::Beside(at) => self.hear_beside(at),
        }
    }
}

/// What an answer comes to for an event: its wait, changes of nodes, and the end of it.
fn told<T>(number: usize, answered: Answered<T>, nodes: Vec<Happening>) -> Vec<Happening> {
    let waited = answered.waited.map(|why| Happening::Waited(number, why));
    let finished = Happening::Finished(number, answered.result.map(drop));
    waited.into_iter().chain(nodes).chain([finished]).collect()
}

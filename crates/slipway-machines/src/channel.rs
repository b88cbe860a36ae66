//! A machine's part, reached by its standard input and output.

use std::io::{self, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use slipway_engine::rsh::Rsh;
use slipway_lab::model::Machine;
use slipway_measure::play::Line;

use crate::error::MachineError;
use crate::message::{Answer, Order, VERSION, receive, send};
use crate::shepherd;

/// The hidden command that serves a part.
const COMMAND: &str = "machine";

/// Most bytes of a part's standard error in an account of its end.
const MOST_SAID: u64 = 2000;

/// Answers of a part.
pub(crate) type Words = BufReader<ChildStdout>;

/// A channel to a part. Dropped, the part sees the end of its input, and takes down what it has made and nobody kept.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The machine's name.
    pub(crate) machine: String,
    shown: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Words>,
    /// Its process is there for as long as the lab, once that is kept.
    is_of_job: bool,
    /// It is kept.
    stays: bool,
}

impl Channel {
    /// Starts a part, and waits until it greets.
    pub(crate) fn open(rsh: &Rsh, machine: &Machine) -> Result<Self, MachineError> {
        Self::start(rsh, machine, false)
    }

    /// As [`open`](Self::open). The error has the words of the remote shell, which go nowhere else.
    pub(crate) fn open_quietly(rsh: &Rsh, machine: &Machine) -> Result<Self, MachineError> {
        Self::start(rsh, machine, true)
    }

    fn start(rsh: &Rsh, machine: &Machine, quietly: bool) -> Result<Self, MachineError> {
        let is_of_job = machine.job.is_some();
        let mut command = rsh.standing(machine, [COMMAND].into_iter().chain(is_of_job.then_some("--stay")));
        if is_of_job || quietly {
            // A caller may wait for the end of this command's standard error, but not for the lab's.
            command.stderr(Stdio::piped());
        }
        // A terminal's Ctrl-C is for the coordinator. A part hears of it by the end of its input, in good order.
        command.process_group(0);
        let shown = rsh.shown(machine);
        let unreachable = |source: io::Error| MachineError::Unreachable {
            machine: machine.name.clone(),
            reason: source.to_string(),
            command: shown.clone(),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(unreachable)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| unreachable(io::ErrorKind::BrokenPipe.into()))?;
        let output = Some(BufReader::new(output));
        let machine = machine.name.clone();
        let mut channel = Self { machine, shown: shown.clone(), child, input, output, is_of_job, stays: false };
        channel.greet()?;
        Ok(channel)
    }

    fn greet(&mut self) -> Result<(), MachineError> {
        let here = env!("CARGO_PKG_VERSION");
        match self.answer()? {
            Answer::Hello { protocol: VERSION, version } if version == here => Ok(()),
            Answer::Hello { protocol, version } => Err(MachineError::Version {
                machine: self.machine.clone(),
                there: format!("{version} (protocol {protocol})"),
                here: format!("{here} (protocol {VERSION})"),
            }),
            other => Err(self.lost(format!("it greeted with {other:?}"))),
        }
    }

    /// Gives an order.
    pub(crate) fn give(&mut self, order: &Order) -> Result<(), MachineError> {
        let sent = self.input.as_mut().map_or_else(|| Err(io::ErrorKind::BrokenPipe.into()), |to| send(to, order));
        sent.map_err(|error| self.lost(error.to_string()))
    }

    /// Waits for the next answer.
    pub(crate) fn answer(&mut self) -> Result<Answer, MachineError> {
        let Some(output) = &mut self.output else { return Err(self.lost("another reads it".to_owned())) };
        match receive(output) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                self.input = None;
                let mut said = Vec::new();
                if let Some(errors) = self.child.stderr.take() {
                    // Best effort: more of the reason. It ends with the part.
                    let _ = errors.take(MOST_SAID).read_to_end(&mut said);
                }
                let ended = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                let said = String::from_utf8_lossy(&said).trim().replace('\n', "; ");
                let said = if said.is_empty() { ended } else { format!("{ended}: {said}") };
                Err(self.lost(format!("its part ended without an answer ({said})")))
            }
            Err(error) => Err(self.lost(error.to_string())),
        }
    }

    /// Gives an order, and waits until it is carried out. `ready` hears how many nodes are.
    pub(crate) fn have_done(
        &mut self,
        doing: &'static str,
        order: &Order,
        ready: &mut dyn FnMut(usize),
    ) -> Result<Answer, MachineError> {
        self.give(order)?;
        loop {
            match self.answer()? {
                Answer::Ready { nodes } => ready(nodes),
                Answer::Failed { message } => {
                    return Err(MachineError::Refused { doing, machine: self.machine.clone(), message });
                }
                done @ (Answer::Done { .. } | Answer::Image { .. } | Answer::Links { .. } | Answer::Ports { .. }) => {
                    return Ok(done);
                }
                other => return Err(self.lost(format!("it answered {other:?}"))),
            }
        }
    }

    /// Gives an order, and waits for its answer.
    pub(crate) fn ask(&mut self, doing: &'static str, order: &Order) -> Result<Answer, MachineError> {
        self.give(order)?;
        match self.answer()? {
            Answer::Failed { message } => Err(MachineError::Refused { doing, machine: self.machine.clone(), message }),
            answer => Ok(answer),
        }
    }

    /// Leaves the part that is kept to itself: its process may be there for as long as the lab.
    pub(crate) fn leave(mut self) {
        self.stays = self.is_of_job;
        if self.stays {
            shepherd::dismiss(self.child.id());
        }
    }

    /// The log of the scenario that the part played last.
    pub(crate) fn log(&mut self, lab: &str) -> Result<Vec<Line>, MachineError> {
        self.give(&Order::Log { lab: lab.to_owned() })?;
        let mut lines = Vec::new();
        loop {
            match self.answer()? {
                Answer::Played { line } => lines.push(*line),
                Answer::Done { .. } => return Ok(lines),
                Answer::Failed { message } => {
                    let (doing, machine) = ("read the scenario's log", self.machine.clone());
                    return Err(MachineError::Refused { doing, machine, message });
                }
                other => return Err(self.lost(format!("it answered {other:?}"))),
            }
        }
    }

    /// The answers, for another thread to wait for. Once.
    pub(crate) fn words(&mut self) -> Option<Words> {
        self.output.take()
    }

    /// Ends the command that leads there: it no longer does.
    pub(crate) fn abandon(&mut self) {
        // It is waited for when this is dropped.
        let _ = self.child.kill();
    }

    /// The error of a machine that is gone.
    pub(crate) fn lost(&self, reason: String) -> MachineError {
        MachineError::Unreachable { machine: self.machine.clone(), reason, command: self.shown.clone() }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        drop(self.input.take());
        if !self.stays {
            // It ends with its input, once what nobody kept is down.
            let _ = self.child.wait();
        }
    }
}

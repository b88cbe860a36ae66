//! Measuring between two nodes: a server in one, a client in the other, and what the client says.

mod away;
mod collect;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use slipway_lab::id::NodeId;
use slipway_lab::model::Lab;
use slipway_measure::probe::{Output, Probe, ReadError, Sample, Server, Step};
use slipway_sys::signals::Taken;

use crate::exec::{Child, Entry, ExecError, Launcher, Program, Stdio};
use crate::lab::{LabError, Running};

use away::Away;
pub use collect::{Bounds, Heard, collect};

/// How long a server may take to listen.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// The reason why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A node cannot be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program did not start.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The output has no result.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The server did not come to listen.
    #[error(
        "wait for {program} in node `{node}` to listen on port {port}: {why}\nHint: try it by hand with `slipway exec`; is another program on that port?"
    )]
    NotListening {
        /// The server.
        program: String,
        /// The node.
        node: String,
        /// On what.
        port: u16,
        /// The outcome instead.
        why: String,
    },
    /// The client did not end.
    #[error("run {program} in node `{node}`: not done after {seconds} s, ended\nHint: --timeout gives it longer")]
    TimedOut {
        /// The client.
        program: String,
        /// The node.
        node: String,
        /// The time that it had, in seconds.
        seconds: u64,
    },
    /// The caller was told to stop; the program was ended.
    #[error("measure: interrupted")]
    Interrupted,
    /// The kernel refused something.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action.
        doing: &'static str,
        /// The error of the action.
        source: io::Error,
    },
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> ProbeError {
    move |source| ProbeError::Io { doing, source }
}

/// Two nodes of a running lab, and how long a program between them may take.
#[derive(Debug, Clone, Copy)]
pub struct Between<'a> {
    /// The lab.
    pub lab: &'a Running,
    /// The node that serves, by index.
    pub server: NodeId,
    /// The node that measures, by index.
    pub client: NodeId,
    /// For each step.
    pub timeout: Duration,
    /// Signals that end it early.
    pub interrupt: &'a Taken,
}

impl Between<'_> {
    /// Runs the probe's steps and reads what came of them.
    pub fn measure(&self, launcher: &Launcher, probe: &Probe) -> Result<Vec<Sample>, ProbeError> {
        let address = Self::address_of(&self.lab.lab, self.server);
        let steps = probe.steps(address);
        let outputs: Result<Vec<Output>, ProbeError> =
            steps.iter().map(|step| self.run(launcher, step, None)).collect();
        Ok(probe.read(&outputs?)?)
    }

    /// As [`measure`](Self::measure), with the server at `address`. Calls `look` when each client starts, ten times a second,
    /// and when it has ended.
    pub fn watch(
        &self,
        launcher: &Launcher,
        probe: &Probe,
        address: IpAddr,
        look: &mut dyn FnMut(),
    ) -> Result<Vec<Sample>, ProbeError> {
        let mut outputs = Vec::new();
        for step in probe.steps(address) {
            outputs.push(self.run(launcher, &step, Some(&mut *look))?);
            look();
        }
        Ok(probe.read(&outputs)?)
    }

    /// Runs a program in the client's node to its end. Calls `look` when it starts, and ten times a second.
    ///
    /// # Errors
    /// When it does not start, takes longer than the timeout, or a signal came. Its own exit code is in the output.
    pub fn run_program(
        &self,
        launcher: &Launcher,
        argv: &[String],
        look: &mut dyn FnMut(),
    ) -> Result<Output, ProbeError> {
        let client = Entry::to(self.lab, self.client)?;
        capture(launcher, &client, argv, (self.timeout, self.interrupt), Some(look))
    }

    /// A node's address on its first network.
    #[must_use]
    pub fn address_of(lab: &Lab, node: NodeId) -> IpAddr {
        lab.nodes[node].interfaces.first().map_or(IpAddr::from([127, 0, 0, 1]), |interface| interface.ipv4.into())
    }

    fn run(&self, launcher: &Launcher, step: &Step, look: Option<&mut dyn FnMut()>) -> Result<Output, ProbeError> {
        let server = step.server.as_ref().map(|server| self.serve(launcher, server)).transpose()?;
        let client = Entry::to(self.lab, self.client)?;
        let output = capture(launcher, &client, &step.client, (self.timeout, self.interrupt), look);
        // One whose client never came waits for ever. Its exit code says nothing either way.
        let patience = Duration::from_secs(u64::from(output.is_ok()));
        match server {
            None => {}
            Some(Serving::Away(server)) => server.end(patience).map_err(failed("end the server"))?,
            Some(Serving::Here(server)) => {
                let ended = slipway_sys::process::wait_for_end(server.as_fd(), patience);
                if !ended.map_err(failed("wait for the server"))? {
                    server.signal(Signal::KILL).map_err(failed("end the server"))?;
                }
                server.wait().map_err(failed("wait for the server"))?;
            }
        }
        output
    }

    fn serve(&self, launcher: &Launcher, server: &Server) -> Result<Serving<'_>, ProbeError> {
        if !self.lab.lab.has_here(self.server) {
            return self.serve_away(server).map(Serving::Away);
        }
        let entry = Entry::to(self.lab, self.server)?;
        let null = fs::File::options().read(true).write(true).open("/dev/null").map_err(failed("open /dev/null"))?;
        let program = Program { argv: server.argv.iter().map(Into::into).collect(), ..Program::default() };
        let child = launcher.spawn(&entry, &program, Stdio::Descriptors([null.as_fd(); 3]), None)?;
        let not_listening = |why: &str| ProbeError::NotListening {
            program: server.argv[0].clone(),
            node: entry.node.clone(),
            port: server.port,
            why: why.to_owned(),
        };
        let deadline = Instant::now() + SERVER_PATIENCE;
        // The kernel announces no new listener, so its table is looked at, each millisecond or when the server ends.
        while !listens(entry.init.pid, server.port).map_err(failed("read the node's table of sockets"))? {
            if slipway_sys::process::wait_for_end(child.as_fd(), Duration::from_millis(1))
                .map_err(failed("wait for the server"))?
            {
                let exit = child.wait().map_err(failed("wait for the server"))?;
                return Err(not_listening(&format!("it ended with code {}", exit.code())));
            }
            if Instant::now() > deadline {
                return Err(not_listening("it does not"));
            }
        }
        Ok(Serving::Here(child))
    }

    /// The same in a node of another machine.
    fn serve_away(&self, server: &Server) -> Result<Away<'_>, ProbeError> {
        let mut away = Away::start(&self.lab.lab, self.server, server)
            .map_err(failed("start the server in a node of another machine"))?;
        let deadline = Instant::now() + SERVER_PATIENCE;
        let why = loop {
            match away.listens(server.port).map_err(failed("read the node's table of sockets"))? {
                Some(true) => return Ok(away),
                None => break "it ended",
                Some(false) if Instant::now() > deadline => break "it does not",
                // The question itself takes a while.
                Some(false) => {}
            }
        };
        away.end(Duration::ZERO).map_err(failed("end the server"))?;
        let node = self.lab.lab.nodes[self.server].name.clone();
        Err(ProbeError::NotListening { program: server.argv[0].clone(), node, port: server.port, why: why.to_owned() })
    }
}

/// A server that runs.
enum Serving<'a> {
    /// In a node of this machine.
    Here(Child),
    /// In a node of another.
    Away(Away<'a>),
}

/// Whether anything in the network namespace of process `pid` listens on this TCP port (`proc_pid_net(5)`, state `0A`).
///
/// # Errors
/// When the process is gone.
pub fn listens(pid: i32, port: u16) -> io::Result<bool> {
    for table in ["tcp", "tcp6"] {
        let text = match fs::read_to_string(format!("/proc/{pid}/net/{table}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if is_listening(&text, port) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a table of sockets (`proc_pid_net(5)`) has one that listens on this port. Lines of headings are none.
fn is_listening(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some("0A")
    })
}

/// Runs a program in a node to its end and keeps what it says.
fn capture(
    launcher: &Launcher,
    entry: &Entry,
    argv: &[String],
    (timeout, interrupt): (Duration, &Taken),
    look: Option<&mut dyn FnMut()>,
) -> Result<Output, ProbeError> {
    let null = fs::File::open("/dev/null").map_err(failed("open /dev/null"))?;
    let (mut stdout, out) = io::pipe().map_err(failed("make a pipe"))?;
    let (mut stderr, err) = io::pipe().map_err(failed("make a pipe"))?;
    let program = Program { argv: argv.iter().map(Into::into).collect(), ..Program::default() };
    let begun = Instant::now();
    let child = launcher.spawn(entry, &program, Stdio::Descriptors([null.as_fd(), out.as_fd(), err.as_fd()]), None)?;
    drop((out, err));
    let bounds = Bounds { deadline: begun + timeout, interrupt };
    let heard = collect(&mut stdout, &mut stderr, bounds, look).map_err(failed("hear the program"))?;
    let Heard::All([stdout, stderr]) = heard else {
        child.signal_group(Signal::KILL).map_err(failed("end the program"))?;
        child.wait().map_err(failed("wait for the program"))?;
        let timed_out =
            ProbeError::TimedOut { program: argv[0].clone(), node: entry.node.clone(), seconds: timeout.as_secs() };
        return Err(if matches!(heard, Heard::Interrupted) { ProbeError::Interrupted } else { timed_out });
    };
    let exit = child.wait().map_err(failed("wait for the program"))?;
    Ok(Output { stdout, stderr, code: i32::from(exit.code()), wall: begun.elapsed() })
}

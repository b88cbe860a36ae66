//! Two places to run programs in, and a probe between them.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use slipway_measure::probe::{Output, Probe, Sample, Server, Step};

/// A server that does not listen after this long never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pair of places to run programs in: command lines that the program's words are added to.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
    /// The server's.
    pub(super) address: IpAddr,
}

impl Pair {
    /// The same, on these processors.
    pub(super) fn pinned(&self, [server, client]: [&str; 2]) -> Self {
        let pin = |place: &[String], core: &str| [place, &["taskset", "-c", core].map(str::to_owned)].concat();
        Self { server: pin(&self.server, server), client: pin(&self.client, client), address: self.address }
    }

    /// What a probe says.
    pub(super) fn measure(&self, probe: &Probe) -> Result<Vec<Sample>, String> {
        self.read(probe, &probe.steps(self.address))
    }

    /// What a probe says whose steps are others than its own.
    pub(super) fn read(&self, probe: &Probe, steps: &[Step]) -> Result<Vec<Sample>, String> {
        let outputs: Vec<Output> = steps.iter().map(|step| self.take(step)).collect::<Result<_, _>>()?;
        probe.read(&outputs).map_err(|error| error.to_string())
    }

    fn take(&self, step: &Step) -> Result<Output, String> {
        let server = step.server.as_ref().map(|server| self.serve(server)).transpose()?;
        let begun = Instant::now();
        let output = command(&[self.client.as_slice(), &step.client].concat()).output();
        let wall = begun.elapsed();
        let output = output.map_err(|error| format!("run {:?}: {error}", step.client))?;
        match server {
            // It ends with its client.
            Some(mut server) if output.status.success() => drop(server.wait()),
            Some(server) => end(server),
            None => {}
        }
        Ok(Output { stdout: output.stdout, stderr: output.stderr, code: output.status.code().unwrap_or(1), wall })
    }

    /// Starts a server, and waits until it listens.
    pub(super) fn serve(&self, server: &Server) -> Result<Child, String> {
        let mut child = command(&[self.server.as_slice(), &server.argv].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("run {:?}: {error}", server.argv))?;
        let listening =
            [self.server.as_slice(), &["ss".into(), "-ltnH".into(), format!("sport = :{}", server.port)]].concat();
        let begun = Instant::now();
        while command(&listening).output().map_err(|error| format!("run ss: {error}"))?.stdout.is_empty() {
            if begun.elapsed() > PATIENCE || child.try_wait().is_ok_and(|ended| ended.is_some()) {
                end(child);
                return Err(format!("{:?} does not listen", server.argv));
            }
        }
        Ok(child)
    }
}

/// Ends a program in a node; `slipway exec` passes the signal on.
pub(super) fn end(mut child: Child) {
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let _ = child.wait();
}

pub(super) fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

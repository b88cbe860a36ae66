//! One host's own Open vSwitch: database server and switch, away from any that the machine runs for itself.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use slipway_sys::ns::with_net;

use crate::network::error::NetworkError;

/// Programs that must be installed: Debian's `openvswitch-switch`, and `setpriv(1)`, which ties a program to its
/// parent's life.
pub(super) const PROGRAMS: [&str; 5] = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "setpriv"];
/// Daemons are in `sbin`, which not every root's PATH has.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Seconds that the switch may take to carry out a change.
const TIMEOUT: &str = "--timeout=60";
/// The program that the database server starts once it listens, and with which it ends. It reports that the server is
/// ready, and the switch can neither start too early nor outlive the server.
const SWITCH: &str = "echo ready; exec setpriv --pdeathsig KILL ovs-vswitchd unix:$OVS_RUNDIR/db.sock -vconsole:off \
                      --log-file=$OVS_RUNDIR/ovs-vswitchd.log --unixctl=$OVS_RUNDIR/ovs-vswitchd.ctl >/dev/null";

/// A running pair. Dropping it ends both.
#[derive(Debug)]
pub(super) struct Daemons {
    server: Child,
    place: PathBuf,
}

pub(super) fn is_installed(program: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(program).exists())
}

impl Daemons {
    /// Starts the pair in a network namespace, with everything it keeps in the folder `place`.
    pub(super) fn start(net: BorrowedFd<'_>, place: &Path) -> Result<Self, NetworkError> {
        fs::create_dir_all(place).map_err(NetworkError::system(format!("make {}", place.display())))?;
        let database = place.join("conf.db");
        finish(program("ovsdb-tool", place).arg("create").arg(&database))?;
        let mut command = program("setpriv", place);
        command.args(["--pdeathsig", "KILL", "ovsdb-server", "-vconsole:off"]).arg(&database);
        command.arg(option("--remote=punix:", place, "db.sock")).arg(option("--unixctl=", place, "ovsdb-server.ctl"));
        command.arg(option("--log-file=", place, "ovsdb-server.log")).arg(format!("--run={SWITCH}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let spawned = with_net(net, || command.spawn()).and_then(|child| child);
        let mut server = spawned.map_err(NetworkError::system("start ovsdb-server"))?;
        let mut said = String::new();
        let heard = server.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut said));
        let daemons = Self { server, place: place.to_owned() };
        if said != "ready\n" {
            heard.transpose().map_err(NetworkError::system("hear from ovsdb-server"))?;
            let log = fs::read_to_string(place.join("ovsdb-server.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing").to_owned();
            return Err(NetworkError::system("start ovsdb-server")(io::Error::other(last)));
        }
        daemons.vsctl(&["--no-wait", "init"])?;
        Ok(daemons)
    }

    /// Runs `ovs-vsctl(8)` on this pair and waits until the switch has done what it says.
    pub(super) fn vsctl(&self, arguments: &[&str]) -> Result<(), NetworkError> {
        let mut command = program("ovs-vsctl", &self.place);
        finish(command.arg(option("--db=unix:", &self.place, "db.sock")).arg(TIMEOUT).args(arguments))
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        // Gone already is what is wanted. The switch is killed by its parent's end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn option(name: &str, place: &Path, file: &str) -> String {
    format!("{name}{}", place.join(file).display())
}

fn program(name: &str, place: &Path) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", PATH);
    for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(folder, place);
    }
    command
}

fn finish(command: &mut Command) -> Result<(), NetworkError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(NetworkError::system(format!("run {name}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NetworkError::system(format!("run {name}"))(io::Error::other(said)))
}

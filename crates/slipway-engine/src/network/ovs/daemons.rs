//! One host's own Open vSwitch: database server and switch, away from any that the machine runs for itself.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slipway_sys::helper::Helper;
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

/// A running pair. Dropping it ends both: the server as a helper, and the switch by its parent's end.
#[derive(Debug)]
pub(super) struct Daemons {
    server: Helper,
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
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let log = place.join("ovsdb-server.log");
        let started = with_net(net, || Helper::execute(&mut command, &log)).and_then(|helper| helper);
        let (server, _) = started.map_err(NetworkError::system("start ovsdb-server"))?;
        let daemons = Self { server, place: place.to_owned() };
        daemons.vsctl(&["--no-wait", "init"])?;
        Ok(daemons)
    }

    /// The database server's number.
    pub(super) fn number(&self) -> i32 {
        self.server.number()
    }

    /// Runs `ovs-vsctl(8)` on this pair and waits until the switch has done what it says.
    pub(super) fn vsctl(&self, arguments: &[&str]) -> Result<(), NetworkError> {
        let mut command = program("ovs-vsctl", &self.place);
        finish(command.arg(option("--db=unix:", &self.place, "db.sock")).arg(TIMEOUT).args(arguments))
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

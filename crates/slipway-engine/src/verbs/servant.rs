//! A program beside the lab that uses the machine's RDMA devices. It loads libraries of vendors, so it is a dynamic program of its
//! own, without privileges. It takes orders on its standard input, and is started anew where it ends.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use slipway_sys::helper::Helper;
use slipway_verbs::wire::{self, WireError};

use super::plugin;

/// The user and the group that it has: nobody's, who may use devices.
const NOBODY: &str = "65534";
/// Descriptors that it may have: a few for each connection.
const DESCRIPTORS: u64 = 65_536;
/// Devices that the kernel has.
pub(super) const DEVICES: &str = "/sys/class/infiniband";
/// Time between its end and the start of the next.
const PAUSE: Duration = Duration::from_secs(1);
/// Time before another try where one cannot be started.
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// The two ends of a socket for orders. A later program takes the same one.
#[derive(Debug)]
pub(crate) struct Orders {
    /// The end to give orders by.
    pub(crate) to: Arc<OwnedFd>,
    end: OwnedFd,
}

impl Orders {
    /// Makes the socket.
    ///
    /// # Errors
    /// As `socketpair(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        let (to, end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // A program that is stuck delays nobody.
        rustix::io::ioctl_fionbio(&to, true)?;
        Ok(Self { to: Arc::new(to), end })
    }

    /// Forgets orders that no program has heard. Their descriptors are closed, so other ends see that.
    fn drain(&self) {
        while let Ok(_) | Err(WireError::Malformed) = wire::receive::<()>(self.end.as_fd(), RecvFlags::DONTWAIT) {}
    }
}

/// The program, which runs or is to be started again.
#[derive(Debug)]
pub(super) struct Servant {
    /// Its file, beside this program's or in `../lib/slipway`.
    program: &'static str,
    pub(super) orders: Orders,
    helper: Option<Helper>,
    due: Option<Instant>,
}

impl Servant {
    pub(super) fn new(program: &'static str, orders: Orders) -> Self {
        Self { program, orders, helper: None, due: None }
    }

    /// Executes it with one argument. Gives the word that it is ready with.
    pub(super) fn execute(&mut self, argument: &str, log: &File) -> io::Result<String> {
        // By its descriptor, since its user may not be let into the folder.
        let program = File::open(found(self.program)?)?;
        rustix::io::fcntl_setfd(&program, FdFlags::empty())?;
        // Hostile programs and strangers have it do things: it may use the device, and has no privilege.
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--bounding-set=-all"]);
        command.args(["--inh-caps=-all", "--pdeathsig", "KILL", "--no-new-privs"]);
        command.arg(format!("/proc/self/fd/{}", program.as_raw_fd())).arg(argument);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::from(self.orders.end.try_clone()?)).stderr(Stdio::from(log.try_clone()?));
        let (helper, word) = Helper::execute(&mut command, Path::new("/dev/null"))?;
        let none = Rlimit { current: None, maximum: None };
        // Memory that a device uses is locked. Without more of both, fewer connections have room.
        let many = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
        if let Some(pid) = Pid::from_raw(helper.number()) {
            let _ = prlimit(Some(pid), Resource::Memlock, none);
            let _ = prlimit(Some(pid), Resource::Nofile, many);
        }
        (self.helper, self.due) = (Some(helper), None);
        Ok(word)
    }

    pub(super) fn is_up(&self) -> bool {
        self.helper.is_some()
    }

    /// Ends it: the next one is started.
    pub(super) fn end(&mut self) {
        if let Some(helper) = &self.helper {
            helper.kill();
        }
    }

    /// When the next one is to start.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a process is this program. Then it has ended.
    pub(super) fn ended(&mut self, pid: i32) -> bool {
        let is_it = self.helper.as_ref().is_some_and(|helper| helper.number() == pid);
        if is_it {
            (self.helper, self.due) = (None, Some(Instant::now() + PAUSE));
            self.orders.drain();
        }
        is_it
    }

    /// Starts the next one, where that is due. Gives its word.
    pub(super) fn tend(&mut self, argument: &str, log: &File) -> io::Result<Option<String>> {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return Ok(None);
        }
        self.due = Some(Instant::now() + LONG_PAUSE);
        self.orders.drain();
        self.execute(argument, log).map(Some)
    }
}

/// Devices of this machine, by name.
pub(super) fn devices() -> Vec<String> {
    let all = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.map(|device| device.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn found(program: &str) -> io::Result<PathBuf> {
    let found = plugin::folders()?.into_iter().map(|folder| folder.join(program)).find(|path| path.exists());
    found.ok_or_else(|| io::Error::other(format!("{program} is not installed; scripts/verbs.sh builds it")))
}

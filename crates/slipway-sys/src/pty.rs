//! Terminals: one made inside a node, and the caller's own put into raw mode and back (`pty(7)`, `termios(3)`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

use rustix::fs::{Mode, OFlags, fstat, fstatfs, major, minor, open};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// `DEVPTS_SUPER_MAGIC` (`linux/magic.h`).
const DEVPTS_MAGIC: u64 = 0x1cd1;

/// The two ends of a terminal.
#[derive(Debug)]
pub struct Pair {
    /// The outside: what a person types goes in, what programs print comes out.
    pub master: OwnedFd,
    /// The programs' side.
    pub terminal: OwnedFd,
}

/// Makes a terminal in the mount namespace that the caller is in, from the `devpts` mounted there.
///
/// The owner of the namespace may have replaced the path. So this checks the opened file before it uses it, and nothing
/// on the way can block. The programs' side is had from the descriptor, not by a path (`TIOCGPTPEER`).
///
/// # Errors
/// When `/dev/ptmx` is missing or is not a terminal multiplexer of a `devpts`.
pub fn open_here() -> io::Result<Pair> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let master = open("/dev/ptmx", flags, Mode::empty())?;
    let device = fstat(&master)?.st_rdev;
    let filesystem = fstatfs(&master)?.f_type;
    if (major(device), minor(device)) != (5, 2) || u64::try_from(filesystem) != Ok(DEVPTS_MAGIC) {
        return Err(io::Error::other("/dev/ptmx is not a terminal multiplexer of a devpts file system"));
    }
    unlockpt(&master)?;
    let terminal = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    Ok(Pair { master, terminal })
}

/// The size of a terminal in characters; `None` where the descriptor is no terminal.
#[must_use]
pub fn size(terminal: BorrowedFd<'_>) -> Option<Winsize> {
    tcgetwinsize(terminal).ok()
}

/// Sets the size; the programs on it get `SIGWINCH`.
///
/// # Errors
/// As `ioctl_tty(2)`, `TIOCSWINSZ`.
pub fn set_size(terminal: BorrowedFd<'_>, size: Winsize) -> io::Result<()> {
    Ok(tcsetwinsize(terminal, size)?)
}

/// Has a terminal show what is written to it as it is, and echo nothing.
///
/// # Errors
/// As `tcsetattr(3)`.
pub fn show_only(terminal: BorrowedFd<'_>) -> io::Result<()> {
    let mut modes = tcgetattr(terminal)?;
    modes.output_modes.remove(OutputModes::OPOST);
    modes.local_modes.remove(LocalModes::ECHO);
    Ok(tcsetattr(terminal, OptionalActions::Now, &modes)?)
}

/// A terminal in raw mode, for as long as this lives: every key goes through as it is typed.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
}

/// State that the panic hook restores: a release build aborts on panic, which runs no destructor.
static BEFORE: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);
static HOOK: Once = Once::new();

impl RawMode {
    /// Puts `terminal` into raw mode. One at a time in a process.
    ///
    /// # Errors
    /// `ENOTTY` where it is no terminal.
    pub fn enter(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                usual(panic);
            }));
        });
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some((terminal.try_clone_to_owned()?, before));
        let entered = Self { terminal: terminal.try_clone_to_owned()? };
        tcsetattr(&entered.terminal, OptionalActions::Now, &raw)?;
        Ok(entered)
    }
}

impl AsFd for RawMode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.try_lock().ok().and_then(|mut before| before.take());
    if let Some((terminal, settings)) = before {
        // The terminal may be gone (hung up); then there is nothing to put back.
        let _ = tcsetattr(&terminal, OptionalActions::Now, &settings);
    }
}

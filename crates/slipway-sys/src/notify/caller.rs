//! The descriptors and the memory of a call's maker.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{Call, kcmp};
use crate::process::status;

/// The thread that made a call. All of this needs `CAP_SYS_PTRACE` and, for programs of another user, `CAP_DAC_OVERRIDE`.
///
/// It is made from a thread's number, which may be another thread's at any time. The kernel gives numbers out anew, and
/// a thread that execs a program, maybe a privileged one, takes over its leader's. So ask
/// [`super::Listener::is_waiting`] after each of these, and before you believe their result. A call that still waits
/// has waited all the time, and its thread's number was no other's.
///
/// It may be kept for the calls that its thread makes later, where it [keeps its number](Self::keeps_its_number). A pidfd is of a
/// number that is given out (`struct pid`), and reaches nobody once that has ended; until then nobody else has the number. A
/// thread that takes it over by `exec` keeps it alive, and is then the caller: it is the new one's descriptors that are reached.
/// Its memory is another's than before, which is why nothing here keeps hold of memory; [`Memory`] is opened for one call.
#[derive(Debug)]
pub struct Caller {
    tid: i32,
    pidfd: OwnedFd,
    /// Whether the pidfd is the thread's, and not its process's.
    of_thread: bool,
    identity: Option<u64>,
    /// Data from `/proc` about the last descriptor asked about, by its number: a program that connects again and again
    /// uses the same. Read anew each time; to open it takes as long as three readings.
    asked: Mutex<Option<(i32, File)>>,
}

/// Facts about a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// It is closed on exec (`FD_CLOEXEC`, `fcntl(2)`).
    pub close_on_exec: bool,
    /// The inode number of its file.
    pub inode: u64,
}

impl Caller {
    /// Opens the thread of this number. Before Linux 6.9 descriptors are those of its process's first thread, which differ only
    /// where a thread has left the shared table (`unshare(2)`, `CLONE_FILES`).
    ///
    /// # Errors
    /// `ESRCH` or `NotFound` where there is none.
    pub fn open(tid: i32) -> io::Result<Self> {
        let thread = Some(tid).filter(|&tid| tid > 0).and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        // PIDFD_THREAD (`include/uapi/linux/pidfd.h`).
        let flags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
        let (pidfd, of_thread) = match pidfd_open(thread, flags) {
            // Before Linux 6.9.
            Err(Errno::INVAL) => (pidfd_open(process_of(thread)?, PidfdFlags::empty())?, false),
            other => (other?, true),
        };
        let identity = identity(&pidfd);
        Ok(Self { tid, pidfd, of_thread, identity, asked: Mutex::default() })
    }

    /// Whether it is still the thread of its number, or one that has exec'd a program in its place. Always false before Linux
    /// 6.9, where a process is all that can be held.
    #[must_use]
    pub fn lives(&self) -> bool {
        let mut end = [PollFd::new(&self.pidfd, PollFlags::IN)];
        self.of_thread && poll(&mut end, Some(&Timespec::default())) == Ok(0)
    }

    /// A copy of one of its descriptors: the same open file, closed on exec.
    ///
    /// # Errors
    /// `EBADF` where it has none of this number, `ESRCH` where it is gone, `EPERM` where it may not be traced.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        // rustix takes a negative number for a mistake of ours.
        if number < 0 {
            return Err(Errno::BADF.into());
        }
        Ok(pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty())?)
    }

    /// Whether it stays the one of its number for as long as that reaches anybody: once it has ended and another thread has been
    /// given the number, [`descriptor`](Self::descriptor) fails with `ESRCH`. Not before Linux 6.9.
    #[must_use]
    pub fn keeps_its_number(&self) -> bool {
        self.of_thread
    }

    /// The facts about one of its descriptors.
    ///
    /// # Errors
    /// `NotFound` where it has none of this number.
    pub fn describe(&self, number: i32) -> io::Result<Descriptor> {
        // "pos:", "flags:", "mnt_id:" and "ino:", a number each, come first (`seq_show`, `fs/proc/fd.c`).
        let mut info = [0; 128];
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match asked.take() {
            Some((known, file)) if known == number => file,
            _ => File::open(format!("/proc/{}/fdinfo/{number}", self.tid))?,
        };
        let length = file.read_at(&mut info, 0)?;
        *asked = Some((number, file));
        drop(asked);
        let info = String::from_utf8_lossy(&info[..length]);
        let after = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let flags = after("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
        let inode = after("ino:").and_then(|inode| inode.parse().ok());
        let known = flags.zip(inode).map(|(flags, inode)| (flags & libc::O_CLOEXEC != 0, inode));
        let (close_on_exec, inode) =
            known.ok_or_else(|| io::Error::other("a descriptor's /proc entry says too little"))?;
        Ok(Descriptor { close_on_exec, inode })
    }

    /// Whether its epoll instance `epoll` waits for the file at its descriptor `number`, added under that number
    /// (`KCMP_EPOLL_TFD`, `kcmp(2)`).
    ///
    /// # Errors
    /// `EBADF` where it has no such descriptors, `EINVAL` where `epoll` is no epoll instance, `ESRCH` where it is gone;
    /// `EOPNOTSUPP` where the kernel was built without `CONFIG_KCMP` and `CONFIG_EPOLL`.
    pub fn polls(&self, epoll: i32, number: i32) -> io::Result<bool> {
        kcmp::polls(self.tid, epoll, number)
    }

    /// A number that no other thread has or will have while the machine runs: that of its pidfd's file (`fs/pidfs.c`). `None`
    /// before Linux 6.9, where all pidfds were one file.
    #[must_use]
    pub fn identity(&self) -> Option<u64> {
        self.identity
    }
}

impl AsFd for Caller {
    /// A pidfd: of the thread itself where it [keeps its number](Caller::keeps_its_number).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Call {
    /// Copies the caller's memory from `address` on, all that fits. Whose memory that was, [`super::Listener::is_waiting`] says
    /// afterwards: the caller's, where its call waits still.
    ///
    /// # Errors
    /// `EFAULT` where not all of it can be read by the caller itself, or the caller is gone.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let base = usize::try_from(address).map_err(|_| Errno::FAULT)?;
        let len = into.len();
        let caller = nix::unistd::Pid::from_raw(self.tid);
        match process_vm_readv(caller, &mut [IoSliceMut::new(into)], &[RemoteIoVec { base, len }]) {
            Ok(read) if read == len => Ok(()),
            _ => Err(Errno::FAULT.into()),
        }
    }

    /// Opens the caller's memory, to write to it. Ask [`super::Listener::is_waiting`] once afterwards. From then on it
    /// is the caller's memory or nobody's, even if another thread gets the caller's number. (So it uses
    /// `/proc/TID/mem`, as `seccomp_unotify(2)` does, and not `process_vm_writev(2)`, which takes a number each time.)
    ///
    /// # Errors
    /// `NotFound` where the caller is gone; `EACCES` where it may not be traced.
    pub fn memory(&self) -> io::Result<Memory> {
        Ok(Memory(OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", self.tid))?))
    }
}

/// The memory of the program that a thread ran when this was opened, and no other.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Copies memory from `address` on, all that fits.
    ///
    /// # Errors
    /// `EFAULT` where not all of it is mapped or its program is gone.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, address).map_err(|_| Errno::FAULT.into())
    }

    /// Copies `bytes` to memory from `address` on. Unlike the kernel, this can write where the program itself may only read,
    /// into a copy of its own (`FOLL_FORCE`; from Linux 6.12 on a matter of `proc_mem.force_override`).
    ///
    /// # Errors
    /// `EFAULT` where not all of it is mapped or its program is gone: some of it may have been written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address).map_err(|_| Errno::FAULT.into())
    }
}

fn identity(pidfd: &OwnedFd) -> Option<u64> {
    // PID_FS_MAGIC (`include/uapi/linux/magic.h`).
    const PIDFS: rustix::fs::FsWord = 0x5049_4446;
    let system = rustix::fs::fstatfs(pidfd).ok()?;
    (system.f_type == PIDFS).then(|| rustix::fs::fstat(pidfd).ok().map(|stat| stat.st_ino))?
}

/// The process that a thread is of.
fn process_of(thread: Pid) -> io::Result<Pid> {
    let process = status(thread.as_raw_nonzero().get(), "Tgid")?.parse().ok();
    Ok(process.and_then(Pid::from_raw).ok_or(Errno::SRCH)?)
}

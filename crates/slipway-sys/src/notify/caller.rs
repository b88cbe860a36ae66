//! What the maker of a call has: its descriptors and its memory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::kcmp;

/// The thread that made a call. All of this needs `CAP_SYS_PTRACE` and, for programs of another user, `CAP_DAC_OVERRIDE`.
///
/// Made from a thread's number, which may be another's at any time: the kernel gives it out anew, or lets a thread that execs a
/// program, maybe a privileged one, take over its leader's. So [`super::Listener::is_waiting`] is asked once after opening; from
/// then on memory is the caller's or nobody's. (That is why it is reached through `/proc/TID/mem`, as `seccomp_unotify(2)` has
/// it, and not through `process_vm_writev(2)`, which takes a number each time.) Descriptors are the caller's as long as its call
/// waits, afterwards at worst those of what its process has exec'd.
#[derive(Debug)]
pub struct Caller {
    tid: i32,
    pidfd: OwnedFd,
    memory: File,
}

impl Caller {
    /// Opens the thread of this number. Before Linux 6.9 descriptors are those of its process's first thread, which differ only
    /// where a thread has left the shared table (`unshare(2)`, `CLONE_FILES`).
    ///
    /// # Errors
    /// `ESRCH` or `NotFound` where there is none; `EACCES` where it may not be traced.
    pub fn open(tid: i32) -> io::Result<Self> {
        let thread = Some(tid).filter(|&tid| tid > 0).and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        // PIDFD_THREAD (`include/uapi/linux/pidfd.h`).
        let of_thread = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
        let pidfd = match pidfd_open(thread, of_thread) {
            // Before Linux 6.9.
            Err(Errno::INVAL) => pidfd_open(process_of(thread)?, PidfdFlags::empty()),
            other => other,
        }?;
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{tid}/mem"))?;
        Ok(Self { tid, pidfd, memory })
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

    /// Copies its memory from `address` on, all that fits.
    ///
    /// # Errors
    /// `EFAULT` where not all of it is mapped or its program is gone.
    pub fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(into, address).map_err(|_| Errno::FAULT.into())
    }

    /// Copies `bytes` to its memory from `address` on. Unlike the kernel, this can write where the program itself may only read,
    /// into a copy of its own (`FOLL_FORCE`; from Linux 6.12 on a matter of `proc_mem.force_override`).
    ///
    /// # Errors
    /// `EFAULT` where not all of it is mapped or its program is gone: some of it may have been written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address).map_err(|_| Errno::FAULT.into())
    }

    /// Whether a descriptor of its is closed on exec (`FD_CLOEXEC`, `fcntl(2)`).
    ///
    /// # Errors
    /// `NotFound` where it has none of this number.
    pub fn closes_on_exec(&self, number: i32) -> io::Result<bool> {
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.tid))?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
        let flags = flags.and_then(|flags| i32::from_str_radix(flags, 8).ok());
        let flags = flags.ok_or_else(|| io::Error::other("a descriptor's /proc entry says nothing of its flags"))?;
        Ok(flags & libc::O_CLOEXEC != 0)
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
        // PID_FS_MAGIC (`include/uapi/linux/magic.h`).
        const PIDFS: rustix::fs::FsWord = 0x5049_4446;
        let system = rustix::fs::fstatfs(&self.pidfd).ok()?;
        (system.f_type == PIDFS).then(|| rustix::fs::fstat(&self.pidfd).ok().map(|stat| stat.st_ino))?
    }
}

/// The process that a thread is of.
fn process_of(thread: Pid) -> io::Result<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", thread.as_raw_nonzero()))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|text| text.trim().parse().ok());
    Ok(process.and_then(Pid::from_raw).ok_or(Errno::SRCH)?)
}

//! Resources that a child process took.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::process::Pid;

/// The end of a child process, with the resources that it and its descendants took. Descendants that nobody waited for
/// do not count (`getrusage(2)`).
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The exit code or signal.
    pub status: ExitStatus,
    /// Processor time in user and kernel mode, in seconds.
    pub cpu_seconds: f64,
    /// Most memory that one of the processes had, in bytes.
    pub peak_bytes: u64,
}

/// Waits for a child to end and collects it.
///
/// # Errors
/// As `wait4(2)`; `ECHILD` where it is not this process's child.
#[allow(unsafe_code)]
pub fn reap(child: Pid) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to variables of their type that live until the call returns.
        let reaped = unsafe { libc::wait4(child.as_raw_nonzero().get(), &raw mut status, 0, &raw mut usage) };
        if reaped >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(Ended {
        status: ExitStatus::from_raw(status),
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        // In KiB, on Linux.
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[expect(clippy::zombie_processes, reason = "the child is reaped by its number")]
    fn a_childs_end_and_its_resources_are_known() {
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7";
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let ended = reap(Pid::from_child(&child)).unwrap();
        assert_eq!(ended.status.code(), Some(7));
        assert!(ended.cpu_seconds > 0.0 && ended.peak_bytes > 100_000, "{ended:?}");
        assert!(reap(Pid::from_child(&child)).is_err());
    }
}

//! Network namespaces held by descriptor, so that nothing is left in the file system to clean up
//! (`network_namespaces(7)`), and which user namespace this is (`user_namespaces(7)`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid};

use crate::clone::{Cloned, SingleThread, clone};
use crate::process::end_with;

/// This thread's own network namespace.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn current_net() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Makes a new network namespace. It lives as long as the descriptor or anything in it does.
///
/// # Errors
/// As `unshare(2)`; `EPERM` without `CAP_SYS_ADMIN`.
///
/// # Panics
/// As [`with_net`].
pub fn create_net() -> io::Result<OwnedFd> {
    let home = current_net()?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    let made = current_net();
    setns(&home, CloneFlags::CLONE_NEWNET).expect("a thread can return to the namespace that it came from");
    made
}

/// A network namespace that belongs to a user namespace of its own.
#[derive(Debug)]
pub struct OwnedNet {
    /// The user namespace. Ids are the same in it as outside.
    pub user: OwnedFd,
    /// The network namespace.
    pub net: OwnedFd,
}

/// Makes a network namespace that belongs to a new user namespace. A process with capabilities in that user namespace alone has
/// them over this network and no other. With capabilities in the first user namespace, it could name any other network to the
/// kernel by a number (`RTM_GETNSID`) or by a process.
///
/// # Errors
/// As `clone(2)`: `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` beyond `user.max_user_namespaces`, `EINVAL` where the kernel
/// has no user namespaces.
pub fn create_owned_net(alone: SingleThread) -> io::Result<OwnedNet> {
    let maker = pidfd_open(getpid(), PidfdFlags::empty())?;
    let (pid, pidfd) = match clone(alone, CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)? {
        Cloned::Child => {
            // It only holds the namespaces until they are open, and ends with its maker.
            if end_with(&maker).is_ok() {
                loop {
                    nix::unistd::pause();
                }
            }
            std::process::exit(1);
        }
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
    };
    let made = take(pid);
    // Gone already is what is wanted.
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    made
}

/// Gives a process's user namespace the ids that there are here, and opens its namespaces.
fn take(pid: Pid) -> io::Result<OwnedNet> {
    let of = |name: &str| format!("/proc/{}/{name}", pid.as_raw_nonzero());
    for map in ["uid_map", "gid_map"] {
        let here = std::fs::read_to_string(format!("/proc/self/{map}"))?;
        let same = |line: &str| {
            let mut words = line.split_whitespace();
            let (inside, _, count) = (words.next()?, words.next()?, words.next()?);
            Some(format!("{inside} {inside} {count}\n"))
        };
        let same: String = here.lines().filter_map(same).collect();
        // In one write: the kernel takes a map once.
        std::fs::write(of(map), same)?;
    }
    Ok(OwnedNet { user: File::open(of("ns/user"))?.into(), net: File::open(of("ns/net"))?.into() })
}

/// Runs `action` with this thread in the network namespace `net`, then returns to where it was.
///
/// # Errors
/// As `setns(2)` for entering.
///
/// # Panics
/// Where the thread cannot return: from then on it would act in the wrong namespace.
pub fn with_net<T>(net: BorrowedFd<'_>, action: impl FnOnce() -> T) -> io::Result<T> {
    let home = current_net()?;
    setns(net, CloneFlags::CLONE_NEWNET)?;
    let result = action();
    setns(home.as_fd(), CloneFlags::CLONE_NEWNET).expect("a thread can return to the namespace that it came from");
    Ok(result)
}

/// Whether this process is in the machine's first user namespace, where root is root. The first alone maps every id to
/// itself.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn in_first_user_namespace() -> io::Result<bool> {
    let map = std::fs::read_to_string("/proc/self/uid_map")?;
    Ok(map.split_whitespace().eq(["0", "0", "4294967295"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_has_only_loopback() {
        let net = create_net().expect("root may make a network namespace");
        let devices = with_net(net.as_fd(), || std::fs::read_to_string("/proc/thread-self/net/dev"))
            .expect("entering works")
            .expect("reading works");
        let names: Vec<_> = devices.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
        assert_eq!(names, ["lo"]);
    }
}

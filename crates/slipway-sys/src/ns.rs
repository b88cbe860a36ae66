//! Network namespaces held by descriptor, so that nothing is left in the file system to clean up
//! (`network_namespaces(7)`), and which user namespace this is (`user_namespaces(7)`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};

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

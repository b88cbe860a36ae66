//! Network and mount namespaces held by descriptor, so that nothing is left in the file system to clean up
//! (`network_namespaces(7)`), and which user namespace this is (`user_namespaces(7)`).

#[allow(unsafe_code)]
mod owned;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{Mode, OFlags, fstat, openat, stat};

/// This thread's own network namespace.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn current_net() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// This thread's own mount namespace.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn current_mount() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/mnt")?.into())
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
/// Where `owner` is given, the user namespace belongs to that user. The kernel counts what users in a namespace take for its owner
/// too (`kernel/ucount.c`). So a namespace with an owner of its own has the machine's bounds for a user for itself.
///
/// # Errors
/// As `clone(2)`: `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` beyond `user.max_user_namespaces`, `EINVAL` where the kernel
/// has no user namespaces, or no user `owner` here.
pub fn create_owned_net(owner: Option<u32>) -> io::Result<OwnedNet> {
    let maker = owned::make(owner)?;
    let mapped = ["uid_map", "gid_map"].into_iter().try_for_each(|map| {
        let here = std::fs::read_to_string(format!("/proc/self/{map}"))?;
        let same = |line: &str| {
            let mut words = line.split_whitespace();
            let (inside, _, count) = (words.next()?, words.next()?, words.next()?);
            Some(format!("{inside} {inside} {count}\n"))
        };
        let same: String = here.lines().filter_map(same).collect();
        let file = openat(&maker.folder, map, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        // In one write: the kernel takes a map once.
        File::from(file).write_all(same.as_bytes())
    });
    let (user, net) = maker.collect();
    mapped.map(|()| OwnedNet { user, net })
}

/// The user namespace that owns a network namespace, if that is below this process's own (`ioctl_ns(2)`).
///
/// # Errors
/// When `/proc` is not mounted.
pub fn owner_below(net: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let owner = match owned::owner_of(net) {
        // It is above.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        owner => owner?,
    };
    let (own, of_net) = (stat("/proc/self/ns/user")?, fstat(&owner)?);
    Ok(((own.st_dev, own.st_ino) != (of_net.st_dev, of_net.st_ino)).then_some(owner))
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

//! A walk over descriptors: which sockets the programs of nodes have, and copies of those (`pidfd_getfd(2)`).
//!
//! A node's processes are those in its PID namespace. No program in a node can make another namespace within it: a default
//! container's profile refuses that. Threads may have left their process's table of descriptors (`CLONE_FILES`,
//! `unshare(2)`), so the walk looks at every table once.
//!
//! # What can be missed
//! In a frozen node, the walk misses only a socket that is in no table, but in a message that nobody has received yet
//! (`SCM_RIGHTS`, `unix(7)`). In a running node, it also misses sockets that are made, moved to another number, or passed
//! to another process during the walk. So a caller that needs all sockets repeats the walk until it finds nothing new, and
//! asks the kernel's own lists (`sock_diag(7)`) about the rest.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use slipway_sys::notify::{Caller, shares_descriptors};

use crate::metadata::{MetadataStore, SocketMetadata};

/// The descriptors of a thread: each number, and the file's name in `/proc` (`socket:[77]`).
///
/// # Errors
/// When `/proc` cannot be read, or the thread is gone.
pub fn descriptors(tid: i32) -> io::Result<Vec<(i32, OsString)>> {
    let mut named = Vec::new();
    for entry in fs::read_dir(format!("/proc/{tid}/fd"))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_link(entry.path()) {
            Ok(name) => named.push((number, name.into_os_string())),
            // A descriptor that is closed meanwhile is left out.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(named)
}

/// The inode in such a name, where the file is a socket.
#[must_use]
pub fn socket_inode(name: &OsStr) -> Option<u64> {
    let digits = name.as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// The number of the PID namespace that a process is in: its inode (`pid_namespaces(7)`).
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn namespace(process: i32) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/pid"))?.ino())
}

/// All processes in these PID namespaces, by their numbers here.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn processes(namespaces: &BTreeSet<u64>) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match namespace(process) {
            Ok(its) if namespaces.contains(&its) => found.push(process),
            Ok(_) => {}
            // No process of a node can hide this from root.
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether something failed because its thread or process is gone: then there is nothing to find.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// One thread for each table of descriptors that a process has: almost always one.
fn tables(process: i32) -> io::Result<Vec<i32>> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))?;
    let threads = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut tables = Vec::new();
    for thread in threads {
        // A thread that cannot be compared has a table of its own, until it is known to be gone.
        if !tables.iter().any(|&other| shares_descriptors(other, thread).unwrap_or(false)) {
            tables.push(thread);
        }
    }
    Ok(tables)
}

/// A socket that a process has.
#[derive(Debug)]
pub struct ProcessSocket<'a> {
    caller: &'a Caller,
    /// The socket's descriptor in the process.
    pub number: i32,
    /// The socket's own number.
    pub inode: u64,
}

impl ProcessSocket<'_> {
    /// A copy of the socket; `None` where it has been closed meanwhile, or another is at its descriptor by now.
    ///
    /// # Errors
    /// When the socket is there and cannot be copied, as where no descriptor is left (`EMFILE`).
    pub fn copy(&self) -> io::Result<Option<OwnedFd>> {
        let copy = match self.caller.descriptor(self.number) {
            Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::EBADF) => return Ok(None),
            copy => copy?,
        };
        let is_it = rustix::fs::fstat(&copy)?.st_ino == self.inode;
        Ok(is_it.then_some(copy))
    }
}

/// Shows every socket of a process, once for each number that it has there. A process that is gone has none.
///
/// # Errors
/// When a live process cannot be looked at. It shows all readable tables before that.
pub fn sockets(process: i32, mut each: impl FnMut(&ProcessSocket<'_>)) -> io::Result<()> {
    let tables = match tables(process) {
        Err(error) if is_gone(&error) => return Ok(()),
        tables => tables?,
    };
    let mut looked = Ok(());
    for thread in tables {
        match Caller::open(thread).and_then(|caller| Ok((caller, descriptors(thread)?))) {
            Ok((caller, descriptors)) => {
                for (number, name) in descriptors {
                    if let Some(inode) = socket_inode(&name) {
                        each(&ProcessSocket { caller: &caller, number, inode });
                    }
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => looked = Err(error),
        }
    }
    looked
}

/// A socket that a router handed out, and that a program has.
#[derive(Debug)]
pub struct HandedOutSocket {
    /// The socket's own number.
    pub inode: u64,
    /// A copy of the socket.
    pub socket: OwnedFd,
    /// The metadata on it.
    pub metadata: SocketMetadata,
}

/// Shows the sockets that were handed out to these processes, each once, except those among `seen`. It adds all sockets
/// that it looked at to `seen`.
///
/// # Errors
/// When some of them cannot be looked at. All others are shown before that.
pub fn handed_out(
    processes: &[i32],
    metadata: &MetadataStore,
    seen: &mut BTreeSet<u64>,
    mut each: impl FnMut(HandedOutSocket),
) -> io::Result<()> {
    let mut looked = Ok(());
    for &process in processes {
        let mut unread = Ok(());
        let walked = sockets(process, |found| {
            if seen.contains(&found.inode) {
                return;
            }
            let socket = match found.copy() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => return unread = Err(error),
            };
            match metadata.of(&socket) {
                Ok(metadata) => {
                    seen.insert(found.inode);
                    if let Some(metadata) = metadata {
                        each(HandedOutSocket { inode: found.inode, socket, metadata });
                    }
                }
                Err(error) => unread = Err(error),
            }
        });
        looked = looked.and(walked).and(unread);
    }
    looked
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    use nix::sched::{CloneFlags, unshare};
    use slipway_sys::bpf::SocketStorage;
    use slipway_sys::seccomp::{Filter, Trap, Verdict, When};

    use super::*;
    use crate::emulation::Options;
    use crate::metadata::{BYTES, Path, Role};

    fn this_process() -> i32 {
        rustix::process::getpid().as_raw_nonzero().get()
    }

    fn inode(socket: &UnixStream) -> u64 {
        rustix::fs::fstat(socket).expect("asks").st_ino
    }

    #[test]
    fn names_are_read() {
        assert_eq!(socket_inode(OsStr::new("socket:[77]")), Some(77));
        for other in ["socket:[]", "socket:[-1]", "socket:[7", "/tmp/socket:[7]", "pipe:[7]", "anon_inode:[eventpoll]"]
        {
            assert_eq!(socket_inode(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_process_is_found_by_its_namespace() {
        let own = namespace(this_process()).expect("it is there");
        assert!(processes(&BTreeSet::from([own])).expect("/proc is there").contains(&this_process()));
        assert!(!processes(&BTreeSet::from([own + 1])).expect("/proc is there").contains(&this_process()));
    }

    #[test]
    fn a_table_that_a_thread_has_for_itself_is_looked_at_too() {
        let (say, heard) = channel();
        let (end, ended) = channel::<()>();
        let alone = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FILES).expect("a table of its own");
            let (one, other) = UnixStream::pair().expect("a pair");
            say.send((inode(&one), one.as_raw_fd())).expect("heard");
            // Until the test has looked.
            let _ = ended.recv();
            drop((one, other));
        });
        let (hidden, number) = heard.recv().expect("said");
        let mut found = Vec::new();
        sockets(this_process(), |socket| {
            if socket.inode == hidden {
                found.push((socket.number, socket.copy().expect("copied").is_some()));
            }
        })
        .expect("walked");
        drop(end);
        alone.join().expect("it ran");
        assert_eq!(found, [(number, true)]);
    }

    /// A guard that sees nobody's sockets must not go on as if there were none.
    #[test]
    fn what_cannot_be_looked_at_is_an_error_and_what_is_gone_is_none() {
        let storage = SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map");
        let metadata = MetadataStore::new(storage);
        let (_one, _other) = UnixStream::pair().expect("a pair");
        let handed_out = |process| handed_out(&[process], &metadata, &mut BTreeSet::new(), drop);
        handed_out(this_process()).expect("all can be copied");
        handed_out(i32::MAX).expect("there is no such process");
        for call in [libc::SYS_pidfd_getfd, libc::SYS_pidfd_open, libc::SYS_openat] {
            let failing = Trap { call, when: When::Always, verdict: Verdict::Errno(libc::EMFILE) };
            let looked = std::thread::scope(|scope| {
                let running = scope.spawn(|| {
                    Filter::trap(&[failing]).attach().expect("root may attach");
                    handed_out(this_process())
                });
                running.join().expect("it ran")
            });
            assert_eq!(looked.expect_err("unseen").raw_os_error(), Some(libc::EMFILE), "{call}");
        }
    }

    #[test]
    fn what_was_handed_out_is_told_by_its_note() {
        let store =
            MetadataStore::new(SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map"));
        let (one, other) = UnixStream::pair().expect("a pair");
        let [local, peer] = ["10.64.0.1:1", "10.64.0.2:2"].map(|address| address.parse().expect("an address"));
        let metadata = SocketMetadata {
            path: Path::Pair,
            role: Role::Client,
            flow: 7,
            local,
            peer,
            reported: true,
            options: Options::default(),
            unregistered: None,
        };
        store.put(&one, &metadata).expect("written");
        let mut seen = BTreeSet::new();
        let mut held = Vec::new();
        handed_out(&[this_process()], &store, &mut seen, |socket| held.push((socket.inode, socket.metadata)))
            .expect("walked");
        assert_eq!(held, [(inode(&one), metadata)]);
        assert!(seen.contains(&inode(&other)), "it was looked at");
        handed_out(&[this_process()], &store, &mut seen, |socket| assert_ne!(socket.inode, inode(&one), "twice"))
            .expect("walked");
    }
}

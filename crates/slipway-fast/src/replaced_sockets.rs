//! Finds out whether a program still has a replaced socket, at another descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::walk;

/// Checks one socket after another.
#[derive(Debug)]
pub(crate) struct ReplacedSockets {
    epoll: OwnedFd,
    asked: u64,
}

impl ReplacedSockets {
    /// A checker that has checked no socket yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, asked: 0 })
    }

    /// Whether another process has this socket, which is not connected. Epoll drops a file that nobody has (`epoll(7)`,
    /// Q6), and reports an unconnected one as hung up. It reports a socket that somebody has once, and the entry stays
    /// silent until epoll drops it too.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`.
    pub(crate) fn others_have(&mut self, socket: OwnedFd) -> io::Result<bool> {
        self.asked += 1;
        epoll::add(&self.epoll, &socket, EventData::new_u64(self.asked), EventFlags::ONESHOT)?;
        drop(socket);
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 8];
        loop {
            let count = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default()))?;
            if events[..count].iter().any(|event| event.data.u64() == self.asked) {
                return Ok(true);
            }
            // Events of earlier sockets, which were connected when they were checked and are not any more.
            if count < events.len() {
                return Ok(false);
            }
        }
    }
}

/// The descriptors at which a program has the socket with this inode.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn numbers(tid: i32, inode: u64) -> io::Result<Vec<i32>> {
    let is_it = |name: &OsStr| walk::socket_inode(name) == Some(inode);
    Ok(walk::descriptors(tid)?.into_iter().filter(|(_, name)| is_it(name)).map(|(number, _)| number).collect())
}

//! A program's own socket, once another has taken its place: does somebody have it still, by another number?

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::walk;

/// Tells of one socket after another whether anybody has it.
#[derive(Debug)]
pub(crate) struct ReplacedSockets {
    epoll: OwnedFd,
    asked: u64,
}

impl ReplacedSockets {
    /// With nothing asked yet.
    ///
    /// # Errors
    /// As `epoll_create1(2)`.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, asked: 0 })
    }

    /// Whether anybody but the router has this socket, which is not connected. Epoll drops a file that nobody has (`epoll(7)`,
    /// Q6), and reports one that is not connected as hung up. The entry of one that somebody has is told of this once, and
    /// stays silent until it is dropped too.
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
            // Those of older ones, that were connected when they were asked about and are not any more.
            if count < events.len() {
                return Ok(false);
            }
        }
    }
}

/// The numbers by which a program knows the socket with this inode.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn numbers(tid: i32, inode: u64) -> io::Result<Vec<i32>> {
    let is_it = |name: &OsStr| walk::socket_inode(name) == Some(inode);
    Ok(walk::descriptors(tid)?.into_iter().filter(|(_, name)| is_it(name)).map(|(number, _)| number).collect())
}

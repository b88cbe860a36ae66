//! A program's own socket, once another has taken its place: does somebody have it still, by another number?

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Whether anybody but the router has this socket, which is not connected. Epoll drops a file that nobody has (`epoll(7)`, Q6),
/// and reports one that is not connected as hung up.
///
/// # Errors
/// As `epoll_ctl(2)`.
pub fn others_have(socket: OwnedFd) -> io::Result<bool> {
    let instance = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&instance, &socket, EventData::new_u64(0), EventFlags::empty())?;
    drop(socket);
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
    Ok(epoll::wait(&instance, &mut events, Some(&Timespec::default()))? > 0)
}

/// The numbers by which a program knows the socket with this inode.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn numbers(tid: i32, inode: u64) -> io::Result<Vec<i32>> {
    let is_it = format!("socket:[{inode}]");
    let mut numbers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{tid}/fd"))? {
        let entry = entry?;
        let same = fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == is_it.as_str());
        numbers.extend(entry.file_name().to_str().filter(|_| same).and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(numbers)
}

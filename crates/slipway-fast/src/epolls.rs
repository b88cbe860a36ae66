//! Programs that put a socket into an epoll instance first and connect it then (Go, nginx).
//!
//! An instance knows a file together with the number that it had when it was added (`epoll(7)`). When connecting puts another
//! file at that number, the entry goes with the old file, and has to be made again: by the same number, with the same events
//! and data. Which instances a program has is looked up once, until it makes another.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

use rustix::event::epoll::{self, EventData, EventFlags};
use slipway_sys::notify::Caller;
use slipway_sys::process::descriptors_of_its_own;

use crate::walk;

/// So many threads' instances are remembered; then all are looked up again.
const REMEMBERED: usize = 1024;

/// An entry of an epoll instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The instance, as the program numbers it.
    pub epoll: i32,
    /// What it waits for.
    pub events: u32,
    /// What it is given when that happens.
    pub data: u64,
}

/// Which descriptors of a program are epoll instances.
#[derive(Debug, Default)]
pub struct Epolls(HashMap<u64, Vec<i32>>);

impl Epolls {
    /// Whether a call makes an instance.
    #[must_use]
    pub fn changes(number: i64) -> bool {
        #[cfg(target_arch = "x86_64")]
        if number == libc::SYS_epoll_create {
            return true;
        }
        number == libc::SYS_epoll_create1
    }

    /// Looks them up again next time.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The entries for the file at this number, in all instances of the program.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn entries(&mut self, tid: i32, caller: &Caller, number: i32) -> io::Result<Vec<Entry>> {
        let known;
        let epolls = match caller.identity().map(|identity| (identity, self.0.get(&identity).cloned())) {
            Some((_, Some(epolls))) => epolls,
            Some((identity, None)) => {
                if self.0.len() >= REMEMBERED {
                    self.forget();
                }
                known = find(tid)?;
                self.0.insert(identity, known.clone());
                known
            }
            None => find(tid)?,
        };
        let mut entries = Vec::new();
        for epoll in epolls {
            // An instance that has been closed since has no entries.
            if caller.polls(epoll, number).unwrap_or(false) {
                let info = fs::read_to_string(format!("/proc/{tid}/fdinfo/{epoll}"))?;
                entries.extend(info.lines().filter_map(|line| entry(line, number, epoll)));
            }
        }
        Ok(entries)
    }
}

fn find(tid: i32) -> io::Result<Vec<i32>> {
    let all = walk::descriptors(tid)?.into_iter();
    Ok(all.filter(|(_, name)| name == "anon_inode:[eventpoll]").map(|(number, _)| number).collect())
}

/// A line of an instance's `/proc/PID/fdinfo` (`ep_show_fdinfo`, `fs/eventpoll.c`):
/// `tfd:        6 events:     2019 data:                5  pos:0 ino:b1 sdev:9`.
fn entry(line: &str, number: i32, epoll: i32) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| words.find(|word| *word == name).and_then(|_| words.next());
    let tfd: i32 = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    (tfd == number).then_some(Entry { epoll, events, data })
}

/// Adds entries to programs' epoll instances. An entry holds the number that the file has for whoever adds it, so this is
/// done by a thread with descriptors of its own, where any number is free.
#[derive(Debug)]
pub struct Registrar(SyncSender<(Task, SyncSender<io::Result<()>>)>);

#[derive(Debug)]
struct Task {
    tid: i32,
    number: i32,
    entries: Vec<Entry>,
}

impl Registrar {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start() -> io::Result<Self> {
        let (tasks, inbox) = sync_channel(1);
        thread::Builder::new().name("registrar".into()).spawn(move || register_all(&inbox))?;
        Ok(Self(tasks))
    }

    /// Adds what is at this number of the caller's to its own instances.
    ///
    /// # Errors
    /// When the caller is gone or has closed it, or its number is beyond the router's own limit.
    pub fn register(&self, tid: i32, number: i32, entries: Vec<Entry>) -> io::Result<()> {
        let (answer, answers) = sync_channel(1);
        let gone = || io::Error::other("the thread that registers has ended");
        self.0.send((Task { tid, number, entries }, answer)).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())?
    }
}

fn register_all(inbox: &Receiver<(Task, SyncSender<io::Result<()>>)>) {
    // What was inherited is closed, or connections would never end. The channel is memory, and needs none of it.
    let alone = descriptors_of_its_own();
    for (task, answer) in inbox {
        let done = match &alone {
            Ok(()) => register(&task),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        // Whoever asked may have been answered by its caller's death.
        let _ = answer.send(done);
    }
}

fn register(task: &Task) -> io::Result<()> {
    let caller = Caller::open(task.tid)?;
    for entry in &task.entries {
        let file = clear_of(caller.descriptor(task.number)?, task.number)?;
        let instance = clear_of(caller.descriptor(entry.epoll)?, task.number)?;
        // The lowest number that is free, from the program's on: that one, since all of this thread's are below or above.
        let placed = rustix::io::fcntl_dupfd_cloexec(&file, task.number)?;
        if placed.as_raw_fd() != task.number {
            return Err(io::Error::other("the descriptor's number is taken"));
        }
        let flags = EventFlags::from_bits_retain(entry.events);
        epoll::add(&instance, &placed, EventData::new_u64(entry.data), flags)?;
    }
    Ok(())
}

/// The same file at another number than this.
fn clear_of(file: OwnedFd, number: i32) -> io::Result<OwnedFd> {
    if file.as_raw_fd() == number { Ok(rustix::io::fcntl_dupfd_cloexec(&file, number + 1)?) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_is_read() {
        let line = "tfd:        6 events:     2019 data:         7f0000000005  pos:0 ino:b1 sdev:9";
        let entry = entry(line, 6, 3);
        assert_eq!(entry, Some(Entry { epoll: 3, events: 0x2019, data: 0x7f00_0000_0005 }));
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(entry("tfd:        7 events:     2019 data: 5", 6, 3), None);
        assert_eq!(entry("pos:\t0", 6, 3), None);
        assert_eq!(entry("tfd:", 6, 3), None);
    }
}

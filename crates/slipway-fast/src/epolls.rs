//! Support for programs that add a socket to an epoll instance before they connect it (Go, nginx).
//!
//! An instance identifies a file together with the descriptor at which it was added (`epoll(7)`). When a connect replaces
//! the file at that descriptor, the entry goes with the old file. The router makes it again, with the same descriptor,
//! events and data. It looks a program's instances up once, until the program makes another.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use slipway_sys::notify::Caller;
use slipway_sys::process::descriptors_of_its_own;

use crate::bounded::BoundedMap;
use crate::epoll_entry::EpollEntry;
use crate::walk;

/// Most programs whose instances the router remembers, and most threads that make one.
const REMEMBERED: usize = 1024;

/// The descriptors of programs that are epoll instances.
#[derive(Debug)]
pub(crate) struct Epolls {
    /// Instances by program ([`Caller::identity`]).
    known: BoundedMap<u64, Vec<i32>>,
    /// Threads that went on to make one, and may not have made it yet.
    makers: BTreeSet<i32>,
    /// There were too many threads to remember, and one may not have made its instance yet: nothing is remembered any more.
    too_many: bool,
}

impl Default for Epolls {
    fn default() -> Self {
        Self { known: BoundedMap::new(REMEMBERED), makers: BTreeSet::new(), too_many: false }
    }
}

impl Epolls {
    /// Whether a call makes an instance.
    #[must_use]
    pub(crate) fn changes(number: i64) -> bool {
        #[cfg(target_arch = "x86_64")]
        if number == libc::SYS_epoll_create {
            return true;
        }
        number == libc::SYS_epoll_create1
    }

    /// Looks the instances up again next time: this thread goes on to make one.
    pub(crate) fn forget(&mut self, maker: i32) {
        self.known.clear();
        if self.makers.len() >= REMEMBERED {
            self.makers.retain(|&maker| may_be_making(maker));
        }
        self.too_many |= self.makers.len() >= REMEMBERED;
        if !self.too_many {
            self.makers.insert(maker);
        }
    }

    /// The entries for the file at this number, in all instances of the program.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn entries(&mut self, tid: i32, caller: &Caller, number: i32) -> io::Result<Vec<EpollEntry>> {
        let epolls = match caller.identity().map(|identity| (identity, self.known.get(identity).cloned())) {
            Some((_, Some(epolls))) => epolls,
            Some((identity, None)) => {
                // Checked first: a thread that makes an instance from here on clears `known` again.
                let all_made = self.all_made(tid);
                let found = find(tid)?;
                if all_made {
                    self.known.insert(identity, found.clone());
                }
                found
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

    /// Whether all announced instances are made. A thread makes its instance when it next runs; the router serves other
    /// calls meanwhile.
    fn all_made(&mut self, caller: i32) -> bool {
        // A thread that makes another call is done with that one.
        self.makers.remove(&caller);
        while let Some(&maker) = self.makers.first() {
            if may_be_making(maker) {
                return false;
            }
            self.makers.remove(&maker);
        }
        !self.too_many
    }
}

/// Whether a thread may be in a call that makes an instance. The kernel does not name the call of a running or runnable
/// thread (`/proc/PID/syscall`, `proc_pid_syscall(5)`).
fn may_be_making(tid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{tid}/syscall")) {
        Ok(call) => call.split(' ').next().and_then(|number| number.parse().ok()).is_none_or(Epolls::changes),
        // The thread has ended.
        Err(error) => !matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)),
    }
}

fn find(tid: i32) -> io::Result<Vec<i32>> {
    let all = walk::descriptors(tid)?.into_iter();
    Ok(all.filter(|(_, name)| name == "anon_inode:[eventpoll]").map(|(number, _)| number).collect())
}

/// A line of an instance's `/proc/PID/fdinfo` (`ep_show_fdinfo`, `fs/eventpoll.c`):
/// `tfd:        6 events:     2019 data:                5  pos:0 ino:b1 sdev:9`.
fn entry(line: &str, number: i32, epoll: i32) -> Option<EpollEntry> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| words.find(|word| *word == name).and_then(|_| words.next());
    let tfd: i32 = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    (tfd == number).then_some(EpollEntry { epoll, events, data })
}

/// Adds entries to programs' epoll instances. An entry holds the file's descriptor in the process that adds it. So a thread
/// with descriptors of its own does this, where any number is free.
#[derive(Debug)]
pub(crate) struct Registrar(SyncSender<(Task, SyncSender<io::Result<()>>)>);

#[derive(Debug)]
struct Task {
    tid: i32,
    number: i32,
    entries: Vec<EpollEntry>,
}

impl Registrar {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the kernel has no thread left.
    pub(crate) fn start() -> io::Result<Self> {
        let (tasks, inbox) = sync_channel(1);
        thread::Builder::new().name("registrar".into()).spawn(move || register_all(&inbox))?;
        Ok(Self(tasks))
    }

    /// Adds the file at this descriptor of the caller's to its own instances.
    ///
    /// # Errors
    /// When the caller is gone or has closed the file, or the descriptor is beyond the router's own limit.
    pub(crate) fn register(&self, tid: i32, number: i32, entries: Vec<EpollEntry>) -> io::Result<()> {
        let (answer, answers) = sync_channel(1);
        let gone = || io::Error::other("the thread that registers has ended");
        self.0.send((Task { tid, number, entries }, answer)).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())?
    }
}

fn register_all(inbox: &Receiver<(Task, SyncSender<io::Result<()>>)>) {
    // The thread closes inherited descriptors, or connections would never end. The channel is memory, and needs none of
    // them.
    let alone = descriptors_of_its_own();
    for (task, answer) in inbox {
        let done = match &alone {
            Ok(()) => register(&task),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        // The caller's death may have ended the call already.
        let _ = answer.send(done);
    }
}

fn register(task: &Task) -> io::Result<()> {
    let caller = Caller::open(task.tid)?;
    for entry in &task.entries {
        let file = clear_of(caller.descriptor(task.number)?, task.number)?;
        let instance = clear_of(caller.descriptor(entry.epoll)?, task.number)?;
        // The lowest free number from the program's on. That number is free, since this thread's own are below or above.
        let placed = rustix::io::fcntl_dupfd_cloexec(&file, task.number)?;
        if placed.as_raw_fd() != task.number {
            return Err(io::Error::other("the descriptor's number is taken"));
        }
        let flags = EventFlags::from_bits_retain(entry.events);
        match epoll::add(&instance, &placed, EventData::new_u64(entry.data), flags) {
            // A router that ended had added it.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The same file at another descriptor than this.
fn clear_of(file: OwnedFd, number: i32) -> io::Result<OwnedFd> {
    if file.as_raw_fd() == number { Ok(rustix::io::fcntl_dupfd_cloexec(&file, number + 1)?) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use slipway_sys::seccomp::Filter;

    use super::*;
    use crate::filter::{Leave, traps};

    /// Other threads connect between the answer to a thread and its new instance.
    #[test]
    fn one_that_is_made_after_others_were_looked_up_is_found() {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        let number = socket.as_raw_fd();
        let (say, said) = sync_channel(0);
        let making = thread::spawn(move || {
            say.send(Filter::trap(&traps(Leave::default())).attach_and_listen().expect("root may attach"))
                .expect("somebody hears");
            let made = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an instance");
            epoll::add(&made, &socket, EventData::new_u64(7), EventFlags::IN).expect("added");
            (made, socket)
        });
        let listener = said.recv().expect("there is a listener");
        let call = listener.receive().expect("heard").expect("it makes one");
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let caller = Caller::open(tid).expect("it is this thread");
        let mut epolls = Epolls::default();
        epolls.forget(call.tid);
        assert_eq!(epolls.entries(tid, &caller, number).expect("looked up"), []);
        listener.go_on(call.id).expect("it waits");
        let (made, _socket) = making.join().expect("it ran");
        let mut look = || {
            let found = epolls.entries(tid, &caller, number).expect("looked up");
            assert!(matches!(found[..], [EpollEntry { epoll, data: 7, .. }] if epoll == made.as_raw_fd()), "{found:?}");
            caller.identity().is_none() || !epolls.known.is_empty()
        };
        // The thread that made it may still be ending.
        while !look() {
            thread::yield_now();
        }
        assert!(look(), "they are remembered");
    }

    #[test]
    fn a_line_of_the_kernels_is_read() {
        let line = "tfd:        6 events:     2019 data:         7f0000000005  pos:0 ino:b1 sdev:9";
        let entry = entry(line, 6, 3);
        assert_eq!(entry, Some(EpollEntry { epoll: 3, events: 0x2019, data: 0x7f00_0000_0005 }));
    }

    #[test]
    fn other_lines_are_none() {
        assert_eq!(entry("tfd:        7 events:     2019 data: 5", 6, 3), None);
        assert_eq!(entry("pos:\t0", 6, 3), None);
        assert_eq!(entry("tfd:", 6, 3), None);
    }
}

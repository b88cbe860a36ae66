//! The relay: connections of queue pairs under a rate, whose two ends share no memory.
//!
//! A node is hostile, so a rate that its own plug-in or its peer's keeps is none. Each end of a relayed connection shares its
//! memory with the broker alone. A thread moves records from one memory to the other, no faster than the rate
//! (`docs/adr/0065-rates-of-verbs.md`). It sleeps while nothing moves.

mod lane;
mod side;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::layout::{BELL, BLOCK, CLOSED, EPOCH, FAILED, NOT_READY, WANTS_HEAD};
use crate::untrusted::{self, Received};
use lane::{Lane, Lie, Pace};
pub(super) use side::Side;

/// The source of an event that is no connection's.
const COMMANDS: u64 = u64::MAX;
/// How often the relay looks at a consumer that has not consumed: it may say without a wake-up that it is not ready.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time for records that a program has left behind when it ended.
const DRAIN: Duration = Duration::from_secs(2);

/// The limit of a relayed connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limit {
    /// Bits a second, each way.
    pub(super) rate: Option<u64>,
    /// The relay serves connections of a greater number first.
    pub(super) priority: u8,
}

enum Command {
    Add { id: u64, sides: Box<[Side; 2]>, limit: Limit, life: Arc<()> },
    Limit { id: u64, limit: Limit },
    Hold { id: u64, is_held: bool },
    Remove { id: u64, is_revoked: bool },
}

/// The broker's hold on its relay. The thread ends with it.
pub(super) struct Relay {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    next: u64,
    /// The thread drops its part of a connection's life when the connection ends.
    lives: BTreeMap<u64, Weak<()>>,
}

impl Relay {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, Errno> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        let (commands, queue) = channel();
        let (links, awake, timed) = Default::default();
        let worker = Worker { epoll, wake: Arc::clone(&wake), queue, links, awake, timed };
        let thread = std::thread::Builder::new().name("verbs-relay".into()).spawn(move || worker.run());
        thread.map_err(|_| Errno::AGAIN)?;
        Ok(Self { commands, wake, next: 0, lives: BTreeMap::new() })
    }

    /// Relays between two ends; gives the connection's number.
    pub(super) fn add(&mut self, sides: [Side; 2], limit: Limit) -> u64 {
        let id = self.next;
        self.next += 1;
        let life = Arc::new(());
        self.lives.insert(id, Arc::downgrade(&life));
        self.give(Command::Add { id, sides: Box::new(sides), limit, life });
        id
    }

    /// Whether a connection has not ended.
    pub(super) fn is_alive(&self, id: u64) -> bool {
        self.lives.get(&id).is_some_and(|life| life.strong_count() > 0)
    }

    /// Sets another limit while data flows.
    pub(super) fn limit(&self, id: u64, limit: Limit) {
        self.give(Command::Limit { id, limit });
    }

    /// Stops a connection while its ends stay, or lets it go on.
    pub(super) fn hold(&self, id: u64, is_held: bool) {
        self.give(Command::Hold { id, is_held });
    }

    /// Ends a connection: at once where it was revoked, otherwise after the records that its ends have left.
    pub(super) fn remove(&mut self, id: u64, is_revoked: bool) {
        self.lives.remove(&id);
        self.give(Command::Remove { id, is_revoked });
    }

    fn give(&self, command: Command) {
        // The thread ends only with this value, or by a panic: connections are cut then, and programs hear of it.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let (none, _) = channel();
        self.commands = none;
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

struct Relayed {
    life: Arc<()>,
    sides: [Side; 2],
    lanes: [Lane; 4],
    paces: [Pace; 2],
    priority: u8,
    is_asleep: bool,
    /// Nothing moves.
    is_held: bool,
    /// Time at which the connection ends, drained or not.
    ends: Option<Instant>,
}

/// A connection after a turn.
enum Rest {
    /// Records moved.
    Moved,
    /// Nothing to do before this time, or a wake-up.
    Waits(Option<Instant>),
    /// It has ended.
    Over,
}

impl Relayed {
    fn new(sides: [Side; 2], limit: Limit, life: Arc<()>) -> Self {
        let rate = |side: usize| limit.rate.filter(|_| matches!(sides[side], Side::Near { .. }));
        let paces = [0, 1].map(|side| Pace::new(rate(side), Instant::now()));
        let this = Self {
            life,
            sides,
            lanes: Lane::all(),
            paces,
            priority: limit.priority,
            is_asleep: false,
            is_held: false,
            ends: None,
        };
        // Each consumer tells when it has consumed: producers at the other end complete by that.
        for (side, block) in [(0, BLOCK), (1, 0)] {
            this.sides[side].memory().word32(block + WANTS_HEAD).store(1, Ordering::Release);
        }
        this
    }

    /// Has both ends ring, or not. The caller looks once more after it has asked.
    fn sleep(&mut self, is_asleep: bool) {
        self.is_asleep = is_asleep;
        for (side, block) in [(0, BLOCK), (1, 0)] {
            self.sides[side].memory().word32(block + BELL).store(is_asleep.into(), Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// Sets another limit. The broker of another host paces what comes from there.
    fn limit(&mut self, limit: Limit) {
        for (pace, side) in self.paces.iter_mut().zip(&self.sides) {
            pace.set(limit.rate.filter(|_| matches!(side, Side::Near { .. })));
        }
        self.priority = limit.priority;
    }

    /// Wakes the program at a side, where it sleeps.
    fn ring(&self, side: usize) {
        let Side::Near { memory, bell: socket } = &self.sides[side] else { return };
        fence(Ordering::SeqCst);
        let bell = memory.word32(side * BLOCK + BELL);
        if bell.load(Ordering::Relaxed) != 0 && bell.swap(0, Ordering::AcqRel) != 0 {
            let _ = rustix::net::send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Empties the bell of a side, or its stream. False where its program has closed it.
    fn silence(&mut self, side: usize) -> bool {
        let mut byte = [0; 8];
        let bell = match &mut self.sides[side] {
            Side::Near { bell, .. } => bell,
            Side::Far(outlet) => return outlet.pull(),
        };
        for _ in 0..16 {
            match untrusted::receive(bell.as_fd(), &mut byte, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return true,
                Ok(Received { bytes: 1.., .. }) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    fn turn(&mut self) -> Result<Rest, Lie> {
        const WORDS: [usize; 4] = [FAILED, NOT_READY, EPOCH, CLOSED];
        if self.is_held && self.ends.is_none_or(|ends| Instant::now() < ends) {
            return Ok(Rest::Waits(self.ends));
        }
        let memories = [self.sides[0].memory(), self.sides[1].memory()];
        // Read before the counters: all that an end consumed before it failed is then seen first.
        let words =
            [0, 1].map(|side| WORDS.map(|word| memories[side].word32(side * BLOCK + word).load(Ordering::Acquire)));
        let mut rung = [false; 2];
        let (mut moved, mut due) = (false, None);
        for lane in &mut self.lanes {
            let turn = lane.turn(memories, &mut self.paces[lane.from])?;
            rung[1 - lane.from] |= turn.moved;
            rung[lane.from] |= turn.consumed;
            moved |= turn.moved || turn.consumed;
            due = [due, turn.due].into_iter().flatten().min();
        }
        let mut drained = [true; 2];
        for lane in &self.lanes {
            drained[lane.from] &= lane.is_drained(memories);
        }
        for (side, values) in words.into_iter().enumerate() {
            for (word, value) in WORDS.into_iter().zip(values) {
                let there = memories[1 - side].word32(side * BLOCK + word);
                // An end is closed for its peer once all that it has sent is there.
                if (word != CLOSED || drained[side]) && there.load(Ordering::Relaxed) != value {
                    there.store(value, Ordering::Release);
                    rung[1 - side] = true;
                }
            }
        }
        for side in [0, 1] {
            if rung[side] {
                self.ring(side);
            }
        }
        if let Side::Far(outlet) = &mut self.sides[0]
            && !outlet.push()
        {
            self.ends.get_or_insert_with(|| Instant::now() + DRAIN);
        }
        let is_over = drained == [true; 2] && self.sides[0].is_flushed();
        if let Some(ends) = self.ends
            && (is_over || Instant::now() >= ends)
        {
            return Ok(Rest::Over);
        }
        if moved {
            return Ok(Rest::Moved);
        }
        let is_outstanding = self.lanes.iter().any(Lane::is_outstanding);
        let look = (is_outstanding || self.ends.is_some()).then(|| Instant::now() + LOOK);
        Ok(Rest::Waits([due, look].into_iter().flatten().min()))
    }
}

struct Worker {
    epoll: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    queue: Receiver<Command>,
    links: BTreeMap<u64, Relayed>,
    awake: BTreeSet<u64>,
    timed: BTreeSet<(Instant, u64)>,
}

impl Worker {
    fn run(mut self) {
        // Wake-ups in time keep a rate even: the kernel may else be 50 microseconds late (`PR_SET_TIMERSLACK`, prctl(2)).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        while self.obey() {
            let now = Instant::now();
            while let Some(&(due, id)) = self.timed.first().filter(|(due, _)| *due <= now) {
                self.timed.remove(&(due, id));
                self.awake.insert(id);
            }
            let links = &self.links;
            self.awake.retain(|id| links.contains_key(id));
            let mut due: Vec<(u8, u64)> =
                self.awake.iter().filter_map(|id| Some((7 - links.get(id)?.priority.min(7), *id))).collect();
            due.sort_unstable();
            for (_, id) in due {
                self.turn(id);
            }
            if self.wait().is_err() {
                return;
            }
        }
    }

    fn turn(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        match link.turn() {
            Ok(Rest::Moved) => {
                if link.is_asleep {
                    link.sleep(false);
                }
            }
            // Once more, with the bells on: an end may have produced before it could see them.
            Ok(Rest::Waits(_)) if !link.is_asleep => link.sleep(true),
            Ok(Rest::Waits(due)) => {
                self.awake.remove(&id);
                self.timed.extend(due.map(|due| (due, id)));
            }
            Ok(Rest::Over) | Err(Lie) => self.end(id),
        }
    }

    /// Ends a connection: both programs see their bells closed.
    fn end(&mut self, id: u64) {
        self.awake.remove(&id);
        if let Some(Relayed { life, sides, .. }) = self.links.remove(&id) {
            // A program that sees the end may ask for another connection at once.
            drop(life);
            for side in &sides {
                side.end(&self.epoll);
            }
        }
    }

    /// Takes commands. False where the broker has ended.
    fn obey(&mut self) -> bool {
        loop {
            match self.queue.try_recv() {
                Ok(Command::Add { id, sides, limit, life }) => {
                    let mut link = Relayed::new(*sides, limit, life);
                    let mut add = |side: usize| link.sides[side].wait_in(&self.epoll, id << 1 | side as u64);
                    // Without descriptors to wait for, both ends see the connection cut.
                    if add(0).and_then(|()| add(1)).is_ok() {
                        self.links.insert(id, link);
                        self.awake.insert(id);
                    }
                }
                Ok(Command::Limit { id, limit }) => {
                    if let Some(link) = self.links.get_mut(&id) {
                        link.limit(limit);
                        self.awake.insert(id);
                    }
                }
                Ok(Command::Hold { id, is_held }) => {
                    if let Some(link) = self.links.get_mut(&id) {
                        link.is_held = is_held;
                        self.awake.insert(id);
                    }
                }
                Ok(Command::Remove { id, is_revoked: true }) => self.end(id),
                Ok(Command::Remove { id, is_revoked: false }) => self.drain(id),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn drain(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.ends.get_or_insert_with(|| Instant::now() + DRAIN);
            self.awake.insert(id);
        }
    }

    fn wait(&mut self) -> Result<(), Errno> {
        let timeout = if self.awake.is_empty() {
            self.timed.first().map(|(due, _)| due.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        let timeout =
            timeout.map(|it| Timespec { tv_sec: it.as_secs().cast_signed(), tv_nsec: it.subsec_nanos().into() });
        let mut events = [MaybeUninit::uninit(); 64];
        let happened: Vec<u64> = match epoll::wait(&self.epoll, events.as_mut_slice(), timeout.as_ref()) {
            Ok((happened, _)) => happened.iter().map(|event| event.data.u64()).collect(),
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in happened {
            if event == COMMANDS {
                let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                continue;
            }
            let (id, side) = (event >> 1, usize::from(event & 1 == 1));
            let Some(link) = self.links.get_mut(&id) else { continue };
            let lives = link.silence(side);
            link.sleep(false);
            self.awake.insert(id);
            if !lives {
                link.sides[side].wait_no_more(&self.epoll);
                self.drain(id);
            }
        }
        Ok(())
    }
}

//! Connection management of RDMA (`rdma_cm(7)`) between nodes: the kernel's part, for librdmacm.
//!
//! A program gets one end of a socket pair in the place of `/dev/infiniband/rdma_cm`. It writes commands there, which trap. The
//! end is readable while events wait, as the kernel's is. The router holds the other end, and notices when the last copy of the
//! program's is closed. Queue pairs themselves are joined by the plug-in and its broker.

mod channel;
mod commands;
mod commit;
mod connections;
mod done;
mod far;
mod held;
mod identifier;
mod outside;
mod resume;
mod saved;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slipway_lab::id::{HostId, NodeId};

use crate::address_map::AddressMap;
use crate::admission::Rules;
use crate::rdma_wire::{Event, Kind, Offer};
use crate::records::{Found, Records};
use crate::sync::{STACK_BYTES, bell, lock, ring};
pub(crate) use channel::Waiting;
use channel::{Channel, Queued, Taken};
use commit::{Due, Locked};
pub(crate) use connections::Wish;
use connections::{Asked, Connections};
pub(crate) use done::Made;
use far::{Link, is_link};
use held::Held;
pub use outside::Outside;
use resume::{Given, Left};

/// Most channels of a node, each with a descriptor of the router's.
const MOST_CHANNELS: usize = 1024;

/// The connection manager of a host.
#[derive(Debug)]
pub(crate) struct Rdma {
    state: Mutex<State>,
    /// The way to peers outside of the lab.
    outside: Option<Arc<Outside>>,
    /// Hears of programs' ends that are closed; there from the first channel on.
    ends: OnceLock<Ends>,
}

/// The events that the thread of the manager waits for.
#[derive(Debug)]
struct Ends {
    epoll: OwnedFd,
    /// Counts requests that are held: the thread waits no longer than for the oldest.
    held: OwnedFd,
}

/// The number of [`Ends::held`] among events: that of no inode.
const HELD: u64 = 0;

/// The fate of a client's request.
pub(crate) enum Fate {
    Told,
    /// At once: the program may ask once more.
    Refused,
    Waits,
    Far(Wish),
}

/// The channels, and the identifiers of connections.
#[derive(Debug)]
struct State {
    channels: HashMap<u64, Channel>,
    connections: Connections,
    held: Held,
    /// Streams to other routers, by number.
    links: HashMap<u64, Link>,
    /// The records of the router before.
    left: Left,
    /// Events that it was giving to calls.
    given: Vec<Given>,
    due: Due,
    records: Arc<Records>,
    /// The channel that has a thread's last command.
    last: HashMap<i32, u64>,
    /// Nodes whose power is gone: no peer hears of their programs' ends.
    silent: HashSet<NodeId>,
}

/// Where a caller stands: its node, its end of a channel, and its command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    pub(crate) node: NodeId,
    pub(crate) channel: u64,
    pub(crate) end: &'a OwnedFd,
    pub(crate) made: Made,
}

impl Rdma {
    pub(crate) fn new(
        host: HostId,
        address_map: Arc<AddressMap>,
        rules: Arc<Rules>,
        outside: Option<Outside>,
        (records, found): (Arc<Records>, Found),
    ) -> Arc<Self> {
        let outside = outside.map(Arc::new);
        let connections = Connections::new(host, address_map, rules, outside.clone(), Arc::clone(&records));
        let state = Mutex::new(State {
            channels: HashMap::new(),
            connections,
            held: Held::new(Arc::clone(&records)),
            links: HashMap::new(),
            left: found.into(),
            given: Vec::new(),
            due: Due::default(),
            records,
            last: HashMap::new(),
            silent: HashSet::new(),
        });
        Arc::new(Self { state, outside, ends: OnceLock::new() })
    }

    /// The state, while nobody else changes it.
    fn state(&self) -> Locked<'_> {
        Locked(lock(&self.state))
    }

    /// Makes a channel for a node's program. Gives the program's end.
    pub(crate) fn open(self: &Arc<Self>, node: NodeId) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let (end, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let inode = inode(&theirs)?;
        let mut state = self.state();
        if state.channels.values().filter(|channel| channel.node == node).count() >= MOST_CHANNELS {
            return Err(Errno::MFILE.into());
        }
        let ends = self.ends()?;
        epoll::add(&ends.epoll, &end, epoll::EventData::new_u64(inode), epoll::EventFlags::RDHUP)?;
        let record = state.records.add_with(node, end.as_fd());
        state.channels.insert(inode, Channel::new(inode, node, end, record));
        Ok(theirs)
    }

    /// Whether a file is a channel's end of this node's.
    pub(crate) fn is_channel(&self, node: NodeId, inode: u64) -> bool {
        self.state().channels.get(&inode).is_some_and(|channel| channel.node == node)
    }

    fn ends(self: &Arc<Self>) -> io::Result<&Ends> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let held = bell()?;
        epoll::add(&epoll, &held, epoll::EventData::new_u64(HELD), epoll::EventFlags::IN)?;
        let ends = self.ends.get_or_init(|| Ends { epoll, held });
        let own = Arc::clone(self);
        let watching = thread::Builder::new().name("rdma".into()).stack_size(STACK_BYTES);
        watching.spawn(move || own.watch())?;
        Ok(ends)
    }

    fn watch(&self) {
        let Some(ends) = self.ends.get() else { return };
        let mut patience = None;
        loop {
            let timeout = patience.and_then(|it: Duration| Timespec::try_from(it).ok());
            let mut events = [MaybeUninit::uninit(); 32];
            let happened: Vec<u64> = match epoll::wait(&ends.epoll, events.as_mut_slice(), timeout.as_ref()) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            for number in happened {
                if number == HELD {
                    let _ = rustix::io::read(&ends.held, &mut [0_u8; 8]);
                } else if is_link(number) {
                    self.state().hear(number);
                } else {
                    self.state().close(number);
                }
            }
            let mut state = self.state();
            state.expire();
            patience = state.held.patience();
        }
    }

    /// Carries a command out that is answered at once.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Commands<'_>) -> T) -> T {
        let mut state = self.state();
        let before = state.held.patience();
        let done = act(&mut Commands(&mut state));
        if before.is_none() && state.held.patience().is_some() {
            self.hasten();
        }
        done
    }

    /// Has the thread look when it has to wake for requests that are held.
    fn hasten(&self) {
        if let Some(ends) = self.ends.get() {
            ring(&ends.held);
        }
    }

    /// From now on no peer hears how programs of this node end.
    pub(crate) fn silence(&self, node: NodeId) {
        self.state().silent.insert(node);
    }

    /// The node starts anew: connections with the programs that it had end.
    pub(crate) fn wake(&self, node: NodeId) {
        let mut state = self.state();
        if state.silent.remove(&node) {
            let State { links, connections, .. } = &mut *state;
            links.retain(|_, link| link.is_kept(node, connections));
        }
    }

    /// Ends connections that are no longer allowed.
    pub(crate) fn recheck(&self) {
        let mut state = self.state();
        for id in state.connections.forbidden() {
            state.disconnect(id);
        }
    }

    /// Gives events that were held back, now that answers are not held.
    pub(crate) fn give(&self) {
        let mut state = self.state();
        let State { channels, due, .. } = &mut *state;
        due.channels.extend(channels.iter().filter(|(_, one)| !one.waiting.is_empty()).map(|(&inode, _)| inode));
    }

    /// Takes the next event for a call, now or when it comes.
    pub(crate) fn get_event(&self, at: Standing<'_>, waiting: Waiting, may_wait: bool) -> Result<(), Errno> {
        let mut state = self.state();
        state.begin(at);
        let State { channels, connections, .. } = &mut *state;
        let channel = channels.get_mut(&at.channel).ok_or(Errno::BADF)?;
        let Some(queued) = channel.events.front() else {
            channel.unmark(at.end);
            return if may_wait {
                channel.wait(waiting);
                Ok(())
            } else {
                Err(Errno::AGAIN)
            };
        };
        match waiting.take(queued) {
            Taken::Yes => {
                connections.reported(queued.counted);
                channel.events.pop_front();
            }
            Taken::No => {}
            // The program hears that once answers are not held.
            Taken::Later if !may_wait => return Err(Errno::AGAIN),
            Taken::Later => channel.wait(waiting),
        }
        if channel.events.is_empty() {
            channel.unmark(at.end);
        }
        Ok(())
    }
}

/// Commands of programs, while nobody else changes the state.
pub(crate) struct Commands<'a>(&'a mut State);

/// The inode number of a file.
pub(crate) fn inode(file: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_ino)
}

impl State {
    /// Gives a channel an event: to a call that waits, or to the next that asks.
    fn tell(&mut self, channel: u64, counted: u32, event: Event) {
        let Some(place) = self.channels.get_mut(&channel) else { return };
        let (number, record) = (self.records.number(), self.records.add(place.node));
        let queued = Queued { number, channel, counted, event, record };
        queued.save(None);
        place.queue(queued);
        self.due.channels.push(channel);
    }

    /// A thread makes another command than its last.
    fn begin(&mut self, at: Standing<'_>) {
        if let Some(inode) = self.last.remove(&at.made.tid)
            && let Some(channel) = self.channels.get_mut(&inode)
        {
            channel.forget(inode, at.made);
        }
    }

    /// A command was carried out.
    fn did(&mut self, at: Standing<'_>, answer: u32) {
        if let Some(channel) = self.channels.get_mut(&at.channel) {
            let forgotten = channel.did(at.channel, at.made, answer);
            self.last.insert(at.made.tid, at.channel);
            if let Some(tid) = forgotten {
                self.last.remove(&tid);
            }
        }
    }

    /// Tells of an identifier's own news.
    fn tell_of(&mut self, id: u32, kind: Kind, status: i32) {
        if let Some((channel, event)) = self.connections.event(id, kind, status) {
            self.tell(channel, id, event);
        }
    }

    /// Forgets events that an identifier would count, and gives those.
    fn forget_events(&mut self, channel: u64, id: u32) -> Vec<Queued> {
        let Some(channel) = self.channels.get_mut(&channel) else { return Vec::new() };
        let (gone, left): (VecDeque<_>, _) =
            std::mem::take(&mut channel.events).into_iter().partition(|queued| queued.counted == id);
        channel.events = left;
        Vec::from(gone)
    }

    /// Ends an identifier. Gives how many events it has reported.
    fn destroy(&mut self, id: u32) -> Option<u32> {
        let channel = self.connections.channel(id)?;
        // Requests that a listener's program has not taken.
        let requests = self.forget_events(channel, id);
        self.part(id);
        for request in requests.iter().filter(|queued| queued.event.kind == Kind::ConnectRequest) {
            self.part(request.event.id);
            self.connections.remove(request.event.id);
        }
        self.connections.remove(id)
    }

    /// Tells the peer of an identifier that this side leaves.
    fn part(&mut self, id: u32) {
        if let Some((peer, kind, status)) = self.connections.leave(id) {
            self.tell_peer(peer, kind, status, Offer::default());
        }
    }

    /// Asks a listener.
    fn ask(&mut self, id: u32, offer: &Offer) -> Result<Fate, Errno> {
        match self.connections.connect(id, offer)? {
            Asked::Near(channel, listener, event) => self.tell(channel, listener, event),
            Asked::Refused(kind, status) => {
                self.tell_of(id, kind, status);
                return Ok(Fate::Refused);
            }
            Asked::Far(wish) => return Ok(Fate::Far(wish)),
            Asked::Later => return Ok(Fate::Waits),
        }
        Ok(Fate::Told)
    }

    /// Makes the requests that are held once more.
    fn listener_is_there(&mut self) {
        for request in self.held.take() {
            // A client that has gone meanwhile asks no more.
            if self.connections.ask_again(request.id) && matches!(self.ask(request.id, &request.offer), Ok(Fate::Waits))
            {
                self.held.keep(request);
            }
        }
    }

    /// Refuses a request that was held.
    fn give_up(&mut self, id: u32) {
        if let Some((id, kind, status)) = self.connections.give_up(id) {
            self.tell_of(id, kind, status);
        }
    }

    /// Refuses requests whose time is over.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(id) = self.held.expired(now) {
            self.give_up(id);
        }
    }

    fn disconnect(&mut self, id: u32) {
        if let Some((peer, kind, status)) = self.connections.leave(id) {
            self.tell_peer(peer, kind, status, Offer::default());
            self.tell_of(id, Kind::Disconnected, 0);
        }
    }

    /// A program has closed its end.
    fn close(&mut self, inode: u64) {
        let is_silent = self.channels.get(&inode).is_some_and(|channel| self.silent.contains(&channel.node));
        for id in self.connections.of_channel(inode) {
            // The links of a silent node stay, so that other routers hear nothing.
            let _ = if is_silent { self.connections.remove(id) } else { self.destroy(id) };
        }
        self.given.retain(|given| !given.is_of(inode));
        self.last.retain(|_, channel| *channel != inode);
        self.due.closed.extend(self.channels.remove(&inode));
    }
}

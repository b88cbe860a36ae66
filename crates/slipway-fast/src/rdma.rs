//! Connection management of RDMA (`rdma_cm(7)`) between nodes: the kernel's part, for librdmacm.
//!
//! A program gets one end of a socket pair in the place of `/dev/infiniband/rdma_cm`. It writes commands there, which trap. The
//! end is readable while events wait, as the kernel's is. The router holds the other end, and notices when the last copy of the
//! program's is closed. Queue pairs themselves are joined by the plug-in and its broker.

mod commands;
mod connections;
mod far;
mod held;
mod outside;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use slipway_lab::id::{HostId, NodeId};
use slipway_sys::notify::{Call, Memory};

use crate::address_map::AddressMap;
use crate::admission::Rules;
use crate::rdma_wire::{Event, Kind, Offer};
use crate::sync::{STACK_BYTES, lock};
use crate::tree::Tree;
pub(crate) use connections::Wish;
use connections::{Asked, Connections};
use far::{Link, is_link};
use held::Held;
pub use outside::Outside;

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
enum Fate {
    Told,
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
    next_link: u64,
    /// Nodes whose power is gone: no peer hears of their programs' ends.
    silent: HashSet<NodeId>,
}

/// An event that waits in a channel.
#[derive(Debug)]
struct Queued {
    /// The identifier that counts it among its events.
    counted: u32,
    event: Event,
}

/// A channel of events, known by the inode of its program's end.
#[derive(Debug)]
struct Channel {
    node: NodeId,
    /// The router's end.
    end: OwnedFd,
    events: VecDeque<Queued>,
    /// Whether the program's end is readable. Events may have been forgotten since.
    is_marked: bool,
    waiting: Vec<Waiting>,
}

/// A call that waits for an event.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) tree: Arc<Tree>,
    pub(crate) call: Call,
    pub(crate) memory: Memory,
    pub(crate) answer_at: u64,
    /// Bytes that the program has for it.
    pub(crate) room: usize,
}

impl Waiting {
    /// Gives it an event. False where the call is gone.
    fn take(&self, event: &Event) -> bool {
        let bytes = event.write();
        let bytes = &bytes[..bytes.len().min(self.room)];
        if !self.tree.listener.is_waiting(self.call.id) {
            return false;
        }
        let written = self.memory.write(self.answer_at, bytes).map_err(|_| Errno::FAULT);
        let length = i64::try_from(self.call.args[2]).map_err(|_| Errno::INVAL);
        self.tree.listener.answer(self.call.id, written.and(length)).is_ok()
    }
}

/// Where a caller stands: its node, and its end of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    pub(crate) node: NodeId,
    pub(crate) channel: u64,
    pub(crate) end: &'a OwnedFd,
}

impl Rdma {
    pub(crate) fn new(
        host: HostId,
        address_map: Arc<AddressMap>,
        rules: Arc<Rules>,
        outside: Option<Outside>,
    ) -> Arc<Self> {
        let outside = outside.map(Arc::new);
        let connections = Connections::new(host, address_map, rules, outside.clone());
        let state = Mutex::new(State {
            channels: HashMap::new(),
            connections,
            held: Held::default(),
            links: HashMap::new(),
            next_link: 0,
            silent: HashSet::new(),
        });
        Arc::new(Self { state, outside, ends: OnceLock::new() })
    }

    /// Makes a channel for a node's program. Gives the program's end.
    pub(crate) fn open(self: &Arc<Self>, node: NodeId) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let (end, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let inode = inode(&theirs)?;
        let mut state = lock(&self.state);
        if state.channels.values().filter(|channel| channel.node == node).count() >= MOST_CHANNELS {
            return Err(Errno::MFILE.into());
        }
        let ends = self.ends()?;
        epoll::add(&ends.epoll, &end, epoll::EventData::new_u64(inode), epoll::EventFlags::RDHUP)?;
        let channel = Channel { node, end, events: VecDeque::new(), is_marked: false, waiting: Vec::new() };
        state.channels.insert(inode, channel);
        Ok(theirs)
    }

    /// Whether a file is a channel's end of this node's.
    pub(crate) fn is_channel(&self, node: NodeId, inode: u64) -> bool {
        lock(&self.state).channels.get(&inode).is_some_and(|channel| channel.node == node)
    }

    fn ends(self: &Arc<Self>) -> io::Result<&Ends> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let held = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
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
            let mut state = lock(&self.state);
            for number in happened {
                if number == HELD {
                    let _ = rustix::io::read(&ends.held, &mut [0_u8; 8]);
                } else if is_link(number) {
                    state.hear(number);
                } else {
                    state.close(number);
                }
            }
            state.expire();
            patience = state.held.patience();
        }
    }

    /// Carries a command out that is answered at once.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Commands<'_>) -> T) -> T {
        let mut state = lock(&self.state);
        let before = state.held.patience();
        let done = act(&mut Commands(&mut state));
        if let (None, Some(_), Some(ends)) = (before, state.held.patience(), self.ends.get()) {
            let _ = rustix::io::write(&ends.held, &1_u64.to_ne_bytes());
        }
        done
    }

    /// From now on no peer hears how programs of this node end.
    pub(crate) fn silence(&self, node: NodeId) {
        lock(&self.state).silent.insert(node);
    }

    /// The node starts anew: connections with the programs that it had end.
    pub(crate) fn wake(&self, node: NodeId) {
        let mut state = lock(&self.state);
        if state.silent.remove(&node) {
            let State { links, connections, .. } = &mut *state;
            links.retain(|_, link| link.is_kept(connections));
        }
    }

    /// Ends connections that are no longer allowed.
    pub(crate) fn recheck(&self) {
        let mut state = lock(&self.state);
        for id in state.connections.forbidden() {
            state.disconnect(id);
        }
    }

    /// Takes the next event for a call, now or when it comes.
    pub(crate) fn get_event(&self, at: Standing<'_>, waiting: Waiting, may_wait: bool) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let State { channels, connections, .. } = &mut *state;
        let channel = channels.get_mut(&at.channel).ok_or(Errno::BADF)?;
        let Some(queued) = channel.events.pop_front() else {
            channel.unmark(at.end);
            channel.waiting.retain(|waiting| waiting.tree.listener.is_waiting(waiting.call.id));
            return if may_wait {
                channel.waiting.push(waiting);
                Ok(())
            } else {
                Err(Errno::AGAIN)
            };
        };
        if waiting.take(&queued.event) {
            connections.reported(queued.counted);
        } else {
            channel.events.push_front(queued);
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
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        while !channel.waiting.is_empty() {
            if channel.waiting.remove(0).take(&event) {
                self.connections.reported(counted);
                return;
            }
        }
        if !std::mem::replace(&mut channel.is_marked, true) {
            let _ = send(&channel.end, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        channel.events.push_back(Queued { counted, event });
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
            Asked::Refused(kind, status) => self.tell_of(id, kind, status),
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
        self.channels.remove(&inode);
    }
}

impl Channel {
    /// Makes the program's end, of which this is a copy, readable no more.
    fn unmark(&mut self, end: &OwnedFd) {
        if std::mem::take(&mut self.is_marked) {
            let _ = recv(end, &mut [0_u8; 1], RecvFlags::DONTWAIT);
        }
    }
}

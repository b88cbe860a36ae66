//! Connection management of RDMA (`rdma_cm(7)`) between nodes: the kernel's part, for librdmacm.
//!
//! A program gets one end of a socket pair in the place of `/dev/infiniband/rdma_cm`. It writes commands there, which trap. The
//! end is readable while events wait, as the kernel's is. The router holds the other end, and notices when the last copy of the
//! program's is closed. Queue pairs themselves are joined by the plug-in and its broker.

mod connections;
mod far;

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::{io, thread};

use rustix::event::epoll;
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

/// Most channels of a node, each with a descriptor of the router's.
const MOST_CHANNELS: usize = 1024;

/// The connection manager of a host.
#[derive(Debug)]
pub(crate) struct Rdma {
    state: Mutex<State>,
    /// Hears of programs' ends that are closed; there from the first channel on.
    ends: OnceLock<OwnedFd>,
}

/// The channels, and the identifiers of connections.
#[derive(Debug)]
struct State {
    channels: HashMap<u64, Channel>,
    connections: Connections,
    /// Streams to other routers, by number.
    links: HashMap<u64, Link>,
    next_link: u64,
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
    pub(crate) fn new(host: HostId, address_map: Arc<AddressMap>, rules: Arc<Rules>) -> Arc<Self> {
        let connections = Connections::new(host, address_map, rules);
        let state = Mutex::new(State { channels: HashMap::new(), connections, links: HashMap::new(), next_link: 0 });
        Arc::new(Self { state, ends: OnceLock::new() })
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
        epoll::add(ends, &end, epoll::EventData::new_u64(inode), epoll::EventFlags::RDHUP)?;
        let channel = Channel { node, end, events: VecDeque::new(), is_marked: false, waiting: Vec::new() };
        state.channels.insert(inode, channel);
        Ok(theirs)
    }

    /// Whether a file is a channel's end of this node's.
    pub(crate) fn is_channel(&self, node: NodeId, inode: u64) -> bool {
        lock(&self.state).channels.get(&inode).is_some_and(|channel| channel.node == node)
    }

    fn ends(self: &Arc<Self>) -> io::Result<&OwnedFd> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let made = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let ends = self.ends.get_or_init(|| made);
        let own = Arc::clone(self);
        let watching = thread::Builder::new().name("rdma".into()).stack_size(STACK_BYTES);
        watching.spawn(move || own.watch())?;
        Ok(ends)
    }

    fn watch(&self) {
        let Some(ends) = self.ends.get() else { return };
        loop {
            let mut events = [MaybeUninit::uninit(); 32];
            let happened: Vec<u64> = match epoll::wait(ends, events.as_mut_slice(), None) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let mut state = lock(&self.state);
            for number in happened {
                if is_link(number) {
                    state.hear(number);
                } else {
                    state.close(number);
                }
            }
        }
    }

    /// Carries a command out that is answered at once.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Commands<'_>) -> T) -> T {
        act(&mut Commands(&mut lock(&self.state)))
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

    fn disconnect(&mut self, id: u32) {
        if let Some((peer, kind, status)) = self.connections.leave(id) {
            self.tell_peer(peer, kind, status, Offer::default());
            self.tell_of(id, Kind::Disconnected, 0);
        }
    }

    /// A program has closed its end.
    fn close(&mut self, inode: u64) {
        for id in self.connections.of_channel(inode) {
            self.destroy(id);
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

impl Commands<'_> {
    pub(crate) fn create(&mut self, at: Standing<'_>, uid: u64, port_space: u16) -> Result<u32, Errno> {
        self.0.connections.create(at.node, at.channel, uid, port_space)
    }

    /// An identifier of the caller's channel.
    fn own(&self, at: Standing<'_>, id: u32) -> Result<u32, Errno> {
        match self.0.connections.channel(id) {
            Some(channel) if channel == at.channel => Ok(id),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::NOENT),
        }
    }

    pub(crate) fn destroy(&mut self, at: Standing<'_>, id: u32) -> Result<u32, Errno> {
        let id = self.own(at, id)?;
        self.0.destroy(id).ok_or(Errno::NOENT)
    }

    pub(crate) fn bind(&mut self, at: Standing<'_>, id: u32, address: SocketAddr) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.bind(id, address)
    }

    pub(crate) fn listen(&mut self, at: Standing<'_>, id: u32, backlog: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.listen(id, backlog)
    }

    pub(crate) fn resolve_address(
        &mut self,
        at: Standing<'_>,
        id: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        match self.0.connections.resolve(id, from, to)? {
            Ok(()) => self.0.tell_of(id, Kind::AddressResolved, 0),
            Err(errno) => self.0.tell_of(id, Kind::AddressError, -errno.raw_os_error()),
        }
        Ok(())
    }

    pub(crate) fn resolve_route(&mut self, at: Standing<'_>, id: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.resolve_route(id)?;
        self.0.tell_of(id, Kind::RouteResolved, 0);
        Ok(())
    }

    pub(crate) fn route(&self, at: Standing<'_>, id: u32) -> Result<[u8; 208], Errno> {
        let id = self.own(at, id)?;
        self.0.connections.route(id).map(|route| route.write()).ok_or(Errno::NOENT)
    }

    pub(crate) fn attributes(&self, at: Standing<'_>, id: u32, state: u32) -> Result<[u8; 144], Errno> {
        let id = self.own(at, id)?;
        self.0.connections.attributes(id).and_then(|attributes| attributes.write(state)).ok_or(Errno::INVAL)
    }

    /// Asks for a connection. A wish is for [`Rdma::call`]: another router has to be asked.
    pub(crate) fn connect(&mut self, at: Standing<'_>, id: u32, offer: &Offer) -> Result<Option<Wish>, Errno> {
        let id = self.own(at, id)?;
        match self.0.connections.connect(id, offer)? {
            Asked::Near(channel, listener, event) => self.0.tell(channel, listener, event),
            Asked::Refused(kind, status) => self.0.tell_of(id, kind, status),
            Asked::Far(wish) => return Ok(Some(wish)),
        }
        Ok(None)
    }

    pub(crate) fn accept(&mut self, at: Standing<'_>, id: u32, uid: u64, offer: &Offer) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        let (peer, kind, offer) = self.0.connections.accept(id, uid, offer)?;
        self.0.tell_peer(peer, kind, 0, offer);
        Ok(())
    }

    pub(crate) fn reject(&mut self, at: Standing<'_>, id: u32, private: Vec<u8>) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        let (peer, offer) = self.0.connections.reject(id, private)?;
        // IB_CM_REJ_CONSUMER_DEFINED (`include/rdma/ib_cm.h`).
        self.0.tell_peer(peer, Kind::Rejected, 28, offer);
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, at: Standing<'_>, id: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.disconnect(id);
        Ok(())
    }

    /// Moves an identifier to the caller's channel from another. Gives how many events it has reported.
    pub(crate) fn migrate(&mut self, at: Standing<'_>, id: u32, from: u64) -> Result<u32, Errno> {
        if self.0.connections.channel(id) != Some(from) || !self.0.channels.contains_key(&at.channel) {
            return Err(Errno::INVAL);
        }
        let moved = self.0.forget_events(from, id);
        let reported = self.0.connections.migrate(id, at.channel).ok_or(Errno::NOENT)?;
        for Queued { counted, event } in moved {
            self.0.tell(at.channel, counted, event);
        }
        Ok(reported)
    }
}

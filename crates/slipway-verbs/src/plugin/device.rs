//! The state of an open device.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::client::{Client, Note};
use super::connection::{Connection, Joint};
use super::gateway::Session;
use super::memory::Mapping;
use super::queues::{Armed, CompletionQueue, QueuePair, SharedQueue, state, status};
use super::regions::Regions;
use super::waiters::Direct;
use crate::abi::Wc;
use crate::wire::{Gid, Reply, Request, Transport};

/// Empty polls, after which a program is taken to spin: peers then need not wake it. The second is the most.
const SPINS: (u32, u32) = (64, 1 << 16);

/// Numbers of events that belong to no connection.
pub(super) const BROKER: u64 = u64::MAX;
pub(super) const WAKE: u64 = u64::MAX - 1;

/// A device that a program has opened.
#[derive(Debug)]
pub(super) struct Device {
    state: Mutex<State>,
}

impl Device {
    pub(super) fn open(async_fd: i32) -> Result<Arc<Self>, Errno> {
        Ok(Self::over(State::new(Client::connect()?, Session::connect(), async_fd)?))
    }

    /// A device in this state.
    pub(super) fn over(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The state, under the device's lock. A panic of a call leaves it as consistent as an error does.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
#[derive(Debug)]
pub(super) struct State {
    pub(super) client: Client,
    /// The session with the gateway, where the node has one.
    pub(super) gateway: Option<Session>,
    pub(super) gids: Vec<Gid>,
    /// The page in which operations and bytes of connections are counted.
    pub(super) counts: Option<Arc<Mapping>>,
    pub(super) regions: Regions,
    pub(super) queue_pairs: Vec<Option<Box<QueuePair>>>,
    pub(super) completion_queues: Vec<Option<CompletionQueue>>,
    pub(super) shared_queues: Vec<Option<SharedQueue>>,
    pub(super) domains: u32,
    /// Members of groups, as the broker has told.
    pub(super) groups: HashMap<Gid, Vec<(Gid, u32)>>,
    /// Where the thread of service waits: the broker's socket, and every connection's.
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) wake: Arc<OwnedFd>,
    /// Where the thread of service waits while it rests.
    pub(super) park: Arc<OwnedFd>,
    pub(super) direct: Direct,
    /// The channel of asynchronous events, which libibverbs closes.
    pub(super) async_fd: i32,
    pub(super) has_service: bool,
    pub(super) is_ended: bool,
    /// The program polls all the time, so peers do not wake this end.
    pub(super) is_spinning: bool,
    /// The thread of service is at work.
    pub(super) is_serving: bool,
    /// A peer is, or was, on another host.
    pub(super) has_far: bool,
    /// Empty polls after which it is taken to do so.
    spins: u32,
    /// Counts polls while it spins.
    pub(super) polls: u64,
}

impl State {
    /// A device by a connection with the broker.
    pub(super) fn new(mut client: Client, gateway: Option<Session>, async_fd: i32) -> Result<Self, Errno> {
        let (Reply::Node { gids }, fds) = client.ask(&Request::Hello, &[])? else { return Err(Errno::PROTO) };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let park = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, client.socket(), EventData::new_u64(BROKER), EventFlags::IN)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        if let Some(session) = &gateway {
            session.add_to(&epoll)?;
        }
        Ok(Self {
            client,
            gateway,
            gids,
            counts: fds.first().and_then(super::tally::page),
            regions: Regions::default(),
            queue_pairs: Vec::new(),
            completion_queues: Vec::new(),
            shared_queues: Vec::new(),
            domains: 0,
            groups: HashMap::new(),
            epoll: Arc::new(epoll),
            wake: Arc::new(wake),
            park: Arc::new(park),
            direct: Direct::default(),
            async_fd,
            has_service: false,
            is_ended: false,
            is_spinning: false,
            is_serving: false,
            has_far: false,
            spins: SPINS.0,
            polls: 0,
        })
    }

    /// Puts a value into the first free place, and gives its number.
    pub(super) fn place<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
        if let Some(free) = places.iter().position(Option::is_none) {
            places[free] = Some(value);
            return free;
        }
        places.push(Some(value));
        places.len() - 1
    }

    pub(super) fn wake_service(&self) {
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    /// Adds a connection to a queue pair.
    pub(super) fn attach(&mut self, index: usize, joint: Joint) -> Result<(), Errno> {
        let peer = joint.peer.1;
        let number = self.queue_pairs.get(index).and_then(Option::as_ref).ok_or(Errno::INVAL)?.place_for(peer);
        let connection = self.take_up((index, number), joint)?;
        let epoll = Arc::clone(&self.epoll);
        let pair = self.queue_pairs.get_mut(index).and_then(Option::as_mut).ok_or(Errno::INVAL)?;
        if pair.transport != Transport::Datagram {
            pair.connections.clear();
        }
        pair.put(number, connection, &epoll);
        // The peer may have sent before this end was there.
        self.wake_service();
        Ok(())
    }

    /// Takes up an end, as the connection with this number of a queue pair. The thread of service waits for the peer.
    fn take_up(&mut self, (index, number): (usize, usize), joint: Joint) -> Result<Connection, Errno> {
        let event = (index as u64) << 32 | number as u64;
        let mut connection = Connection::new(joint, self.counts.as_ref(), (Arc::clone(&self.epoll), event))?;
        connection.sleep(!self.is_spinning);
        self.has_far |= connection.is_far();
        Ok(connection)
    }

    /// Acts on the broker's notes.
    pub(super) fn hear(&mut self) {
        while let Ok(Some(note)) = self.client.note() {
            self.note(note);
        }
    }

    /// Acts on notes that came with replies, and on what the gateway told then.
    pub(super) fn hear_kept(&mut self) {
        while let Some(note) = self.client.kept() {
            self.note(note);
        }
        self.hear_gateway_kept();
    }

    fn note(&mut self, note: Note) {
        let index = |this: &Self, number| {
            this.queue_pairs.iter().position(|it| it.as_ref().is_some_and(|it| it.number == number))
        };
        match note {
            Note::Revoked { number } => {
                if let Some(index) = index(self, number) {
                    self.fail(index, None);
                }
            }
            Note::Silenced { number, peer, is_silent } => {
                if let Some(index) = index(self, number) {
                    self.silence(index, peer, is_silent);
                }
            }
            Note::Regrouped { group } => drop(self.groups.remove(&group)),
            Note::Reached { number, joint } => {
                if let Some(index) = index(self, number)
                    && self.attach(index, joint).is_ok()
                {
                    self.progress(index);
                }
            }
        }
    }

    /// A connection with this peer stands still, or goes on: then requests that waited have all their time again.
    fn silence(&mut self, index: usize, peer: u32, is_silent: bool) {
        let Some(pair) = self.queue_pairs.get_mut(index).and_then(Option::as_mut) else { return };
        for connection in pair.connections.iter_mut().filter(|it| it.peer.1 == peer) {
            connection.is_silent = is_silent;
        }
        self.progress(index);
    }

    /// Lets a queue pair advance: what has come, and what is to go.
    pub(super) fn progress(&mut self, index: usize) {
        let Some(mut pair) = self.queue_pairs.get_mut(index).and_then(Option::take) else { return };
        let failed = self.advance(&mut pair);
        self.queue_pairs[index] = Some(pair);
        if let Err(status) = failed {
            if status == status::RETRIES_EXCEEDED {
                // The peer may have heard of a revocation first: this end's own requests are flushed then.
                self.hear();
            }
            let has_failed =
                self.queue_pairs.get(index).and_then(Option::as_ref).is_some_and(|it| it.state == state::ERROR);
            if !has_failed {
                self.fail(index, Some(status));
            }
        }
    }

    /// Whether a connected queue pair has nothing to do: a look at few words, since programs poll for hundreds of them.
    fn is_quiet(&self, index: usize) -> bool {
        let pair = self.queue_pairs.get(index).and_then(Option::as_ref);
        pair.is_some_and(|pair| {
            let is_idle = pair.sending.is_empty() && pair.flying.is_empty() && pair.transport != Transport::Datagram;
            // Completions of such a pair come by the session.
            pair.outside.is_some() || is_idle && pair.connections.first().is_some_and(Connection::is_quiet)
        })
    }

    fn advance(&mut self, pair: &mut QueuePair) -> Result<(), i32> {
        if pair.state < state::READY_TO_RECEIVE || pair.state == state::ERROR {
            return Ok(());
        }
        if pair.outside.is_some() {
            return self.advance_outside(pair);
        }
        for number in 0..pair.connections.len() {
            if !pair.connections[number].is_silent {
                self.receive(pair, number)?;
            }
        }
        if pair.transport != Transport::Datagram {
            self.take_answers(pair)?;
            self.collect(pair)?;
        }
        self.transmit(pair)
    }

    /// Puts a completion into its queue, and rings the channel where that was asked for.
    pub(super) fn complete(&mut self, queue: usize, wc: Wc, is_solicited: bool) {
        let Some(queue) = self.completion_queues.get_mut(queue).and_then(Option::as_mut) else { return };
        queue.completions.push_back(wc);
        let is_due = match queue.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => is_solicited || wc.status != status::SUCCESS,
        };
        if let (true, Some((channel, handle))) = (is_due, queue.channel) {
            queue.armed = Armed::No;
            queue.events += 1;
            self.tell(channel, handle);
        }
    }

    /// Polls a completion queue: gives how many completions it put into `to`.
    pub(super) fn poll(&mut self, queue: usize, to: &mut [Wc]) -> usize {
        self.polls = self.polls.wrapping_add(1);
        let count = self.completion_queues.get_mut(queue).and_then(Option::as_mut).map_or(0, |it| it.due(to.len()));
        if count > 0 && self.is_outside() {
            self.hear_gateway();
        }
        for at in 0..count {
            let index = self.completion_queues[queue].as_ref().and_then(|it| it.queue_pairs.get(at)).copied();
            if let Some(index) = index.filter(|index| !self.is_quiet(*index)) {
                self.progress(index);
            }
        }
        let Some(queue) = self.completion_queues.get_mut(queue).and_then(Option::as_mut) else { return 0 };
        let mut found = 0;
        while let Some(place) = to.get_mut(found)
            && let Some(wc) = queue.completions.pop_front()
        {
            *place = wc;
            found += 1;
        }
        queue.empty_polls = if found > 0 { queue.empty_polls } else { queue.empty_polls.saturating_add(1) };
        let is_idle = queue.empty_polls > self.spins && queue.armed == Armed::No;
        if is_idle && !self.is_spinning && !self.may_wait_directly() {
            let is_armed = self.completion_queues.iter().flatten().any(|it| it.armed != Armed::No);
            if !is_armed {
                self.spin(true);
            }
        }
        found
    }

    /// The program polls all the time from now on, or does no more.
    pub(super) fn spin(&mut self, is_spinning: bool) {
        self.is_spinning = is_spinning;
        for connection in self.queue_pairs.iter_mut().flatten().flat_map(|it| &mut it.connections) {
            connection.sleep(!is_spinning);
        }
        if let Some(session) = &self.gateway {
            session.wait_in(&self.epoll, !is_spinning);
        }
        // The thread of service looks from time to time whether the program still polls. Once it does not, peers may have looked just
        // before they were asked to ring.
        self.wake_service();
    }

    /// The program was taken to poll all the time, and does not. It may poll memory, where a peer of another host writes nothing
    /// until this end receives it. So it has to poll for longer the next time.
    pub(super) fn misjudge(&mut self) {
        self.spin(false);
        if self.has_far {
            self.spins = self.spins.saturating_mul(4).min(SPINS.1);
            for queue in self.completion_queues.iter_mut().flatten() {
                queue.empty_polls = 0;
            }
        }
    }

    /// Tells peers of other hosts what they wait for.
    pub(super) fn tell_peers(&mut self) {
        let connections = self.queue_pairs.iter_mut().flatten().flat_map(|it| &mut it.connections);
        connections.filter(|it| it.owes()).for_each(Connection::ring_for_head);
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self, queue: usize, armed: Armed) {
        if self.is_spinning {
            self.spin(false);
        }
        let Some(it) = self.completion_queues.get_mut(queue).and_then(Option::as_mut) else { return };
        it.armed = armed;
        it.empty_polls = 0;
        let pairs = it.queue_pairs.clone();
        for index in pairs {
            self.progress(index);
        }
    }

    /// Joins a datagram queue pair with a peer.
    fn connect(&mut self, number: u32, peer: (Gid, u32)) -> Result<Joint, Errno> {
        match self.client.ask(&Request::Connect { number, gid: peer.0, peer: peer.1 }, &[]) {
            Ok((Reply::Connected { end, counts }, fds)) => Ok(Joint { fds, end, counts, peer }),
            Ok(_) => Err(Errno::PROTO),
            // The peer was first, and the broker's note has come before its reply.
            Err(Errno::ALREADY) => self.client.reached(number, peer.1).ok_or(Errno::ALREADY),
            Err(errno) => Err(errno),
        }
    }

    /// Has the broker forget the connection of a datagram queue pair with this peer, which this end has no more.
    pub(super) fn leave(&mut self, number: u32, peer: u32) {
        // A broker that is gone has forgotten it.
        let _ = self.client.ask(&Request::Leave { number, peer }, &[]);
        // A note that came before the reply tells of that connection.
        while self.client.reached(number, peer).is_some() {}
    }

    /// The connection of a datagram queue pair with this peer, made where there is none, or where it was cut.
    pub(super) fn reach(&mut self, pair: &mut QueuePair, peer: (Gid, u32)) -> Option<usize> {
        if let Some(&number) = pair.by_peer.get(&peer.1)
            && !pair.connections[number].is_cut
        {
            return Some(number);
        }
        let joint = match self.connect(pair.number, peer) {
            Err(Errno::ALREADY) => {
                // The connection is one that this end has no more.
                self.leave(pair.number, peer.1);
                self.connect(pair.number, peer).ok()?
            }
            joint => joint.ok()?,
        };
        let number = pair.place_for(peer.1);
        let connection = self.take_up((pair.index, number), joint).ok()?;
        pair.put(number, connection, &self.epoll);
        Some(number)
    }
}

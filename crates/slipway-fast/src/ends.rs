//! The ends of connections that rules count, each until its last descriptor is closed, wherever that is.
//!
//! `close(2)` does not trap, and a list of all sockets takes as long as the host has sockets. Instead each end has a watch
//! (`inotify(7)`). The watch reports the close of the last descriptor, before that `close` returns, and keeps nothing open.
//! So counting takes the same time however many connections there are, and the count cannot drift. The router asks the
//! kernel's list (`sock_diag(7)`) where events are lost (`IN_Q_OVERFLOW`), and for ends without a watch because all are
//! used up. It asks no more often than [`OFTEN`] says. Where the list does not answer, all ends stay counted: the router
//! then refuses too many rather than too few.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;
use slipway_document::units::Rate;
use slipway_lab::id::NodeId;
use slipway_sys::sock_diag::{tcp_sockets, unix_sockets};

use crate::metadata::{Path, Role};
use crate::policy::Terms;
use crate::shares::{Share, Shares, less};
use crate::sync::lock;

/// Least time between two queries of the kernel's list.
pub(crate) const OFTEN: Duration = Duration::from_millis(250);

/// Most watches of a router: the machine's root has tens of thousands, and other programs need some.
const WATCHES: usize = 16 * 1024;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EndIdentity {
    pub(crate) role: Role,
    /// Indices of the nodes of client and server.
    pub(crate) client: NodeId,
    pub(crate) server: NodeId,
    /// The server's end.
    pub(crate) port: u16,
}

/// The ends of one role that one rule counts together for one node.
type Key = (Role, Option<usize>, NodeId);

/// The numbers of ends, by the limit that they share.
#[derive(Debug, Default)]
struct Census {
    /// Ends by the server's node.
    at_server: HashMap<Key, usize>,
    /// The ends among these that have no watch.
    unwatched: HashMap<Key, usize>,
    /// Ends by the client's node.
    of_node: HashMap<Key, usize>,
    /// Ends between two nodes.
    in_pair: HashMap<(Role, Option<usize>, NodeId, NodeId), usize>,
    /// Ends of a rule by which rates are shared.
    sharing: usize,
}

impl Census {
    fn add(&mut self, end: &CountedEnd) {
        let Some(terms) = &end.terms else { return };
        let EndIdentity { role, client, server, .. } = end.identity;
        *self.at_server.entry((role, terms.rule, server)).or_default() += 1;
        if end.watch.is_none() {
            *self.unwatched.entry((role, terms.rule, server)).or_default() += 1;
        }
        *self.of_node.entry((role, terms.rule, client)).or_default() += 1;
        *self.in_pair.entry((role, terms.rule, client, server)).or_default() += 1;
        self.sharing += usize::from(terms.shares());
    }

    fn remove(&mut self, end: &CountedEnd) {
        let Some(terms) = &end.terms else { return };
        let EndIdentity { role, client, server, .. } = end.identity;
        less(&mut self.at_server, (role, terms.rule, server));
        if end.watch.is_none() {
            less(&mut self.unwatched, (role, terms.rule, server));
        }
        less(&mut self.of_node, (role, terms.rule, client));
        less(&mut self.in_pair, (role, terms.rule, client, server));
        self.sharing -= usize::from(terms.shares());
    }
}

#[derive(Debug)]
struct CountedEnd {
    identity: EndIdentity,
    path: Path,
    /// The terms under the current policy; `None` where that denies it.
    terms: Option<Terms>,
    /// The watch of the end, and its share of watches.
    watch: Option<(i32, Share)>,
}

#[derive(Debug, Default)]
struct State {
    /// Ends by cookie (`SO_COOKIE`), which is never used again.
    ends: HashMap<u64, CountedEnd>,
    /// Cookies by watch.
    watched: HashMap<i32, u64>,
    census: Census,
    /// Places reserved for ends that are being made.
    reserved: HashMap<Key, usize>,
    /// The number of changes of these.
    changes: u64,
    /// Whether the kernel lost events of watches.
    lost: bool,
    listed: Option<Instant>,
}

/// All counted ends of a host.
#[derive(Debug)]
pub(crate) struct Ends {
    /// `None` where the machine has no more; then the router asks the kernel's list.
    events: Option<OwnedFd>,
    watches: Arc<Shares>,
    state: Mutex<State>,
}

/// A reserved place for one more end, until it is counted or this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    ends: &'a Ends,
    /// Until it is counted.
    key: Option<Key>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            less(&mut lock(&self.ends.state).reserved, key);
        }
    }
}

impl Ends {
    pub(crate) fn new() -> Self {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self { events, watches: Shares::new(WATCHES), state: Mutex::default() }
    }

    /// The number of counted ends without a watch, for which the router asks the kernel's list.
    pub(crate) fn unwatched(&self) -> usize {
        lock(&self.state).census.unwatched.values().sum()
    }

    /// Reserves a place for an end, unless its rule and server have `most` already.
    pub(crate) fn reserve(&self, identity: EndIdentity, rule: Option<usize>, most: u32) -> Option<Reservation<'_>> {
        let key = (identity.role, rule, identity.server);
        let mut state = self.settled();
        let is_full = |state: &State| {
            let count = |counts: &HashMap<Key, usize>| counts.get(&key).copied().unwrap_or_default();
            count(&state.census.at_server) + count(&state.reserved) >= most as usize
        };
        // Some ends without a watch may have ended.
        if is_full(&state) && (state.lost || state.census.unwatched.contains_key(&key)) {
            state.list();
        }
        if is_full(&state) {
            return None;
        }
        *state.reserved.entry(key).or_default() += 1;
        Some(Reservation { ends: self, key: Some(key) })
    }

    /// Counts an end from now on, and frees its reserved place.
    pub(crate) fn count(
        &self,
        socket: impl AsFd,
        identity: EndIdentity,
        terms: Terms,
        path: Path,
        mut reservation: Option<Reservation<'_>>,
    ) -> io::Result<()> {
        let cookie = socket_cookie(&socket)?;
        let mut state = lock(&self.state);
        if !state.ends.contains_key(&cookie) {
            let watch = self.watch(socket, identity);
            state.watched.extend(watch.as_ref().map(|(watch, _)| (*watch, cookie)));
            let end = CountedEnd { identity, path, terms: Some(terms), watch };
            state.census.add(&end);
            state.ends.insert(cookie, end);
            state.changes += 1;
        }
        // Under the same lock, so that no thread finds both.
        if let Some(key) = reservation.as_mut().and_then(|reservation| reservation.key.take()) {
            less(&mut state.reserved, key);
        }
        drop(state);
        Ok(())
    }

    fn watch(&self, socket: impl AsFd, EndIdentity { client, server, .. }: EndIdentity) -> Option<(i32, Share)> {
        let share = self.watches.take(client, server)?;
        // The descriptors of this thread: one thread has descriptors of its own.
        let name = format!("/proc/thread-self/fd/{}", socket.as_fd().as_raw_fd());
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE | WatchFlags::ONESHOT;
        let watch = inotify::add_watch(self.events.as_ref()?, name, flags).ok()?;
        Some((watch, share))
    }

    /// The rate that an end may have. An end that is not counted shares with none.
    pub(crate) fn share(&self, EndIdentity { role, client, server, .. }: EndIdentity, terms: &Terms) -> Option<Rate> {
        let state = self.settled();
        let of = |count: Option<&usize>| count.map_or(1, |count| u32::try_from(*count).unwrap_or(u32::MAX));
        let in_pair = of(state.census.in_pair.get(&(role, terms.rule, client, server)));
        let of_node = of(state.census.of_node.get(&(role, terms.rule, client)));
        terms.rates.share(in_pair, of_node)
    }

    /// The number of changes, and whether any ends share a rate.
    pub(crate) fn look(&self) -> (u64, bool) {
        let mut state = self.settled();
        if state.lost || !state.census.unwatched.is_empty() {
            state.list();
        }
        (state.changes, state.census.sharing > 0)
    }

    /// Counts all ends anew, under another policy.
    pub(crate) fn judge(&self, terms: impl Fn(EndIdentity) -> Option<Terms>) {
        let mut state = lock(&self.state);
        let State { ends, census, changes, .. } = &mut *state;
        *census = Census::default();
        for end in ends.values_mut() {
            end.terms = terms(end.identity);
            census.add(end);
        }
        *changes += 1;
    }

    /// Removes the ends whose close the kernel has reported.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let Some(events) = &self.events else { return state };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events_read = inotify::Reader::new(events, &mut buffer);
        loop {
            match events_read.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => state.lost = true,
                // The kernel reports the close, and the end of the watch.
                Ok(event) => {
                    let cookie = state.watched.remove(&event.wd());
                    if let Some(cookie) = cookie {
                        state.remove(cookie);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return state,
                Err(_) => {
                    state.lost = true;
                    return state;
                }
            }
        }
    }
}

impl State {
    fn remove(&mut self, cookie: u64) {
        if let Some(end) = self.ends.remove(&cookie) {
            self.census.remove(&end);
            self.changes += 1;
        }
    }

    /// Asks the kernel which ends live, unless it was asked just before. Where it does not answer, all do.
    fn list(&mut self) {
        if self.listed.is_some_and(|listed| listed.elapsed() < OFTEN) {
            return;
        }
        self.listed = Some(Instant::now());
        let Ok(live) = self.live() else { return };
        let ended: Vec<u64> = self.ends.keys().filter(|cookie| !live.contains(cookie)).copied().collect();
        for cookie in ended {
            self.remove(cookie);
        }
        let Self { watched, ends, .. } = self;
        watched.retain(|_, cookie| ends.contains_key(cookie));
        self.lost = false;
    }

    fn live(&self) -> io::Result<HashSet<u64>> {
        let mut live = HashSet::new();
        if self.ends.values().any(|end| end.path == Path::Tcp) {
            live.extend(tcp_sockets()?.iter().filter(|socket| socket.inode != 0).map(|socket| socket.cookie));
        }
        if self.ends.values().any(|end| end.path == Path::Pair) {
            live.extend(unix_sockets()?.iter().map(|socket| socket.cookie));
        }
        Ok(live)
    }
}

#[cfg(test)]
mod tests;

//! What rules hold back: rates, alone and shared, priorities, and how many connections there are at once.
//!
//! An end's rate is its `SO_MAX_PACING_RATE` (socket(7)), which its program cannot raise ([`crate::filter`]). Where connections
//! share a rate each has an even part, which changes when one is made and when one ends. No `close` is trapped: ends that are
//! counted are noted by their cookies, and the kernel's list of sockets (`sock_diag(7)`) tells which still are; four times a
//! second while there are some that share. Which rule an end is under follows from its addresses and the policy, so that
//! another policy, or another router, which finds the ends among programs' descriptors ([`walk`]), counts the same.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_cookie;
use slipway_lab::units::Rate;
use slipway_sys::sock_diag::{tcp_sockets, unix_sockets};
use slipway_sys::sockopt::{self, Name};

use crate::flows::Flow;
use crate::note::{Note, Path, Role};
use crate::personality::{CONGESTION, CONGESTION_BYTES};
use crate::policy::{Decision, Terms};
use crate::router::Router;
use crate::sync::{lock, whole};
use crate::walk;

/// How often those who share a rate are counted.
const OFTEN: Duration = Duration::from_millis(250);

const MAX_PACING_RATE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE };
const PRIORITY: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PRIORITY };

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) role: Role,
    /// Indices of nodes.
    pub(crate) client: usize,
    pub(crate) server: usize,
    /// The server's.
    pub(crate) port: u16,
}

/// Who shares what with whom: each rule's connections of a client's node, and between two nodes, by the ends that are here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Census {
    of_node: HashMap<(Role, Option<usize>, usize), u32>,
    in_pair: HashMap<(Role, Option<usize>, usize, usize), u32>,
}

impl Census {
    fn of(members: &[(Member, Terms)]) -> Self {
        let mut census = Self::default();
        for (Member { role, client, server, .. }, Terms { rule, .. }) in members {
            *census.of_node.entry((*role, *rule, *client)).or_default() += 1;
            *census.in_pair.entry((*role, *rule, *client, *server)).or_default() += 1;
        }
        census
    }

    /// How fast an end may be. One that is not counted is alone.
    fn share(&self, Member { role, client, server, .. }: Member, terms: &Terms) -> Option<Rate> {
        let in_pair = self.in_pair.get(&(role, terms.rule, client, server)).copied().unwrap_or(1);
        let of_node = self.of_node.get(&(role, terms.rule, client)).copied().unwrap_or(1);
        terms.rates.share(in_pair, of_node)
    }
}

/// Held from counting a capped rule's connections until another is one of them; where there is no cap, by as many as will.
#[derive(Debug)]
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "it is held")] Option<MutexGuard<'a, ()>>);

/// Holds connections back: what the threads of a router share for that.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    turn: Mutex<()>,
    /// Ends that are counted, by cookie; some may be gone.
    ends: Mutex<HashMap<u64, (Member, Path)>>,
    /// Whether somebody may share a rate.
    shared: Mutex<bool>,
    changed: Condvar,
}

impl Limiter {
    fn share(&self) {
        *lock(&self.shared) = true;
        self.changed.notify_all();
    }

    /// The cookies of the ends that are counted.
    fn counted(&self) -> HashSet<u64> {
        lock(&self.ends).keys().copied().collect()
    }

    /// Keeps shared rates even, for ever. Nothing is done while nobody shares one.
    pub(crate) fn run(router: &Arc<Router>) {
        let mut before = (HashSet::new(), Census::default());
        loop {
            let mut shared = lock(&router.limiter.shared);
            while !*shared {
                shared = whole(router.limiter.changed.wait(shared));
            }
            // Who comes from here on says so again.
            *shared = false;
            drop(shared);
            let members = router.members().unwrap_or_default();
            // As many as before may be others.
            let now = (router.limiter.counted(), Census::of(&members));
            if now != before {
                router.repace(&now.1);
                before = now;
            }
            if members.iter().any(|(_, terms)| terms.shares()) {
                router.limiter.share();
                thread::sleep(OFTEN);
            }
        }
    }
}

impl Router {
    /// The terms of a connection that is made, under the policy as it is now.
    fn terms(&self, Member { client, server, port, .. }: Member) -> Option<Terms> {
        match self.policy().decide(client, server, port) {
            Decision::Allow(terms) => Some(terms),
            Decision::Deny(_) => None,
        }
    }

    /// The end that a socket with this note is, and its terms.
    fn terms_of(&self, note: &Note) -> Option<(Member, Terms)> {
        let flow = Flow::of(note);
        let (client, server) = flow.nodes(&self.places)?;
        let member = Member { role: note.role, client, server, port: flow.server.port() };
        Some((member, self.terms(member)?))
    }

    /// All ends that are counted and that somebody has, with their terms.
    fn members(&self) -> io::Result<Vec<(Member, Terms)>> {
        let mut ends = lock(&self.limiter.ends);
        let mut live: HashSet<u64> = HashSet::new();
        if ends.values().any(|(_, path)| *path == Path::Tcp) {
            live.extend(tcp_sockets()?.iter().filter(|socket| socket.inode != 0).map(|socket| socket.cookie));
        }
        if ends.values().any(|(_, path)| *path == Path::Pair) {
            live.extend(unix_sockets()?.iter().map(|socket| socket.cookie));
        }
        ends.retain(|cookie, _| live.contains(cookie));
        Ok(ends.values().filter_map(|(member, _)| Some((*member, self.terms(*member)?))).collect())
    }

    /// Counts a new end from now on, where its rule counts any.
    pub(crate) fn count(&self, end: impl AsFd, member: Member, path: Path) -> io::Result<()> {
        self.terms(member).map_or(Ok(()), |terms| self.count_end(end, member, &terms, path))
    }

    fn count_end(&self, end: impl AsFd, member: Member, terms: &Terms, path: Path) -> io::Result<()> {
        if terms.connections.is_some() || terms.shares() {
            lock(&self.limiter.ends).insert(socket_cookie(&end)?, (member, path));
        }
        if terms.shares() {
            self.limiter.share();
        }
        Ok(())
    }

    /// The turn to make one more connection to a server's node on this host; `None` where a rule allows no more.
    pub(crate) fn turn(&self, new: Member, terms: &Terms) -> io::Result<Option<Turn<'_>>> {
        let Some(most) = terms.connections else { return Ok(Some(Turn(None))) };
        let turn = lock(&self.limiter.turn);
        let is_one = |(member, of): &&(Member, Terms)| {
            (member.role, member.server, of.rule) == (new.role, new.server, terms.rule)
        };
        let room = self.members()?.iter().filter(is_one).count() < most as usize;
        Ok(room.then_some(Turn(Some(turn))))
    }

    /// How fast this end may be now.
    fn rate(&self, member: Member, terms: &Terms) -> Option<Rate> {
        // Where the kernel does not list sockets, each is held to what one alone has.
        let members = if terms.shares() { self.members().unwrap_or_default() } else { Vec::new() };
        Census::of(&members).share(member, terms)
    }

    /// Holds a new end, which has all its other options, to what its rule says.
    pub(crate) fn hold(&self, end: impl AsFd, note: &Note) -> io::Result<()> {
        if !self.policy().limits() {
            return Ok(());
        }
        let Some((member, terms)) = self.terms_of(note) else { return Ok(()) };
        self.count_end(&end, member, &terms, note.path)?;
        if note.path == Path::Pair {
            return Ok(());
        }
        if let Some(rate) = self.rate(member, &terms) {
            pace(&end, rate)?;
        }
        prioritize(&end, &terms)
    }

    /// Holds an end to what its rule says by now. One without a note is not handed out yet.
    pub(crate) fn hold_again(&self, end: impl AsFd, path: Path) {
        let note = self.notes.of(&end).ok().flatten();
        if let Some((member, terms)) = note.and_then(|note| self.terms_of(&note)) {
            // One that has ended needs none.
            let _ = self.count_end(&end, member, &terms, path);
            if path == Path::Tcp {
                let _ = pace(&end, self.rate(member, &terms).unwrap_or(Rate(u64::MAX)));
                let _ = prioritize(&end, &terms);
            }
        }
    }

    /// Whether a program may set this to its end: a rate no greater than its own, a priority no higher.
    pub(crate) fn may_set(&self, note: &Note, name: i32, value: u64) -> bool {
        let Some((member, terms)) = self.terms_of(note) else { return false };
        match name {
            libc::SO_MAX_PACING_RATE => self.rate(member, &terms).is_none_or(|Rate(bits)| value <= bits / 8),
            // Without a capability, 6 is the highest (socket(7)).
            libc::SO_PRIORITY => value <= terms.priority.unwrap_or(6).into(),
            _ => false,
        }
    }

    /// Brings an end's priority back to what its rule says, after something else has set it.
    pub(crate) fn keep_priority(&self, end: impl AsFd, note: &Note) -> io::Result<()> {
        self.terms_of(note).map_or(Ok(()), |(_, terms)| prioritize(end, &terms))
    }

    /// Gives those who share rates their parts.
    fn repace(&self, census: &Census) {
        self.each_held(
            |_| true,
            |held, member, terms| {
                // One that has ended needs none.
                let rate = census.share(member, &terms).filter(|_| terms.shares());
                let _ = rate.map_or(Ok(()), |rate| pace(&held.socket, rate));
            },
        );
    }

    /// Finds the ends that programs of some nodes have, counts those that are to be counted, and holds all to what their rules
    /// say now.
    pub(crate) fn hold_anew(&self, of: impl Fn(usize) -> bool) {
        let mut found = Vec::new();
        self.each_held(of, |held, member, terms| {
            // All are counted before any has its part.
            let _ = self.count_end(&held.socket, member, &terms, held.note.path);
            found.push(held);
        });
        for held in found {
            self.hold_again(&held.socket, held.note.path);
        }
    }

    fn each_held(&self, of: impl Fn(usize) -> bool, mut each: impl FnMut(walk::Held, Member, Terms)) {
        let Ok(processes) = self.processes(of) else { return };
        walk::handed_out(&processes, &self.notes, &mut BTreeSet::new(), |held| {
            if let Some((member, terms)) = self.terms_of(&held.note) {
                each(held, member, terms);
            }
        });
    }
}

/// Has an end send so fast at most. The kernel counts what segments hold, without their headers.
fn pace(end: impl AsFd, Rate(bits): Rate) -> io::Result<()> {
    // All ones is no limit (`sk_max_pacing_rate`).
    let bytes = if bits == u64::MAX { bits } else { (bits / 8).max(1) };
    sockopt::set(&end, MAX_PACING_RATE, &bytes.to_ne_bytes())?;
    if bits == u64::MAX { Ok(()) } else { keep_up(end) }
}

/// Has an end send as fast as it may. BBR goes by the rate at which data arrives (`net/ipv4/tcp_bbr.c`), and on paths as short as
/// those between hosts holds back a sender that is paced already, further each time: of 1 Gbit/s half was left.
fn keep_up(end: impl AsFd) -> io::Result<()> {
    let mut name = [0; CONGESTION_BYTES];
    let len = sockopt::get(&end, CONGESTION, &mut name)?;
    if !name[..len].starts_with(b"bbr") {
        return Ok(());
    }
    // Only reno is there in every kernel.
    sockopt::set(&end, CONGESTION, b"cubic").or_else(|_| sockopt::set(&end, CONGESTION, b"reno"))
}

fn prioritize(end: impl AsFd, terms: &Terms) -> io::Result<()> {
    match terms.priority {
        Some(priority) => sockopt::set(end, PRIORITY, &i32::from(priority).to_ne_bytes()),
        None => Ok(()),
    }
}

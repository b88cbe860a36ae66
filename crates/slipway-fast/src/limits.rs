//! The limits of rules: rates, alone and shared, priorities, and numbers of connections at once.
//!
//! An end's rate is its `SO_MAX_PACING_RATE` (socket(7)), which its program cannot raise ([`crate::filter`]). Connections
//! that share a rate have even parts, which change when one is made or ends ([`crate::ends`]). The router sets parts anew
//! four times a second while some share. An end's addresses and the policy decide its rule. So another policy counts the
//! same. Another router does too: it finds the ends among programs' descriptors ([`walk`]).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use slipway_document::units::Rate;
use slipway_lab::id::NodeId;
use slipway_sys::sockopt::{self, Name};

use crate::address_map::AddressMap;
use crate::admission::{Admission, Rules};
use crate::emulation::{CONGESTION, CONGESTION_BYTES};
use crate::ends::{EndIdentity, Ends, OFTEN, Reservation};
use crate::flows::Flow;
use crate::metadata::{MetadataStore, Path, SocketMetadata};
use crate::node_table::NodeTable;
use crate::policy::{Decision, Terms};
use crate::reason::Reason;
use crate::revoke::cut;
use crate::sync::{lock, whole};
use crate::walk;

const MAX_PACING_RATE: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_MAX_PACING_RATE };
const PRIORITY: Name = Name { level: libc::SOL_SOCKET, name: libc::SO_PRIORITY };

/// Permission to make one more connection: a place where a rule counts them.
#[derive(Debug)]
pub(crate) struct ConnectionSlot<'a>(Option<Reservation<'a>>);

/// Applies limits to connections: the state that a router's threads share for that.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) ends: Ends,
    /// Whether connections may share a rate, or must be limited anew.
    shared: Mutex<bool>,
    /// Whether an attempt to limit some anew has failed.
    unheld: AtomicBool,
    changed: Condvar,
    address_map: Arc<AddressMap>,
    metadata: Arc<MetadataStore>,
    nodes: Arc<NodeTable>,
    rules: Arc<Rules>,
}

impl Limiter {
    /// With nothing counted yet.
    pub(crate) fn new(
        address_map: Arc<AddressMap>,
        metadata: Arc<MetadataStore>,
        nodes: Arc<NodeTable>,
        rules: Arc<Rules>,
    ) -> Self {
        let (shared, unheld, changed) = Default::default();
        Self { ends: Ends::new(), shared, unheld, changed, address_map, metadata, nodes, rules }
    }

    /// Wakes the thread that keeps shared rates even.
    fn wake(&self) {
        *lock(&self.shared) = true;
        self.changed.notify_all();
    }

    /// Keeps shared rates even, for ever. It does nothing while no connections share one.
    pub(crate) fn run(&self) {
        let mut before = 0;
        loop {
            let mut shared = lock(&self.shared);
            while !*shared {
                shared = whole(self.changed.wait(shared));
            }
            // Later changes set the flag again.
            *shared = false;
            drop(shared);
            let unheld = self.unheld.swap(false, Ordering::Acquire);
            if unheld {
                self.hold_anew(|_| true);
            }
            let (changes, share) = self.ends.look();
            if changes != before && self.repace().is_ok() {
                before = changes;
            }
            if share || unheld {
                self.wake();
                thread::sleep(OFTEN);
            }
        }
    }

    /// The terms of a connection that is made, under the policy as it is now.
    fn terms(&self, EndIdentity { client, server, port, .. }: EndIdentity) -> Option<Terms> {
        match self.rules.policy().decide(client, server, port) {
            Decision::Allow(terms) => Some(terms),
            Decision::Deny(_) => None,
        }
    }

    /// The end that a socket with this metadata is, and its terms.
    fn terms_of(&self, metadata: &SocketMetadata) -> Option<(EndIdentity, Terms)> {
        let flow = Flow::of(metadata);
        let (client, server) = flow.nodes(&self.address_map)?;
        let identity = EndIdentity { role: metadata.role, client, server, port: flow.server.port() };
        Some((identity, self.terms(identity)?))
    }

    /// Counts a new end from now on, where its rule counts any. The end takes its reserved place.
    pub(crate) fn count(
        &self,
        end: impl AsFd,
        identity: EndIdentity,
        path: Path,
        slot: ConnectionSlot<'_>,
    ) -> io::Result<()> {
        self.terms(identity).map_or(Ok(()), |terms| self.count_end(end, identity, terms, path, slot.0))
    }

    /// Counts an end that lives already.
    pub(crate) fn count_on(&self, end: impl AsFd, identity: EndIdentity, path: Path) -> io::Result<()> {
        self.count(end, identity, path, ConnectionSlot(None))
    }

    fn count_end(
        &self,
        end: impl AsFd,
        identity: EndIdentity,
        terms: Terms,
        path: Path,
        reservation: Option<Reservation<'_>>,
    ) -> io::Result<()> {
        if terms.connections.is_some() || terms.shares() {
            self.ends.count(end, identity, terms, path, reservation)?;
        }
        if terms.shares() {
            self.wake();
        }
        Ok(())
    }

    /// Permission for one more connection to a server's node on this host; `None` where a rule allows no more.
    pub(crate) fn slot(&self, new: EndIdentity, terms: &Terms) -> Option<ConnectionSlot<'_>> {
        let Some(most) = terms.connections else { return Some(ConnectionSlot(None)) };
        self.ends.reserve(new, terms.rule, most).map(|reservation| ConnectionSlot(Some(reservation)))
    }

    /// The rate that this end may have now.
    fn rate(&self, identity: EndIdentity, terms: &Terms) -> Option<Rate> {
        if terms.shares() { self.ends.share(identity, terms) } else { terms.rates.share(1, 1) }
    }

    /// Counts live ends by another policy.
    pub(crate) fn count_anew(&self) {
        self.ends.judge(|identity| self.terms(identity).filter(|terms| terms.connections.is_some() || terms.shares()));
    }

    /// Applies its rule's limits to a new end, which has all its other options.
    pub(crate) fn hold(&self, end: impl AsFd, metadata: &SocketMetadata) -> io::Result<()> {
        if !self.rules.policy().limits() {
            return Ok(());
        }
        let Some((identity, terms)) = self.terms_of(metadata) else { return Ok(()) };
        self.count_end(&end, identity, terms, metadata.path, None)?;
        if metadata.path == Path::Pair {
            return Ok(());
        }
        if let Some(rate) = self.rate(identity, &terms) {
            pace(&end, rate)?;
        }
        prioritize(&end, &terms)
    }

    /// Applies its rule's current limits to an end. A socket without metadata is not handed out yet.
    pub(crate) fn hold_again(&self, end: impl AsFd, path: Path) {
        let hold = || {
            let Some(metadata) = self.metadata.of(&end)? else { return Ok(()) };
            let Some((identity, terms)) = self.terms_of(&metadata) else { return Ok(()) };
            self.count_end(&end, identity, terms, path, None)?;
            if path == Path::Pair {
                return Ok(());
            }
            pace(&end, self.rate(identity, &terms).unwrap_or(Rate(u64::MAX)))?;
            prioritize(&end, &terms)
        };
        end_unheld(&end, path, &hold());
    }

    /// Checks a connection again whose client's end was handed out, if the rules have changed since it was admitted. Ends it where it
    /// is no longer allowed, and returns the reason. The other end ends with it, wherever that is.
    pub(crate) fn confirm(&self, admission: &Admission, end: impl AsFd, path: Path) -> Option<Reason> {
        let reason = match self.rules.recheck(admission)? {
            Ok(now) if now.terms.hold(path) => {
                self.hold_again(end, path);
                return None;
            }
            // A connection that cannot be limited as it is has to be made anew.
            Ok(_) => Reason::Policy,
            Err(reason) => reason,
        };
        cut(end, path).is_ok().then_some(reason)
    }

    /// Whether a program may set this option to its end: a rate no greater than its own, a priority no higher.
    pub(crate) fn may_set(&self, metadata: &SocketMetadata, name: i32, value: u64) -> bool {
        let Some((identity, terms)) = self.terms_of(metadata) else { return false };
        match name {
            libc::SO_MAX_PACING_RATE => self.rate(identity, &terms).is_none_or(|Rate(bits)| value <= bits / 8),
            // Without a capability, 6 is the highest (socket(7)).
            libc::SO_PRIORITY => value <= terms.priority.unwrap_or(6).into(),
            _ => false,
        }
    }

    /// Restores an end's priority to its rule's, after another option changed it.
    pub(crate) fn keep_priority(&self, end: impl AsFd, metadata: &SocketMetadata) -> io::Result<()> {
        self.terms_of(metadata).map_or(Ok(()), |(_, terms)| prioritize(end, &terms))
    }

    /// Gives connections that share rates their parts.
    fn repace(&self) -> io::Result<()> {
        self.each_held(
            |_| true,
            |held, identity, terms| {
                let rate = self.rate(identity, &terms).filter(|_| terms.shares() && held.metadata.path == Path::Tcp);
                end_unheld(&held.socket, held.metadata.path, &rate.map_or(Ok(()), |rate| pace(&held.socket, rate)));
            },
        )
    }

    /// Finds the ends that programs of some nodes have, counts them where rules do, and applies the current limits. Where
    /// programs cannot be looked at, it tries again as soon as it can.
    pub(crate) fn hold_anew(&self, of: impl Fn(NodeId) -> bool) {
        if self.try_to_hold_anew(of).is_err() {
            self.unheld.store(true, Ordering::Release);
            self.wake();
        }
    }

    fn try_to_hold_anew(&self, of: impl Fn(NodeId) -> bool) -> io::Result<()> {
        let mut found = Vec::new();
        self.each_held(of, |held, identity, terms| {
            // This counts all ends before it sets any part.
            let counted = self.count_end(&held.socket, identity, terms, held.metadata.path, None);
            end_unheld(&held.socket, held.metadata.path, &counted);
            found.push(held);
        })?;
        for held in found {
            self.hold_again(&held.socket, held.metadata.path);
        }
        Ok(())
    }

    fn each_held(
        &self,
        of: impl Fn(NodeId) -> bool,
        mut each: impl FnMut(walk::HandedOutSocket, EndIdentity, Terms),
    ) -> io::Result<()> {
        let processes = self.nodes.processes(of)?;
        walk::handed_out(&processes, &self.metadata, &mut BTreeSet::new(), |held| {
            if let Some((identity, terms)) = self.terms_of(&held.metadata) {
                each(held, identity, terms);
            }
        })
    }
}

/// Ends a connection that cannot be limited by its rule: it may not go on as it was.
fn end_unheld(end: impl AsFd, path: Path, held: &io::Result<()>) {
    if held.is_err() {
        // The connection may have ended already.
        let _ = cut(end, path);
    }
}

/// Limits the rate of an end. The kernel counts the content of segments, without their headers.
fn pace(end: impl AsFd, Rate(bits): Rate) -> io::Result<()> {
    // All ones means no limit (`sk_max_pacing_rate`).
    let bytes = if bits == u64::MAX { bits } else { (bits / 8).max(1) };
    sockopt::set(&end, MAX_PACING_RATE, &bytes.to_ne_bytes())?;
    if bits == u64::MAX { Ok(()) } else { keep_up(end) }
}

/// Replaces BBR at a paced end. BBR goes by the rate at which data arrives (`net/ipv4/tcp_bbr.c`). On paths as short as
/// those between hosts, it slows a paced sender further each time: of 1 Gbit/s half was left.
fn keep_up(end: impl AsFd) -> io::Result<()> {
    let mut name = [0; CONGESTION_BYTES];
    let len = sockopt::get(&end, CONGESTION, &mut name)?;
    if !name[..len].starts_with(b"bbr") {
        return Ok(());
    }
    // Only reno is in every kernel.
    sockopt::set(&end, CONGESTION, b"cubic").or_else(|_| sockopt::set(&end, CONGESTION, b"reno"))
}

fn prioritize(end: impl AsFd, terms: &Terms) -> io::Result<()> {
    match terms.priority {
        Some(priority) => sockopt::set(end, PRIORITY, &i32::from(priority).to_ne_bytes()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::net::UnixStream;

    use slipway_lab::id::{HostId, NetworkId};
    use slipway_sys::bpf::SocketStorage;
    use slipway_sys::seccomp::{Filter, Trap, Verdict, When};

    use super::*;
    use crate::address_map::Interface;
    use crate::metadata::{BYTES, Role};
    use crate::policy::Policy;

    /// Both have a part before the kernel refuses to list sockets, and after it.
    #[test]
    fn who_shares_a_rate_has_a_part_whatever_the_kernel_says_of_others() {
        let text = "networks: {net: fast}\nnodes: {n: {count: 2}}\npolicy: [{rate: {pair: 100mbit}}]\n";
        let lab = slipway_lab::parse("lab.yaml", text, std::path::Path::new("/")).expect("it is right");
        let address_map = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 64, 0, last))).into_iter().enumerate();
        let address_map = address_map
            .map(|(node, ip)| (ip, Interface { node: NodeId(node), host: HostId(0), network: NetworkId(0) }))
            .collect();
        let address_map: Arc<AddressMap> = Arc::new(address_map);
        let storage = SocketStorage::create("test", BYTES).expect("these tests need root, to make a BPF map");
        let rules = Arc::new(Rules::new(Arc::clone(&address_map), Policy::new(&lab.policy, 2)));
        let limiter = Limiter::new(address_map, Arc::new(MetadataStore::new(storage)), Arc::default(), rules);
        let identity = EndIdentity { role: Role::Client, client: NodeId(0), server: NodeId(1), port: 80 };
        let (one, other) = UnixStream::pair().expect("a pair");
        for end in [&one, &other] {
            limiter.count_on(end, identity, Path::Pair).expect("counted");
        }
        let rate = || limiter.rate(identity, &limiter.terms(identity).expect("it is allowed"));
        let half = Some("50mbit".parse().expect("a rate"));
        assert_eq!(rate(), half);
        let netlink = When::Argument { index: 0, mask: u32::MAX, values: vec![libc::AF_NETLINK.cast_unsigned()] };
        let failing = Trap { call: libc::SYS_socket, when: netlink, verdict: Verdict::Errno(libc::EMFILE) };
        let unlisted = thread::scope(|scope| {
            let running = scope.spawn(|| {
                Filter::trap(&[failing]).attach().expect("root may attach");
                rate()
            });
            running.join().expect("it ran")
        });
        assert_eq!(unlisted, half);
    }
}

//! Answers to programs' requests.

use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;

use super::Policy;
use super::far;
use super::groups;
use super::limits::{self, Both, Limits};
use super::made::Made;
use super::objects::{Held, Kind, Link, QueuePair, key};
use super::questions::Way;
use super::reply::{Done, From};
use super::resume;
use super::tables::Tables;
use crate::layout::SIZED;
use crate::untrusted::Untrusted;
use crate::wire::{Answer, End, Gid, Region, Reply, Request, Transport};

/// Access flags that let a peer write (`IBV_ACCESS_REMOTE_WRITE`, `IBV_ACCESS_REMOTE_ATOMIC`).
const WRITABLE: u32 = 1 << 1 | 1 << 3;
/// Pages that regions are shared by, in bytes.
const PAGE: u64 = 4096;

/// All that decides about a connection.
pub(super) type Rules<'a> = (&'a mut Policy, &'a mut Limits, &'a mut Way);

pub(super) fn answer(
    tables: &mut Tables,
    rules: Rules<'_>,
    from: From,
    request: &Request,
    fds: Vec<Untrusted>,
) -> Done {
    carry_out(tables, rules, from, request, fds).unwrap_or_else(Done::refused)
}

fn carry_out(
    tables: &mut Tables,
    rules: Rules<'_>,
    from: From,
    request: &Request,
    fds: Vec<Untrusted>,
) -> Result<Done, Errno> {
    let reply = match *request {
        Request::Hello => {
            let counts = tables.page(from.program)?.file().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
            let gids = tables.gids(from.node).iter().take(4).copied().collect();
            return Ok(Done::with(Reply::Node { gids }, vec![counts]));
        }
        Request::CreateQueuePair { transport, domain } => {
            let (program, node) = (from.program, from.node);
            let made = QueuePair { program, node, transport, domain, peer: None, revoked: false };
            let number = tables.add_queue_pair(made)?;
            Reply::QueuePair { number, proof: tables.prove(node, Kind::QueuePair, number) }
        }
        Request::DestroyQueuePair { number } => {
            tables.own(from.program, number)?;
            tables.remove_queue_pair(number);
            Reply::Done
        }
        Request::Connect { number, gid, peer } => return connect(tables, rules, from, number, (gid, peer)),
        Request::Leave { number, peer } => {
            if tables.own(from.program, number)?.transport != Transport::Datagram {
                return Err(Errno::INVAL);
            }
            tables.end_links(|link, _| link == key(number, peer));
            tables.repace();
            Reply::Done
        }
        Request::Register { domain, region, key } => {
            let key = register(tables, from, domain, (region, key), fds)?;
            Reply::Key { key, proof: tables.prove(from.node, Kind::Region, key) }
        }
        Request::Deregister { key } => {
            let key = (from.node, key);
            tables.regions.get(&key).filter(|it| it.program == from.program).ok_or(Errno::INVAL)?;
            tables.regions.remove(&key);
            Reply::Done
        }
        Request::Resolve { number, key } => return resolve(tables, from, number, key),
        Request::Attach { number, group } => return groups::attach(tables, from, number, group),
        Request::Detach { number, group } => return groups::detach(tables, from, number, group),
        Request::Member { group, after } => {
            let policy = rules.0;
            let mut may_join = |one, other| policy(one, other).is_ok();
            return groups::next_member(tables, &mut may_join, from, group, after);
        }
        Request::Resume { ref object, ref proof } => resume::resume(tables, from, object, proof)?,
        Request::Rejoin { number, gid, peer, end } => {
            return resume::rejoin(tables, (rules.0, rules.1), from, (number, peer, gid), end, fds);
        }
    };
    Ok(Done::with(reply, Vec::new()))
}

/// Joins two queue pairs. The first to ask gets the memory at once: what it sends waits there for the other.
fn connect(
    tables: &mut Tables,
    (policy, limits, way): Rules<'_>,
    from: From,
    number: u32,
    (gid, peer): (Gid, u32),
) -> Result<Done, Errno> {
    let asking = tables.own(from.program, number)?;
    let (transport, revoked) = (asking.transport, asking.revoked);
    let place = tables.node_at(&gid).ok_or(Errno::HOSTUNREACH)?;
    let to = place.node;
    // The policy answers first, so that a node which may not connect learns nothing of another's queue pairs.
    policy(from.node, to)?;
    if (tables.silence)(from.node, to) {
        return Err(Errno::HOSTUNREACH);
    }
    if place.host.is_some() {
        return far::connect(tables, (limits, way), from, number, (gid, peer), place);
    }
    let there = tables.queue_pairs.get(&peer).filter(|it| it.node == to && it.transport == transport);
    let Some(there_program) = there.map(|it| it.program) else {
        return match tables.absent(peer, transport) {
            Errno::AGAIN => tables.wait_for_name(from, Request::Connect { number, gid, peer }),
            errno => Err(errno),
        };
    };
    if revoked || there.is_some_and(|it| it.revoked) {
        return Err(Errno::PERM);
    }
    let is_datagram = transport == Transport::Datagram;
    let link = key(number, peer);
    if is_datagram && tables.has_live(link) {
        return Err(Errno::ALREADY);
    }
    let awaited = tables.links.get(&link).is_some_and(|it| it.first == peer && it.waiting.is_some());
    if awaited {
        let (slot, fds) = tables.take_waiting(from.program, number, link)?;
        tables.set_peer(number, peer);
        return Ok(Done::with(Reply::Connected { end: End::Second, counts: slot.number }, fds));
    }
    if !is_datagram {
        // A queue pair that was reset and connects anew leaves its old connection.
        tables.end_links(|(one, other), _| one == number || other == number);
    }
    if !tables.has_room_for_link(from.node) || !tables.has_room_for_link(to) {
        return Err(Errno::NOBUFS);
    }
    let terms = Both::of(limits, (from.node, to));
    limits::admit(&terms, (from.node, to), &tables.limited())?;
    let made = Made::new(tables, terms.need_relay())?;
    let slot = tables.slot(from.program, number)?;
    let (counts, mut slots) = (slot.number, vec![slot]);
    let nodes = (from.node, to);
    let (relay, own) = (made.relay, made.first);
    if number == peer {
        tables.links.insert(link, Link::near(number, nodes, terms, relay, (None, slots)));
        tables.set_peer(number, peer);
        return Ok(Done::with(Reply::Connected { end: End::Both, counts }, own.into()));
    }
    let mut done = Done::with(Reply::Connected { end: End::First, counts }, own.into());
    let mut waiting = Some(made.second.into());
    if is_datagram {
        let gid = *tables.gids(from.node).first().ok_or(Errno::ADDRNOTAVAIL)?;
        let fds = waiting.take().unwrap_or_default();
        let slot = tables.slot(there_program, peer)?;
        let note = Answer::Reached { number: peer, gid, peer: number, counts: slot.number };
        slots.push(slot);
        done.notes.push((there_program, note, fds));
    } else {
        tables.set_peer(number, peer);
    }
    tables.links.insert(link, Link::near(number, nodes, terms, relay, (waiting, slots)));
    tables.repace();
    Ok(done)
}

/// Holds a region. Its owner may lie about all of it, and harms itself alone: the file is its own, and peers look at it again.
fn register(
    tables: &mut Tables,
    from: From,
    domain: u32,
    (region, key): (Region, Option<u32>),
    fds: Vec<Untrusted>,
) -> Result<u32, Errno> {
    region.start.checked_add(region.length).ok_or(Errno::INVAL)?;
    let file = fds.into_iter().next();
    match (&region.shared, &file) {
        (None, None) => {}
        (Some(shared), Some(file)) => {
            let end = shared.start.checked_add(shared.length).ok_or(Errno::INVAL)?;
            let is_within = shared.start >= region.start && end <= region.start + region.length;
            let is_whole = shared.start.is_multiple_of(PAGE) && shared.length.is_multiple_of(PAGE) && shared.length > 0;
            let needed = if region.access & WRITABLE == 0 { SIZED | SealFlags::FUTURE_WRITE } else { SIZED };
            // Only files of memory have seals: all others are refused here.
            let seals = fcntl_get_seals(file).map_err(|_| Errno::BADF)?;
            let size = u64::try_from(fstat(file)?.st_size).map_err(|_| Errno::INVAL)?;
            if !is_within || !is_whole || size != shared.length || !seals.contains(needed) {
                return Err(Errno::INVAL);
            }
        }
        _ => return Err(Errno::INVAL),
    }
    let held = Held { program: from.program, node: from.node, domain, region, file: file.map(Untrusted::trusted) };
    match key {
        None => tables.add_region(held),
        Some(0) => Err(Errno::INVAL),
        Some(key) => tables.take_region(key, held).map(|()| key),
    }
}

/// Tells of a region to the queue pair that its owner has joined with one in the region's protection domain.
fn resolve(tables: &Tables, from: From, number: u32, key: u32) -> Result<Done, Errno> {
    let peer = tables.own(from.program, number)?.peer.ok_or(Errno::NOTCONN)?;
    if tables.is_relayed(number, peer) && !tables.numbers.contains(&peer) {
        // The owner, on another host, is asked for each operation, and decides.
        let region = Region { start: 0, length: u64::MAX, access: u32::MAX, shared: None };
        return Ok(Done::with(Reply::Region(region), Vec::new()));
    }
    let there = tables.queue_pairs.get(&peer).filter(|it| it.peer == Some(number)).ok_or(Errno::NOTCONN)?;
    let held = tables.regions.get(&(there.node, key));
    let held = held.filter(|it| it.program == there.program && it.domain == there.domain);
    let held = held.ok_or(Errno::ACCESS)?;
    if tables.is_relayed(number, peer) {
        // A limit would be nothing if the peer had the memory itself: its plug-in asks for each operation.
        return Ok(Done::with(Reply::Region(Region { shared: None, ..held.region }), Vec::new()));
    }
    let file = held.file.as_ref().map(OwnedFd::try_clone).transpose().map_err(|_| Errno::MFILE)?;
    Ok(Done::with(Reply::Region(held.region), file.into_iter().collect()))
}

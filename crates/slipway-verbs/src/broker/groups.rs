//! Groups that datagrams go to: their members, on this host and others.
//!
//! Programs send to each member by itself, so the policy holds for each. A program asks for the members once, and hears when they
//! change. Brokers tell each other which queue pairs of theirs are members, one message on its way to each host at a time.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;

use super::Broker;
use super::far::{Name, Question, Way};
use super::reply::{Done, From};
use super::tables::{Tables, numbers_of};
use crate::wire::{Answer, Gid, MEMBERS, Reply, Transport, is_group};

/// Most groups of one queue pair: the next is refused (`ENOMEM`).
const JOINED: usize = 16;
/// Most groups whose members one program hears of.
const HEARD: usize = 256;

/// News of a queue pair for another host's broker, or from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: Gid,
    /// The queue pair.
    pub member: Name,
    /// Whether it is a member from now on, or no more.
    pub is_member: bool,
}

/// A member of a group.
#[derive(Debug, Clone, Copy)]
struct Member {
    node: u32,
    gid: Gid,
    /// Its virtual host, where that is another.
    host: Option<u32>,
}

/// A queue pair's part in a group.
type Part = (Gid, u32);

/// The news for another host's broker.
#[derive(Debug, Default)]
struct Outbox {
    /// The number of the message that has no answer yet.
    ticket: Option<u64>,
    /// Parts that it does not know yet, and the address of each member.
    due: BTreeMap<Part, Gid>,
}

/// All groups, as one broker knows them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BTreeMap<Gid, BTreeMap<u32, Member>>,
    /// Programs that know the members of a group.
    heard: BTreeMap<Gid, BTreeSet<u64>>,
    changed: BTreeSet<Gid>,
    outboxes: BTreeMap<u32, Outbox>,
}

impl Groups {
    fn has(&self, (group, number): Part) -> bool {
        self.members.get(&group).is_some_and(|members| members.contains_key(&number))
    }

    fn add(&mut self, (group, number): Part, member: Member) -> Result<(), Errno> {
        let joined = self.members.values().filter(|members| members.contains_key(&number)).count();
        let members = self.members.entry(group).or_default();
        if members.contains_key(&number) {
            return Ok(());
        }
        if members.len() >= MEMBERS || joined >= JOINED {
            return Err(Errno::NOMEM);
        }
        members.insert(number, member);
        self.news((group, number), member);
        Ok(())
    }

    fn remove(&mut self, part: Part) {
        let Some(members) = self.members.get_mut(&part.0) else { return };
        if let Some(member) = members.remove(&part.1) {
            if members.is_empty() {
                self.members.remove(&part.0);
            }
            self.news(part, member);
        }
    }

    /// A member is new or gone: programs that know the group hear of it, and other hosts where the member is this one's.
    fn news(&mut self, part: Part, member: Member) {
        self.changed.insert(part.0);
        if member.host.is_some() {
            return;
        }
        for outbox in self.outboxes.values_mut() {
            // Two changes before the first was told are none.
            if outbox.due.remove(&part).is_none() {
                outbox.due.insert(part, member.gid);
            }
        }
    }

    /// A queue pair has ended.
    pub(super) fn leave(&mut self, number: u32) {
        let of = |(group, members): (&Gid, &BTreeMap<u32, Member>)| members.contains_key(&number).then_some(*group);
        for group in self.members.iter().filter_map(of).collect::<Vec<_>>() {
            self.remove((group, number));
        }
    }

    /// A program has ended.
    pub(super) fn forget(&mut self, program: u64) {
        self.heard.retain(|_, programs| {
            programs.remove(&program);
            !programs.is_empty()
        });
    }

    /// The policy, or who hears whom, has changed: programs ask anew.
    pub(super) fn change_all(&mut self) {
        self.changed.extend(self.heard.keys());
    }
}

/// Makes a queue pair a member.
pub(super) fn attach(tables: &mut Tables, from: From, number: u32, group: Gid) -> Result<Done, Errno> {
    let pair = tables.own(from.program, number)?;
    if pair.transport != Transport::Datagram || !is_group(&group) {
        return Err(Errno::INVAL);
    }
    let gid = *tables.gids(from.node).first().ok_or(Errno::ADDRNOTAVAIL)?;
    tables.groups.add((group, number), Member { node: from.node, gid, host: None })?;
    Ok(Done::with(Reply::Done, Vec::new()))
}

/// Ends a queue pair's part in a group.
pub(super) fn detach(tables: &mut Tables, from: From, number: u32, group: Gid) -> Result<Done, Errno> {
    tables.own(from.program, number)?;
    if !tables.groups.has((group, number)) {
        return Err(Errno::INVAL);
    }
    tables.groups.remove((group, number));
    Ok(Done::with(Reply::Done, Vec::new()))
}

/// Tells of the next member that the program may reach. It learns nothing of others.
pub(super) fn next_member(
    tables: &mut Tables,
    may_join: &mut dyn FnMut(u32, u32) -> bool,
    from: From,
    group: Gid,
    after: u32,
) -> Result<Done, Errno> {
    let groups = &mut tables.groups;
    let known = groups.heard.values().filter(|programs| programs.contains(&from.program)).count();
    let programs = groups.heard.entry(group).or_default();
    if !programs.contains(&from.program) && known >= HEARD {
        return Err(Errno::NOMEM);
    }
    programs.insert(from.program);
    let behind = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
    let mut members = groups.members.get(&group).into_iter().flat_map(|members| members.range(behind));
    let silence = &tables.silence;
    let next = members.find(|(_, member)| may_join(from.node, member.node) && !silence(from.node, member.node));
    let reply = next.map_or(Reply::Done, |(&number, member)| Reply::Member { gid: member.gid, number });
    Ok(Done::with(reply, Vec::new()))
}

impl Broker {
    /// Has brokers of these hosts hear of members from now on.
    pub(super) fn tell_members_to(&mut self, hosts: BTreeSet<u32>) {
        self.tables.groups.outboxes = hosts.into_iter().map(|host| (host, Outbox::default())).collect();
    }

    /// Hears from another host's broker that a queue pair there is a member of a group, or no more.
    ///
    /// # Errors
    /// The reason not to believe it, or that the group is full.
    pub fn told(&mut self, host: u32, news: &Membership) -> Result<(), Errno> {
        let Membership { group, member: Name { gid, number }, is_member } = *news;
        // A broker speaks for nodes and numbers of its own host alone.
        let node = self.tables.far.get(&gid).filter(|it| it.host == Some(host)).ok_or(Errno::PERM)?.node;
        if !numbers_of(host, self.host.1).contains(&number) || !is_group(&group) {
            return Err(Errno::PERM);
        }
        if is_member {
            self.tables.groups.add((group, number), Member { node, gid, host: Some(host) })?;
        } else {
            self.tables.groups.remove((group, number));
        }
        self.tell_of_groups();
        Ok(())
    }

    /// Tells programs and other brokers what has changed.
    pub(super) fn tell_of_groups(&mut self) {
        while let Some(group) = self.tables.groups.changed.pop_first() {
            for program in self.tables.groups.heard.remove(&group).unwrap_or_default() {
                self.tell(program, &Answer::Regrouped { group }, &[]);
            }
        }
        send_news(&mut self.tables, &mut self.way);
    }

    /// Another broker has heard the news with this number. True where there was one.
    pub(super) fn heard_news(&mut self, ticket: u64) -> bool {
        let outboxes = self.tables.groups.outboxes.values_mut();
        let Some(outbox) = outboxes.into_iter().find(|outbox| outbox.ticket == Some(ticket)) else { return false };
        outbox.ticket = None;
        send_news(&mut self.tables, &mut self.way);
        true
    }
}

/// Sends each host the next news, where it has heard the last.
fn send_news(tables: &mut Tables, way: &mut Way) {
    let hosts: Vec<u32> = tables.groups.outboxes.keys().copied().collect();
    for host in hosts {
        let ticket = tables.next_ticket();
        let groups = &mut tables.groups;
        let Some(outbox) = groups.outboxes.get_mut(&host).filter(|outbox| outbox.ticket.is_none()) else { continue };
        let Some(((group, number), gid)) = outbox.due.pop_first() else { continue };
        let is_member = groups.members.get(&group).is_some_and(|members| members.contains_key(&number));
        let news = Membership { group, member: Name { gid, number }, is_member };
        match way(host, ticket, &Question::Group(news)) {
            Ok(()) => outbox.ticket = Some(ticket),
            // Its turn comes with the next change.
            Err(_) => drop(outbox.due.insert((group, number), gid)),
        }
    }
}

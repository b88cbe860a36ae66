//! Groups that datagrams go to: their members, on this host and others.
//!
//! Programs send to each member by itself, so the policy holds for each. A program asks for the members once, and hears when they
//! change. Brokers tell each other which queue pairs of theirs are members, one message on its way to each host at a time.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::Broker;
use super::members::{Member, Outbox};
use super::questions::{Membership, Name, Question, Way};
use super::reply::{Done, From};
use super::tables::{Tables, numbers_of};
use crate::wire::{Answer, Gid, Reply, Transport, is_group};

/// Most groups whose members one program hears of.
const HEARD: usize = 256;

/// Makes a queue pair a member.
pub(super) fn attach(tables: &mut Tables, from: From, number: u32, group: Gid) -> Result<Done, Errno> {
    let pair = tables.own(from.program, number)?;
    if pair.transport != Transport::Datagram || !is_group(&group) {
        return Err(Errno::INVAL);
    }
    let gid = *tables.gids(from.node).first().ok_or(Errno::ADDRNOTAVAIL)?;
    tables.groups.ask();
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
    groups.ask();
    let known = groups.heard.values().filter(|programs| programs.contains(&from.program)).count();
    let is_known = groups.heard.get(&group).is_some_and(|programs| programs.contains(&from.program));
    if !is_known && known >= HEARD {
        return Err(Errno::NOMEM);
    }
    groups.heard.entry(group).or_default().insert(from.program);
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

    /// Hears that another host's broker knows no members.
    pub fn asked_for_groups(&mut self, host: u32) {
        self.tables.groups.begin_anew(host);
        self.tell_of_groups();
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
        if outbox.asks {
            // Its turn comes with the next change, where the way is closed now.
            if way(host, ticket, &Question::Groups).is_ok() {
                (outbox.ticket, outbox.asks) = (Some(ticket), false);
            }
            continue;
        }
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

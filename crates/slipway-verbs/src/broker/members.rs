//! Members of groups, as one broker knows them, and what others have yet to hear.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;

use crate::wire::{Gid, MEMBERS};

/// Most groups of one queue pair: the next is refused (`ENOMEM`).
const JOINED: usize = 16;

/// A member of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) node: u32,
    pub(super) gid: Gid,
    /// Its virtual host, where that is another.
    pub(super) host: Option<u32>,
}

/// A queue pair's part in a group.
pub(super) type Part = (Gid, u32);

/// The news for another host's broker.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The number of the message that has no answer yet.
    pub(super) ticket: Option<u64>,
    /// It is to be asked for its members first.
    pub(super) asks: bool,
    /// Parts that it does not know yet, and the address of each member.
    pub(super) due: BTreeMap<Part, Gid>,
}

/// All groups, as one broker knows them.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) members: BTreeMap<Gid, BTreeMap<u32, Member>>,
    /// Programs that know the members of a group.
    pub(super) heard: BTreeMap<Gid, BTreeSet<u64>>,
    pub(super) changed: BTreeSet<Gid>,
    pub(super) outboxes: BTreeMap<u32, Outbox>,
    has_asked: bool,
}

impl Groups {
    pub(super) fn has(&self, (group, number): Part) -> bool {
        self.members.get(&group).is_some_and(|members| members.contains_key(&number))
    }

    pub(super) fn add(&mut self, (group, number): Part, member: Member) -> Result<(), Errno> {
        let joined = self.members.values().filter(|members| members.contains_key(&number)).count();
        if self.has((group, number)) {
            return Ok(());
        }
        // Nothing is kept of a group that is refused.
        if joined >= JOINED || self.members.get(&group).is_some_and(|members| members.len() >= MEMBERS) {
            return Err(Errno::NOMEM);
        }
        self.members.entry(group).or_default().insert(number, member);
        self.news((group, number), member);
        Ok(())
    }

    pub(super) fn remove(&mut self, part: Part) {
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

    /// Has other hosts be asked for their members, once programs of this one have to do with groups.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.has_asked, true) {
            self.outboxes.values_mut().for_each(|outbox| outbox.asks = true);
        }
    }

    /// A broker that knows no members serves this host now: those of the host are named anew, and it hears of those here.
    pub(super) fn begin_anew(&mut self, host: u32) {
        for (part, _) in self.parts(Some(host)).collect::<Vec<_>>() {
            self.remove(part);
        }
        let own = self.parts(None).collect();
        if let Some(outbox) = self.outboxes.get_mut(&host) {
            outbox.due = own;
        }
    }

    /// The parts of a host's queue pairs, with the address of each; `None`: of this host's.
    fn parts(&self, host: Option<u32>) -> impl Iterator<Item = (Part, Gid)> + '_ {
        let all = self.members.iter().flat_map(|(group, of)| of.iter().map(|(number, it)| ((*group, *number), it)));
        all.filter(move |(_, it)| it.host == host).map(|(part, it)| (part, it.gid))
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

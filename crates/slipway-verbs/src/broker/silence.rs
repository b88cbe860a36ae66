//! Nodes that do not hear one another, as behind a link that is cut: their connections stand still, and go on afterwards.
//!
//! The broker tells both programs, and their plug-ins stand still. They fail requests after the retries of the queue pair, as a device
//! does. A stream to another host drops what comes, whatever programs do. A relay moves nothing.

use std::os::fd::AsFd as _;

use super::Broker;
use super::objects::Silence;
use super::tables::Tables;
use crate::wire::Answer;

impl Broker {
    /// Has connections of nodes that do not hear one another stand still from now on, and all others go on. New ones of such
    /// nodes are refused (`EHOSTUNREACH`). Gives how many connections changed.
    pub fn set_silence(&mut self, silence: Silence) -> usize {
        self.tables.silence = silence;
        let changed = self.tables.hold_silence();
        for (program, note) in &changed.1 {
            self.tell(*program, note, &[]);
        }
        self.tables.groups.change_all();
        self.tell_of_groups();
        changed.0
    }

    /// Ends all programs of a node: they lose the device, and their peers see connections that have ended. Gives how many
    /// connections.
    pub fn end_programs(&mut self, node: u32) -> usize {
        let links = self.tables.links.values().filter(|it| it.nodes.0 == node || it.nodes.1 == node).count();
        let gone: Vec<u64> = self.programs.iter().filter(|(_, it)| it.node == node).map(|(id, _)| *id).collect();
        for program in gone {
            self.forget(program);
        }
        links
    }
}

impl Tables {
    /// Stops connections, or lets them go on. Gives how many, and the notes for their programs.
    fn hold_silence(&mut self) -> (usize, Vec<(u64, Answer)>) {
        let (mut changed, mut notes) = (0, Vec::new());
        for (&(one, other), link) in &mut self.links {
            let is_silent = (self.silence)(link.nodes.0, link.nodes.1);
            if std::mem::replace(&mut link.is_silent, is_silent) == is_silent {
                continue;
            }
            changed += 1;
            if let Some(stream) = &link.stream {
                (self.still)(stream.as_fd(), is_silent);
            }
            if let (Some(id), Some(relay)) = (link.relay, &self.relay) {
                relay.hold(id, is_silent);
            }
            for (number, peer) in [(one, other), (other, one)] {
                if let Some(queue_pair) = self.queue_pairs.get(&number).filter(|_| link.is_of(number)) {
                    notes.push((queue_pair.program, Answer::Silenced { number, peer, is_silent }));
                }
            }
        }
        (changed, notes)
    }
}

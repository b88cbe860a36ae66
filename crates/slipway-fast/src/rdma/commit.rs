//! Changes and what follows from them: the records of all that changed hold at once, and others hear of it only then. A router that is
//! killed has done a step and left the rest to the next one, or has done nothing.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use super::State;
use super::channel::Channel;

/// The state, while nobody else changes it.
pub(super) struct Locked<'a>(pub(super) MutexGuard<'a, State>);

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.commit();
        self.0.act();
        self.0.commit();
    }
}

/// News for others, once the changes hold.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Channels with new events.
    pub(super) channels: Vec<u64>,
    /// Links that have a message to send, or are over.
    pub(super) links: Vec<u64>,
    /// Links whose next message was acted on.
    pub(super) heard: Vec<u64>,
    /// Channels that are closed.
    pub(super) closed: Vec<Channel>,
}

impl State {
    fn commit(&mut self) {
        self.connections.save();
        for link in self.due.links.iter().filter_map(|number| self.links.get(number)) {
            link.save();
        }
        self.records.commit();
    }

    fn act(&mut self) {
        let Due { channels, links, heard, closed } = std::mem::take(&mut self.due);
        for link in heard {
            if let Some(link) = self.links.get_mut(&link) {
                link.consume();
            }
        }
        for number in links {
            if self.links.get_mut(&number).is_some_and(|link| !link.flush()) {
                self.links.remove(&number);
            }
        }
        for channel in channels {
            let Some(channel) = self.channels.get_mut(&channel) else { continue };
            for counted in channel.give() {
                self.connections.reported(counted);
            }
        }
        drop(closed);
    }
}

//! Commands of programs on identifiers of their own.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::{Commands, Fate, Queued, Standing};
use crate::rdma_wire::{Kind, Offer};

impl Commands<'_> {
    /// The answer of a command that has been carried out, and that its thread makes again. Any other command is that thread's last
    /// from now on.
    pub(crate) fn repeated(&mut self, at: Standing<'_>) -> Option<u32> {
        let answer = self.0.channels.get(&at.channel)?.done.answer(at.made);
        if answer.is_none() {
            self.0.begin(at);
        }
        answer
    }

    /// A command was carried out, and is answered with a number.
    pub(crate) fn did(&mut self, at: Standing<'_>, answer: u32) {
        self.0.did(at, answer);
    }

    pub(crate) fn create(&mut self, at: Standing<'_>, uid: u64, port_space: u16) -> Result<u32, Errno> {
        self.0.connections.create(at.node, at.channel, uid, port_space)
    }

    /// An identifier of the caller's channel.
    fn own(&self, at: Standing<'_>, id: u32) -> Result<u32, Errno> {
        match self.0.connections.channel(id) {
            Some(channel) if channel == at.channel => Ok(id),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::NOENT),
        }
    }

    pub(crate) fn destroy(&mut self, at: Standing<'_>, id: u32) -> Result<u32, Errno> {
        let id = self.own(at, id)?;
        self.0.destroy(id).ok_or(Errno::NOENT)
    }

    pub(crate) fn bind(&mut self, at: Standing<'_>, id: u32, address: SocketAddr) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.bind(id, address)
    }

    pub(crate) fn listen(&mut self, at: Standing<'_>, id: u32, backlog: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.listen(id, backlog)?;
        self.0.listener_is_there();
        Ok(())
    }

    /// Looks for an address. False where there is none: the program may try once more.
    pub(crate) fn resolve_address(
        &mut self,
        at: Standing<'_>,
        id: u32,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<bool, Errno> {
        let id = self.own(at, id)?;
        let found = self.0.connections.resolve(id, from, to)?;
        let (kind, status) =
            found.map_or_else(|errno| (Kind::AddressError, -errno.raw_os_error()), |()| (Kind::AddressResolved, 0));
        self.0.tell_of(id, kind, status);
        Ok(found.is_ok())
    }

    pub(crate) fn resolve_route(&mut self, at: Standing<'_>, id: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.connections.resolve_route(id)?;
        self.0.tell_of(id, Kind::RouteResolved, 0);
        Ok(())
    }

    pub(crate) fn route(&self, at: Standing<'_>, id: u32) -> Result<[u8; 208], Errno> {
        let id = self.own(at, id)?;
        self.0.connections.route(id).map(|route| route.write()).ok_or(Errno::NOENT)
    }

    pub(crate) fn attributes(&self, at: Standing<'_>, id: u32, state: u32) -> Result<[u8; 144], Errno> {
        let id = self.own(at, id)?;
        self.0.connections.attributes(id).and_then(|attributes| attributes.write(state)).ok_or(Errno::INVAL)
    }

    /// Asks for a connection. The caller asks another router for a wish.
    pub(crate) fn connect(&mut self, at: Standing<'_>, id: u32, offer: &Offer) -> Result<Fate, Errno> {
        let id = self.own(at, id)?;
        let fate = self.0.ask(id, offer)?;
        if matches!(fate, Fate::Waits) && !self.0.held.hold(at.node, id, offer) {
            self.0.give_up(id);
        }
        Ok(fate)
    }

    pub(crate) fn accept(&mut self, at: Standing<'_>, id: u32, uid: u64, offer: &Offer) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        let (peer, kind, offer) = self.0.connections.accept(id, uid, offer)?;
        self.0.tell_peer(peer, kind, 0, offer);
        Ok(())
    }

    pub(crate) fn reject(&mut self, at: Standing<'_>, id: u32, private: Vec<u8>) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        let (peer, (kind, status), offer) = self.0.connections.reject(id, private)?;
        self.0.tell_peer(peer, kind, status, offer);
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, at: Standing<'_>, id: u32) -> Result<(), Errno> {
        let id = self.own(at, id)?;
        self.0.disconnect(id);
        Ok(())
    }

    /// Joins a group of datagrams. Gives the number of the membership.
    pub(crate) fn join_group(&mut self, at: Standing<'_>, id: u32, uid: u64, group: SocketAddr) -> Result<u32, Errno> {
        let id = self.own(at, id)?;
        let (member, channel, event) = self.0.connections.join_group(id, uid, group)?;
        self.0.tell(channel, member, event);
        Ok(member)
    }

    /// Leaves a group. Gives how many events the membership has reported.
    pub(crate) fn leave_group(&mut self, at: Standing<'_>, member: u32) -> Result<u32, Errno> {
        let member = self.own(at, member)?;
        self.0.forget_events(at.channel, member);
        self.0.connections.leave_group(member)
    }

    /// Moves an identifier to the caller's channel from another. Gives how many events it has reported.
    pub(crate) fn migrate(&mut self, at: Standing<'_>, id: u32, from: u64) -> Result<u32, Errno> {
        if self.0.connections.channel(id) != Some(from) || !self.0.channels.contains_key(&at.channel) {
            return Err(Errno::INVAL);
        }
        let moved = self.0.forget_events(from, id);
        let reported = self.0.connections.migrate(id, at.channel).ok_or(Errno::NOENT)?;
        for Queued { counted, event, .. } in moved {
            self.0.tell(at.channel, counted, event);
        }
        Ok(reported)
    }
}

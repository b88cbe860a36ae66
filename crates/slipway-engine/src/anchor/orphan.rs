//! A part that has lost the machine that brought the lab up, and ends itself.
//!
//! Anchors send each other [pulses](super::pulse) through the lab's own tunnels, from a virtual host of each machine. The
//! machine that brought the lab up, the origin, sends to all others, and they to it. A part that nobody kept yet ends when
//! it loses the origin; one that is kept does so where the lab has `orphaned_after`. ADR 0074 says why.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use slipway_lab::id::{HostId, MachineId};
use slipway_lab::model::Lab;
use slipway_sys::ns::{current_mount, with_net};

use super::Blueprint;
use super::error::AnchorError;
use super::pulse::{LENGTH, Pulse, Pulses};
use crate::guard::Guard;
use crate::protocol::now;
use crate::remains::clean;

/// The UDP port of pulses, on the virtual hosts' own network.
const PORT: u16 = 4788;
/// Longest time between two pulses.
const BEAT: Duration = Duration::from_secs(5);
/// Pulses in the time that a lab allows.
const BEATS: u32 = 4;
/// Silence after which a part that nobody kept ends. A remote shell gives a machine up after as long.
const NOT_KEPT: Duration = Duration::from_mins(1);
/// Least time until the first pulse: the origin may still unpack images.
const FIRST: Duration = Duration::from_mins(10);
/// Pulses read at once: programs of nodes on driver `host` can send to the port too, and must not keep the anchor there.
const MOST_AT_ONCE: u32 = 1000;

/// The watch over a lab's other machines.
#[derive(Default)]
pub(super) struct Watch(Option<Peers>);

struct Peers {
    /// The machine's mount namespace, in which the part is cleared up.
    home: OwnedFd,
    socket: Option<UdpSocket>,
    pulses: Pulses,
    own: MachineId,
    is_origin: bool,
    /// Those that hear this machine, and that it hears.
    others: Vec<(MachineId, SocketAddrV4)>,
    /// All parts are made, and the lab stays.
    is_kept: bool,
    /// Allowed silence once it is kept.
    limit: Option<Duration>,
    next: Instant,
    heard: Instant,
    /// A pulse has come.
    has_heard: bool,
}

impl Watch {
    /// Before the anchor leaves the machine's mount namespace. A lab on one machine has nothing to watch.
    pub(super) fn prepare(lab: &Lab) -> Result<Self, AnchorError> {
        let (Some(secret), true) = (lab.part.secret, lab.is_spread()) else { return Ok(Self::default()) };
        let own = lab.part.machine;
        let is_origin = own == lab.part.origin;
        let peers = lab.machines.ids().filter(|&machine| machine != own && (is_origin || machine == lab.part.origin));
        let others = peers.filter_map(|machine| {
            let host = first_host(lab, machine)?;
            Some((machine, SocketAddrV4::new(lab.hosts[host].ipv4?, PORT)))
        });
        let begin = Instant::now();
        Ok(Self(Some(Peers {
            home: current_mount().map_err(AnchorError::system("keep the machine's mount namespace"))?,
            socket: None,
            pulses: Pulses::new(&secret.into(), lab.part.number),
            own,
            is_origin,
            others: others.collect(),
            is_kept: false,
            limit: lab.orphaned_after.map(slipway_document::units::Seconds::duration),
            next: begin,
            heard: begin,
            has_heard: false,
        })))
    }

    /// Takes the port on this machine's first host. Each machine of a lab has one.
    pub(super) fn open<'a>(
        &mut self,
        lab: &Lab,
        host_net: impl Fn(HostId) -> BorrowedFd<'a>,
    ) -> Result<(), AnchorError> {
        let Some(peers) = &mut self.0 else { return Ok(()) };
        let Some(host) = first_host(lab, peers.own) else { return Ok(()) };
        let address = lab.hosts[host].ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((address, PORT))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let opened = with_net(host_net(host), bind).and_then(|opened| opened);
        peers.socket =
            Some(opened.map_err(AnchorError::system("open the port where machines of the lab hear each other"))?);
        Ok(())
    }

    /// All parts are made, and the lab stays. The others learn it from the origin.
    pub(super) fn keep(&mut self) {
        if let Some(peers) = self.0.as_mut().filter(|peers| peers.is_origin) {
            (peers.is_kept, peers.heard, peers.next) = (true, Instant::now(), Instant::now());
        }
    }

    /// The socket of pulses, to wait for.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_ref()?.socket.as_ref()?.as_fd())
    }

    /// Time until there is something to do without a word from others.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let peers = self.0.as_ref().filter(|peers| peers.socket.is_some())?;
        let end = peers.allowed().and_then(|allowed| peers.heard.checked_add(allowed));
        Some(end.map_or(peers.next, |end| end.min(peers.next)).saturating_duration_since(now))
    }

    /// Hears and sends. `true`: this part has lost the others for as long as it may.
    pub(super) fn tend(&mut self, has_words: bool, time: Instant) -> bool {
        let Some(peers) = self.0.as_mut().filter(|peers| peers.socket.is_some()) else { return false };
        if has_words {
            peers.hear(time);
        }
        if time >= peers.next {
            peers.send();
            peers.next = time + peers.beat();
        }
        peers.allowed().is_some_and(|allowed| time.saturating_duration_since(peers.heard) >= allowed)
    }

    /// Has a process of its own remove what outlives the anchor, once that has ended. It keeps the lock, so nobody takes the
    /// lab's name meanwhile.
    pub(super) fn clear_up(&self, blueprint: &Blueprint) -> io::Result<()> {
        let Some(peers) = &self.0 else { return Ok(()) };
        let silence = peers.heard.elapsed().as_secs();
        tracing::warn!("no word has come from the machine that brought the lab up for {silence} s: this part ends");
        let end = || {
            // The next `up` or `down` of this name finds what stays.
            let _ = clean(&blueprint.dir);
            let _ = blueprint.lock.unlink();
        };
        Guard::post_in(peers.home.as_fd(), blueprint.lock.file().as_fd(), end).map(Guard::leave)
    }
}

impl Peers {
    /// The silence after which this part ends. `None`: never.
    fn allowed(&self) -> Option<Duration> {
        let limit = match (self.is_kept, self.is_origin) {
            (true, _) => self.limit?,
            // Its channel is a process on the same machine.
            (false, true) => return None,
            (false, false) => self.limit.map_or(NOT_KEPT, |limit| limit.min(NOT_KEPT)),
        };
        Some(if self.has_heard { limit } else { limit.max(FIRST) })
    }

    fn beat(&self) -> Duration {
        self.limit.map_or(BEAT, |limit| BEAT.min(limit / BEATS))
    }

    fn hear(&mut self, time: Instant) {
        let Some(socket) = &self.socket else { return };
        let mut bytes = [0; LENGTH + 1];
        for _ in 0..MOST_AT_ONCE {
            match socket.recv(&mut bytes) {
                Ok(length) => {
                    let pulse = self.pulses.read(&bytes[..length]);
                    let is_known = |pulse: &Pulse| self.others.iter().any(|&(other, _)| other == pulse.from);
                    if let Some(Pulse { is_kept, .. }) = pulse.filter(is_known) {
                        (self.heard, self.has_heard) = (time, true);
                        self.is_kept |= is_kept && !self.is_origin;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A host that refuses a pulse is told of here too (`udp(7)`).
                Err(_) => {}
            }
        }
    }

    fn send(&self) {
        let Some(socket) = &self.socket else { return };
        let pulse = self.pulses.write(Pulse { from: self.own, is_kept: self.is_kept }, now());
        for (_, to) in &self.others {
            // One that cannot be sent is one that is not heard.
            let _ = socket.send_to(&pulse, to);
        }
    }
}

fn first_host(lab: &Lab, machine: MachineId) -> Option<HostId> {
    lab.hosts.position(|host| host.machine == machine)
}

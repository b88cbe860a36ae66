//! An interface from within its node's network namespace: what the kernel is asked to put there.

use std::os::fd::{AsFd as _, BorrowedFd};

use slipway_document::units::{Fraction, Seconds};
use slipway_lab::condition::{self, LinkConditions};
use slipway_lab::scenario::Direction;
use slipway_sys::bpf::Program;
use slipway_sys::netlink::{
    self, AddrGenMode, BpfFilter, Handle, Netem, Netlink, NetlinkError, NewLink, Peer, Qdisc, ReplaceQdisc, Request,
    SetLink, Tbf, Veth,
};
use slipway_sys::ns::with_net;
use slipway_sys::tap::Tap;
use slipway_wire::default_limit;

use super::error::LinkError;
use super::gate::{physical, return_program};

/// Frames that may wait for the wire to read them. At 10 Gb/s of full packets it may so be away for 5 ms.
const TAP_QUEUE: u32 = 4096;
/// Bytes that Ethernet adds to a packet, as queueing disciplines count them.
const ETHERNET: u32 = 14;
/// And a VLAN tag.
const VLAN: u32 = 4;
/// A token bucket's rate that holds nothing back, bytes per second. (At a tenth of it, its timer already does.)
const UNBOUND: u64 = 100_000_000_000;
/// More than any large segment, bytes.
const GSO_MAX_SIZE: u32 = 1 << 20;

/// The place of a gate at the host's end of an interface.
pub(super) const OUTSIDE: u16 = 3;
/// The name of gates in `tc filter`.
pub(super) const GATE: &str = "slipway";

/// What packets are queued by.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A rate alone.
    Tbf(Tbf),
    /// Netem, below a token bucket that holds nothing back, but cuts large segments that do not fit it into packets. (A
    /// smaller `gso_max_segs` does not: connections keep the one that they began with.)
    Netem(Tbf, Box<Netem>),
}

impl Shape {
    /// A rate alone.
    #[must_use]
    pub fn tbf(conditions: &LinkConditions, mtu: u32) -> Self {
        let packet = mtu + ETHERNET;
        let rate = conditions.rate.map_or(u64::MAX, |rate| (rate.0 / 8).max(1));
        // What goes in a millisecond: then the rate holds over any longer time, and fast links need not cut large segments.
        let burst = u32::try_from(rate / 1000).unwrap_or(u32::MAX).max(2 * packet);
        let limit = room(conditions, mtu).saturating_mul(packet);
        Self::Tbf(Tbf { rate, burst, limit })
    }

    /// Everything that netem can do.
    #[must_use]
    pub fn netem(conditions: &LinkConditions, mtu: u32, seed: [u8; 32]) -> Self {
        let share = |fraction: Option<Fraction>| fraction.map_or(0.0, |fraction| fraction.0);
        let time = |seconds: Option<Seconds>| seconds.map(Seconds::duration).unwrap_or_default();
        let netem = Netem {
            limit: room(conditions, mtu),
            delay: time(conditions.delay),
            jitter: time(conditions.jitter),
            distribution: conditions.distribution.and_then(|shape| match shape {
                condition::Distribution::Uniform => None,
                condition::Distribution::Normal => Some(netlink::Distribution::Normal),
                condition::Distribution::Pareto => Some(netlink::Distribution::Pareto),
                condition::Distribution::Paretonormal => Some(netlink::Distribution::ParetoNormal),
            }),
            delay_correlation: share(conditions.delay_correlation),
            loss: loss(conditions.loss),
            loss_correlation: share(conditions.loss_correlation),
            duplicate: share(conditions.duplicate),
            corrupt: share(conditions.corrupt),
            reorder: share(conditions.reorder),
            reorder_correlation: share(conditions.reorder_correlation),
            gap: conditions.gap.unwrap_or(1),
            rate: conditions.rate.map(|rate| (rate.0 / 8).max(1)),
            seed: seed.first_chunk().copied().map(u64::from_le_bytes),
            ..Netem::default()
        };
        let per_packet = conditions.loss.is_some() || netem.corrupt + netem.duplicate + netem.reorder > 0.0;
        let burst = if per_packet { mtu + ETHERNET + VLAN } else { GSO_MAX_SIZE };
        Self::Netem(Tbf { rate: UNBOUND, burst, limit: u32::MAX }, Box::new(netem))
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// What puts it at the root of a device.
    fn requests(&self, index: u32) -> Vec<Request<'static>> {
        let at = |parent, handle, qdisc| Request::ReplaceQdisc(ReplaceQdisc { index, parent, handle, qdisc });
        match self {
            Self::Tbf(tbf) => vec![at(Handle::ROOT, 1, Qdisc::Tbf(*tbf))],
            Self::Netem(cutter, netem) => vec![
                at(Handle::ROOT, 1, Qdisc::Tbf(*cutter)),
                at(Handle { major: 1, minor: 1 }, 2, Qdisc::Netem((**netem).clone())),
            ],
        }
    }
}

/// Packets that may wait where nothing is delayed, or nothing says how many of them may wait for the rate.
fn room(conditions: &LinkConditions, mtu: u32) -> u32 {
    let limit = conditions.limit.unwrap_or_else(|| default_limit(conditions, mtu));
    conditions.queue.map_or(limit, |queue| limit.min(queue))
}

fn loss(asked: Option<condition::Loss>) -> netlink::Loss {
    match asked {
        None => netlink::Loss::Random(0.0),
        Some(condition::Loss::Random(share)) => netlink::Loss::Random(share.0),
        Some(condition::Loss::GilbertElliott { p, r, one_minus_h, one_minus_k }) => {
            netlink::Loss::GilbertElliott { p: p.0, r: r.0, one_minus_h: one_minus_h.0, one_minus_k: one_minus_k.0 }
        }
        Some(condition::Loss::FourState { p13, p31, p32, p23, p14 }) => {
            netlink::Loss::FourState { p13: p13.0, p31: p31.0, p32: p32.0, p23: p23.0, p14: p14.0 }
        }
    }
}

/// Where an interface is met: within its node, or at the host's end of it. The latter is for nodes whose programs may change what is
/// at their own end. The host's end receives what the node sends, and the other way round.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) net: BorrowedFd<'a>,
    /// The name of the device there: the node's interface, or the host's end of it.
    pub(crate) name: String,
    pub(crate) outside: bool,
}

/// The way to an interface, which is entered when there is first something to do there.
pub(super) struct Entrance<'a> {
    seat: Seat<'a>,
    inside: Option<Inside<'a>>,
}

impl<'a> Entrance<'a> {
    pub(super) fn new(seat: Seat<'a>) -> Self {
        Self { seat, inside: None }
    }

    /// Whether there is nothing to be entered: a node may delete an interface of its own, and then nothing passes it.
    pub(super) fn is_gone(&self) -> Result<bool, LinkError> {
        if !self.seat.outside || self.inside.is_some() {
            return Ok(false);
        }
        let mut netlink = self.seat.open()?;
        match netlink.link(&self.seat.name) {
            Err(NetlinkError::NoDevice(_)) => Ok(true),
            Err(NetlinkError::Refused(all)) if all.iter().all(|one| one.error.raw_os_error() == Some(libc::ENODEV)) => {
                Ok(true)
            }
            found => Ok(found.map(|_| false)?),
        }
    }

    /// The interface from within.
    pub(super) fn enter(&mut self) -> Result<&mut Inside<'a>, LinkError> {
        let inside = match self.inside.take() {
            Some(entered) => entered,
            None => Inside::enter(&self.seat)?,
        };
        Ok(self.inside.insert(inside))
    }
}

impl Seat<'_> {
    fn open(&self) -> Result<Netlink, LinkError> {
        let opened = with_net(self.net, Netlink::open).and_then(|socket| socket);
        opened.map_err(LinkError::system("enter its network namespace"))
    }
}

/// An interface, entered.
pub(super) struct Inside<'a> {
    net: BorrowedFd<'a>,
    netlink: Netlink,
    /// Names of devices beside it begin so.
    name: String,
    index: u32,
    outside: bool,
    pub(super) mtu: u32,
}

impl<'a> Inside<'a> {
    fn enter(seat: &Seat<'a>) -> Result<Self, LinkError> {
        let mut netlink = seat.open()?;
        let link = netlink.link(&seat.name)?;
        // The names of ports leave no room behind them, and there are others' beside.
        let name = if seat.outside { format!("w{}", link.index) } else { seat.name.clone() };
        Ok(Self { net: seat.net, netlink, name, index: link.index, outside: seat.outside, mtu: link.mtu })
    }

    /// Makes places for programs. The kernel drops what is queued on the interface meanwhile (`qdisc_graft`,
    /// `net/sched/sch_api.c`). At the host's end they came with the port.
    pub(super) fn hook(&mut self) -> Result<(), LinkError> {
        if self.outside { Ok(()) } else { self.run(&[Request::AddClsact(self.index)]) }
    }

    /// Runs programs there, on what it sends and receives.
    pub(super) fn attach(&mut self, egress: &Program, ingress: &Program) -> Result<(), LinkError> {
        // At the host's end they are behind what keeps the node to its address and to the policy.
        let (out, into) = (netlink::Direction::Egress, netlink::Direction::Ingress);
        let (out, into, order) = if self.outside { (into, out, OUTSIDE) } else { (out, into, 1) };
        let filter = |direction, program| gate_filter(self.index, direction, order, program);
        let filters = [filter(out, egress), filter(into, ingress)];
        self.run(&filters)
    }

    /// Takes the places away, and the programs in them.
    pub(super) fn unhook(&mut self) -> Result<(), LinkError> {
        self.run(&[Request::DeleteClsact(self.index)])
    }

    /// Makes the tap by which packets of a direction go to the wire and come back. Gives its interface index too.
    pub(super) fn make_tap(&mut self, direction: Direction) -> Result<(Tap, u32), LinkError> {
        let name = match direction {
            Direction::Egress => format!("{}-out", self.name),
            Direction::Ingress => format!("{}-in", self.name),
        };
        let made = with_net(self.net, || Tap::create(&name)).and_then(|tap| tap);
        let tap = made.map_err(LinkError::system(format!("make {name}")))?;
        let index = self.netlink.link(&name)?.index;
        let back = return_program(self.index, physical(direction, self.outside))?;
        self.run(&[
            Request::SetLink(SetLink {
                index,
                mtu: Some(self.mtu),
                tx_queue_len: Some(TAP_QUEUE),
                addr_gen_mode: Some(AddrGenMode::None),
                ..SetLink::default()
            }),
            Request::AddClsact(index),
            gate_filter(index, netlink::Direction::Ingress, 1, &back),
            Request::SetLink(SetLink { index, up: Some(true), ..SetLink::default() }),
        ])?;
        Ok((tap, index))
    }

    /// Makes a detour for what the device receives, so that it can be queued: a pair of devices, through which packets go before
    /// the interface has them. Gives the interface index of its beginning. (An `ifb` takes only packets that `act_mirred`
    /// has marked as redirected: `ifb_xmit`, drivers/net/ifb.c.)
    pub(super) fn make_detour(&mut self) -> Result<u32, LinkError> {
        let [name, end] = [format!("{}-shape", self.name), format!("{}-back", self.name)];
        let mtu = Some(self.mtu);
        let link = NewLink { name: name.clone(), mtu, ..NewLink::default() };
        let peer = Peer { name: end.clone(), mtu, ..Peer::default() };
        self.run(&[Request::AddVeth(Veth { link, peer })])?;
        let mut index = |name: &str| self.netlink.link(name).map(|link| link.index);
        let (begin, end) = (index(&name)?, index(&end)?);
        let back = return_program(self.index, Direction::Ingress)?;
        let silent = |index| SetLink { index, addr_gen_mode: Some(AddrGenMode::None), ..SetLink::default() };
        let up = |index| SetLink { index, up: Some(true), ..SetLink::default() };
        self.run(&[
            Request::SetLink(silent(begin)),
            Request::SetLink(silent(end)),
            Request::AddClsact(end),
            gate_filter(end, netlink::Direction::Ingress, 1, &back),
            Request::SetLink(up(end)),
            Request::SetLink(up(begin)),
        ])?;
        Ok(begin)
    }

    /// Takes a detour away, and what is queued on it.
    pub(super) fn remove_detour(&mut self, begin: u32) -> Result<(), LinkError> {
        self.run(&[Request::DeleteLink(begin)])
    }

    /// Changes how packets are queued: on their way out of the interface, or on its detour.
    pub(super) fn reshape(
        &mut self,
        detour: Option<u32>,
        from: Option<&Shape>,
        to: Option<&Shape>,
    ) -> Result<(), LinkError> {
        let index = detour.unwrap_or(self.index);
        let mut requests = Vec::new();
        if from.is_some_and(|from| to.is_none_or(|to| !to.is_same_kind(from))) {
            requests.push(Request::DeleteQdisc { index, parent: Handle::ROOT });
        }
        requests.extend(to.iter().flat_map(|shape| shape.requests(index)));
        self.run(&requests)
    }

    /// Takes away whatever queueing discipline there is. Best effort: there may be none.
    pub(super) fn bare(&mut self, detour: Option<u32>) {
        let index = detour.unwrap_or(self.index);
        let _ = self.run(&[Request::DeleteQdisc { index, parent: Handle::ROOT }]);
    }

    fn run(&mut self, requests: &[Request<'_>]) -> Result<(), LinkError> {
        Ok(self.netlink.run(requests)?)
    }
}

fn gate_filter(index: u32, direction: netlink::Direction, order: u16, program: &Program) -> Request<'_> {
    Request::AddBpfFilter(BpfFilter { index, direction, order, program: program.as_fd(), name: GATE })
}

//! Neighbour solicitations (RFC 4861) to the one node that they are about, on networks too large for every node to know
//! every other.
//!
//! A solicitation is a multicast that every port of a bridge gets, though one node answers. A bridge can answer ARP for
//! the nodes (`proxy_arp_wifi`), but not this. Its counterpart for IPv6 (`neigh_suppress`) answers no port that has the
//! option, and only for targets behind ports that have it (the kernel's `br_do_suppress_nd`). So a program on the
//! host's end of each node's interface, before the bridge, replaces the multicast Ethernet address by the target's. The
//! bridge then forwards the solicitation as it does any frame. The target answers by itself.

use std::os::fd::AsFd as _;

use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::bpf::asm::{AluOp, Cond, Helper, Insn, Operand, R0, R1, R2, R3, R4, R5, R6, R10, Size, skb};
use slipway_sys::bpf::{LoadError, Map, MapKind, Program, TC_ACT_OK};
use slipway_sys::netlink::{BpfFilter, Bridge, Direction, NewLink, Request};

use super::driver::{members, try_in_scratch};
use Operand::{Imm, Of};

/// Shows in `bpftool prog`, `bpftool map` and `tc filter`.
const NAME: &str = "slipway_ns";
/// Bytes of an IPv6 address.
const ADDRESS: u8 = 16;
/// Bytes of an Ethernet address.
const MAC: u8 = 6;
/// `ETH_P_IPV6` as it lies in memory.
const IPV6: u16 = 0x86dd_u16.to_be();
/// The next header of `ICMPv6`, and the type of a neighbour solicitation.
const ICMPV6: i32 = 58;
const SOLICITATION: i32 = 135;
/// Where they are in a frame, and where the target address is: after 14 bytes of Ethernet header, 40 of IPv6 and 8 of `ICMPv6`.
const NEXT_HEADER: i16 = 14 + 6;
const TYPE: i16 = 14 + 40;
const TARGET: i16 = TYPE + 8;

/// The program for a network's ports.
#[derive(Debug)]
pub(super) struct Solicit(Program);

impl Solicit {
    /// Loads the program with the addresses of all members. `None` where this kernel, or this user namespace, has no such
    /// programs: solicitations are then multicast, as anywhere.
    pub(super) fn of(lab: &Lab, network: usize) -> Option<Self> {
        let solicit = Self::load(lab, network).ok()?;
        let link = NewLink { name: "bridge".to_owned(), index: Some(100), ..NewLink::default() };
        let trial = [Request::AddBridge(Bridge { link }), Request::AddClsact(100), solicit.on(100)];
        try_in_scratch(DriverKind::Bridge, "cls_bpf", &trial).ok()?;
        Some(solicit)
    }

    fn load(lab: &Lab, network: usize) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Refused { name: NAME.to_owned(), error, log: String::new() };
        let known: Vec<_> = members(lab, network).filter_map(|(.., one)| Some((one.ipv6?, one.mac))).collect();
        let entries = u32::try_from(known.len().max(1)).unwrap_or(u32::MAX);
        let macs = Map::create(MapKind::Hash, NAME, ADDRESS.into(), MAC.into(), entries).map_err(refused)?;
        known.iter().try_for_each(|(address, mac)| macs.update(&address.octets(), mac)).map_err(refused)?;
        // The program keeps the map.
        Program::load(NAME, &code(&macs)).map(Self)
    }

    /// Puts the program on what comes in by a device that has a clsact, behind what may drop it.
    pub(super) fn on(&self, index: u32) -> Request<'_> {
        let (direction, order) = (Direction::Ingress, 4);
        Request::AddBpfFilter(BpfFilter { index, direction, order, program: self.0.as_fd(), name: NAME })
    }
}

/// Registers: R6 context. Stack: the target address. Other packets pass after a few comparisons, which read them in
/// place. The program writes only to a solicitation, since the first write gives the packet memory of its own.
fn code(macs: &Map) -> Vec<Insn<'_>> {
    let key = -16;
    vec![
        Insn::Mov(R6, Of(R1)),
        Insn::Load(Size::Word, R2, R6, skb::PROTOCOL),
        Insn::JumpIf(Cond::Ne, R2, Imm(IPV6.into()), "pass"),
        Insn::Load(Size::Word, R2, R6, skb::DATA),
        Insn::Load(Size::Word, R3, R6, skb::DATA_END),
        Insn::Mov(R4, Of(R2)),
        Insn::Alu(AluOp::Add, R4, Imm(i32::from(TARGET) + i32::from(ADDRESS))),
        Insn::JumpIf(Cond::Gt, R4, Of(R3), "pass"),
        Insn::Load(Size::Byte, R4, R2, NEXT_HEADER),
        Insn::JumpIf(Cond::Ne, R4, Imm(ICMPV6), "pass"),
        Insn::Load(Size::Byte, R4, R2, TYPE),
        Insn::JumpIf(Cond::Ne, R4, Imm(SOLICITATION), "pass"),
        Insn::Load(Size::Double, R4, R2, TARGET),
        Insn::Store(Size::Double, R10, key, Of(R4)),
        Insn::Load(Size::Double, R4, R2, TARGET + 8),
        Insn::Store(Size::Double, R10, key + 8, Of(R4)),
        Insn::LoadMap(R1, macs.as_fd()),
        Insn::Mov(R2, Of(R10)),
        Insn::Alu(AluOp::Add, R2, Imm(key.into())),
        Insn::Call(Helper::MapLookupElem),
        Insn::JumpIf(Cond::Eq, R0, Imm(0), "pass"),
        Insn::Mov(R1, Of(R6)),
        Insn::Mov(R2, Imm(0)),
        Insn::Mov(R3, Of(R0)),
        Insn::Mov(R4, Imm(MAC.into())),
        Insn::Mov(R5, Imm(0)),
        Insn::Call(Helper::SkbStoreBytes),
        Insn::Label("pass"),
        Insn::Mov(R0, Imm(TC_ACT_OK)),
        Insn::Exit,
    ]
}

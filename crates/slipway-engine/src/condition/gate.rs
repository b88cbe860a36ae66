//! The tc-BPF filter of a link, or gate: a program on an interface's egress and one on its ingress (`bpf/gate.bpf.c`). For
//! every packet they decide whether it is dropped, goes by way of the user-space netem, or passes.
//!
//! A lab's gates share the two maps by which they decide, so that a change of conditions is a write to memory. A constant of
//! each program is the number of its entry.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;

use slipway_lab::scenario::Direction;
use slipway_sys::bpf::{LoadError, Map, MapKind, Object, Program};
use slipway_sys::netlink::Mac;

static OBJECT: Object = Object::new("slipway_gate", BYTES);
static OF_RETURN: Object = Object::new("slipway_return", BYTES);
const BYTES: &[u8] = include_bytes!("../../bpf/gate.bpf.o");

/// Partitions that can hold at once.
pub(super) const LANES: usize = 32;
/// Groups that a partition can have: one bit of a lane is left for the gate to count with.
pub(super) const GROUPS: usize = 0x7fff;

/// A node's group in each of the partitions that hold, 1 to [`GROUPS`]; 0 is none.
pub(super) type Side = [u16; LANES];

/// In an [`Entry`] and the gate's code: drop everything.
const CUT: u32 = 1;
/// Look who is at the other end.
const PARTED: u32 = 2;
/// Of what is sent, let only that pass which comes back from the wire.
const LAST: u32 = 4;

/// Bytes of [`Entry`].
const ENTRY: usize = 8 + SIDE;
/// Bytes of [`Side`].
const SIDE: usize = 2 * LANES;
/// Bytes of an address: IPv6, or IPv4 within it (RFC 4291, 2.5.5.2).
const ADDRESS: usize = 16;

/// What a gate decides by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Drops everything.
    pub(super) cut: bool,
    /// Of what is sent, drops everything but what the wire gives back.
    pub(super) last: bool,
    /// Interface index of the device by which packets go, to the wire or on a detour; 0 for none.
    pub(super) by: u32,
    /// The node's own groups.
    pub(super) side: Side,
}

/// The maps of a lab's gates.
#[derive(Debug)]
pub(super) struct Gates {
    entries: Map,
    /// Groups by the other end's address.
    sides: Map,
}

impl Gates {
    /// Makes the maps, for so many gates and addresses.
    pub(super) fn new(gates: usize, addresses: usize) -> io::Result<Self> {
        let most = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        Ok(Self {
            entries: Map::create(MapKind::Array, "slipway_gates", 4, ENTRY, most(gates))?,
            sides: Map::create(MapKind::Hash, "slipway_sides", ADDRESS, SIDE, most(addresses))?,
        })
    }

    /// Changes what a gate decides by. Flag and device change together.
    pub(super) fn set(&self, gate: u32, entry: Entry) -> io::Result<()> {
        let mut value = [0; ENTRY];
        let mut verdict = if entry.cut { CUT } else { 0 };
        // In no group of any partition, as nearly always: nothing to look up.
        verdict |= if entry.side == Side::default() { 0 } else { PARTED };
        verdict |= if entry.last { LAST } else { 0 };
        value[..4].copy_from_slice(&verdict.to_ne_bytes());
        value[4..8].copy_from_slice(&entry.by.to_ne_bytes());
        value[8..].copy_from_slice(&side_bytes(entry.side));
        self.entries.update(&gate.to_ne_bytes(), &value)
    }

    /// Changes the groups of whoever has this address.
    pub(super) fn set_side(&self, address: IpAddr, side: Side) -> io::Result<()> {
        let key = address_key(address);
        if side == Side::default() {
            return self.sides.delete(&key).map(drop);
        }
        self.sides.update(&key, &side_bytes(side))
    }

    /// Changes the groups of whoever has this Ethernet address, whatever else it sends under.
    pub(super) fn set_side_behind(&self, mac: Mac, side: Side) -> io::Result<()> {
        let mut key = [0; ADDRESS];
        key[..2].fill(0xff);
        key[2..8].copy_from_slice(&mac);
        if side == Side::default() {
            return self.sides.delete(&key).map(drop);
        }
        self.sides.update(&key, &side_bytes(side))
    }

    /// Loads the program of a gate for what a node sends or receives, at its own interface or at the host's end of it.
    pub(super) fn program(&self, gate: u32, direction: Direction, outside: bool) -> Result<Program, LoadError> {
        let is_egress = |direction| [u8::from(direction == Direction::Egress)];
        let (sends, leaves) = (is_egress(direction), is_egress(physical(direction, outside)));
        let constants = [("number", &gate.to_ne_bytes()[..]), ("sends", &sends), ("leaves", &leaves)];
        let maps = [("entries", self.entries.as_fd()), ("sides", self.sides.as_fd())];
        OBJECT.with(&constants, &maps)?.load("gate")
    }
}

/// Which way packets of a node's pass the device that they are met at.
pub(super) fn physical(direction: Direction, outside: bool) -> Direction {
    match (direction, outside) {
        (direction, false) => direction,
        (Direction::Egress, true) => Direction::Ingress,
        (Direction::Ingress, true) => Direction::Egress,
    }
}

/// Loads the program of a tap, or of a detour's end: what comes from there goes on to `interface`, as sent or as received
/// by it.
pub(super) fn return_program(interface: u32, direction: Direction) -> Result<Program, LoadError> {
    let receives = [u8::from(direction == Direction::Ingress)];
    let constants = [("interface", &interface.to_ne_bytes()[..]), ("receives", &receives)];
    OF_RETURN.with(&constants, &[])?.load("give_back")
}

fn address_key(address: IpAddr) -> [u8; ADDRESS] {
    match address {
        IpAddr::V4(ipv4) => Ipv4Addr::to_ipv6_mapped(&ipv4).octets(),
        IpAddr::V6(ipv6) => ipv6.octets(),
    }
}

fn side_bytes(side: Side) -> [u8; SIDE] {
    let mut bytes = [0; SIDE];
    for (to, group) in bytes.chunks_exact_mut(2).zip(side) {
        to.copy_from_slice(&group.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // `include/uapi/linux/pkt_cls.h`, and the mark of `bpf/gate.bpf.c`.
    const TC_ACT_UNSPEC: i32 = -1;
    const TC_ACT_STOLEN: i32 = 4;
    const TC_ACT_REDIRECT: i32 = 7;
    const MARK: i32 = 0x511b;
    const PASS: (i32, u32) = (TC_ACT_UNSPEC, 0);
    const DROP: (i32, u32) = (TC_ACT_STOLEN, 0);
    const WIRE: (i32, u32) = (TC_ACT_REDIRECT, 0);

    /// A frame from `from` to `to`, with nothing in it that a gate does not look at.
    fn frame(from: &str, to: &str) -> Vec<u8> {
        let mut frame = vec![0; 14];
        match (from.parse(), to.parse()) {
            (Ok(IpAddr::V4(from)), Ok(IpAddr::V4(to))) => {
                frame[12..].copy_from_slice(&[0x08, 0x00]);
                frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            (Ok(IpAddr::V6(from)), Ok(IpAddr::V6(to))) => {
                frame[12..].copy_from_slice(&[0x86, 0xdd]);
                frame.extend([0x60, 0, 0, 0, 0, 0, 59, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => unreachable!("tests name two addresses of one kind"),
        }
        frame
    }

    fn arp(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0, 0, 0]);
        frame.extend(from);
        frame.extend([0; 6]);
        frame.extend(to);
        frame
    }

    struct Bench {
        gates: Gates,
        egress: Program,
        ingress: Program,
    }

    impl Bench {
        fn new() -> Self {
            let gates = Gates::new(2, 8).expect("these tests need root, to make BPF maps");
            let load = |gate, direction| gates.program(gate, direction, false).expect("the verifier takes it");
            let (egress, ingress) = (load(0, Direction::Egress), load(1, Direction::Ingress));
            Self { gates, egress, ingress }
        }

        fn set(&self, entry: Entry) {
            for gate in 0..2 {
                self.gates.set(gate, entry).expect("there are two");
            }
        }

        /// What becomes of a frame to `to` on its way out, and of one from there on its way in.
        fn both(&self, to: &str) -> [(i32, u32); 2] {
            let me = if to.contains(':') { "fd00::1" } else { "10.0.0.1" };
            [outcome(&self.egress, &frame(me, to), 0), outcome(&self.ingress, &frame(to, me), 0)]
        }
    }

    fn outcome(program: &Program, frame: &[u8], mark: u32) -> (i32, u32) {
        let outcome = program.run(frame, mark).expect("runs");
        (outcome.action, outcome.mark)
    }

    fn side(groups: &[u16]) -> Side {
        let mut side = Side::default();
        side[..groups.len()].copy_from_slice(groups);
        side
    }

    #[test]
    fn what_has_no_conditions_passes_and_what_is_cut_does_not() {
        let bench = Bench::new();
        assert_eq!(bench.both("10.0.0.2"), [PASS; 2]);
        bench.set(Entry { by: 9, ..Entry::default() });
        assert_eq!(bench.both("10.0.0.2"), [WIRE; 2]);
        bench.set(Entry { cut: true, by: 9, ..Entry::default() });
        assert_eq!(bench.both("fd00::2"), [DROP; 2]);
    }

    #[test]
    fn a_dead_node_sends_nothing_of_its_own() {
        let bench = Bench::new();
        for by in [0, 9] {
            bench.set(Entry { last: true, by, ..Entry::default() });
            assert_eq!(bench.both("10.0.0.2")[0], DROP, "by {by}");
            bench.set(Entry { last: true, by, side: side(&[1]), ..Entry::default() });
            assert_eq!(bench.both("10.0.0.2")[0], DROP, "by {by}, parted");
        }
    }

    /// There a gate meets what a node sends as what its port receives.
    #[test]
    fn at_the_hosts_end_a_gate_does_the_same() {
        let gates = Gates::new(2, 8).expect("these tests need root, to make BPF maps");
        let load = |gate, direction| gates.program(gate, direction, true).expect("the verifier takes it");
        let (sends, receives) = (load(0, Direction::Egress), load(1, Direction::Ingress));
        let set = |entry| (0..2).for_each(|gate| gates.set(gate, entry).expect("there are two"));
        let to = |mac: [u8; 6]| [&mac[..], &frame("10.0.0.1", "10.9.9.9")[6..]].concat();
        let from = |mac: [u8; 6]| [&[0; 6], &mac[..], &frame("10.9.9.9", "10.0.0.1")[12..]].concat();
        let mark = MARK.cast_unsigned();
        set(Entry { by: 9, ..Entry::default() });
        assert_eq!(outcome(&sends, &to([2; 6]), 0), WIRE);
        assert_eq!(outcome(&sends, &to([2; 6]), mark), PASS);
        assert_eq!(
            outcome(&receives, &from([2; 6]), mark).0,
            TC_ACT_REDIRECT,
            "a mark says nothing on the way out of a port"
        );
        set(Entry { by: 9, last: true, ..Entry::default() });
        assert_eq!((outcome(&sends, &to([2; 6]), 0), outcome(&sends, &to([2; 6]), mark)), (DROP, PASS));
        // Whatever addresses of IP there are in it.
        gates.set_side_behind([4; 6], side(&[2])).expect("set");
        set(Entry { side: side(&[1]), ..Entry::default() });
        for (mac, becomes) in [([4; 6], DROP), ([2; 6], PASS)] {
            assert_eq!(outcome(&sends, &to(mac), 0), becomes);
            assert_eq!(outcome(&receives, &from(mac), 0), becomes);
        }
        gates.set_side_behind([4; 6], Side::default()).expect("set");
        assert_eq!(outcome(&sends, &to([4; 6]), 0), PASS);
    }

    #[test]
    fn what_comes_back_from_the_wire_passes_without_its_mark() {
        let bench = Bench::new();
        bench.set(Entry { by: 9, ..Entry::default() });
        let frame = frame("10.0.0.2", "10.0.0.1");
        assert_eq!(outcome(&bench.ingress, &frame, MARK.cast_unsigned()), PASS);
        assert_eq!(outcome(&bench.ingress, &frame, 5), (TC_ACT_REDIRECT, 5), "a mark of somebody else's");
        assert_eq!(outcome(&bench.egress, &frame, MARK.cast_unsigned()).0, TC_ACT_REDIRECT, "a node may set any mark");
        bench.set(Entry { cut: true, ..Entry::default() });
        assert_eq!(
            outcome(&bench.ingress, &frame, MARK.cast_unsigned()).0,
            TC_ACT_STOLEN,
            "what is under way is lost too"
        );
    }

    #[test]
    fn partitions_part_groups_in_every_lane() {
        let bench = Bench::new();
        for lane in 0..LANES {
            let of = |group| {
                let mut side = Side::default();
                side[lane] = group;
                side
            };
            bench.set(Entry { side: of(1), ..Entry::default() });
            for (address, group) in [("10.0.0.2", 1), ("10.0.0.3", 0x7fff), ("fd00::3", 2), ("fd00::2", 1)] {
                bench.gates.set_side(address.parse().expect("an address"), of(group)).expect("set");
            }
            assert_eq!((bench.both("10.0.0.2"), bench.both("fd00::2")), ([PASS; 2], [PASS; 2]), "lane {lane}");
            assert_eq!((bench.both("10.0.0.3"), bench.both("fd00::3")), ([DROP; 2], [DROP; 2]), "lane {lane}");
            assert_eq!(bench.both("10.0.0.4"), [PASS; 2], "in no group");
            let ask = arp([10, 0, 0, 1], [10, 0, 0, 3]);
            assert_eq!(outcome(&bench.egress, &ask, 0), DROP);
            let asked = arp([10, 0, 0, 3], [10, 0, 0, 1]);
            assert_eq!(outcome(&bench.ingress, &asked, 0), DROP);
            bench.gates.set_side("10.0.0.3".parse().expect("an address"), Side::default()).expect("joined");
            assert_eq!(bench.both("10.0.0.3"), [PASS; 2]);
        }
    }

    #[test]
    fn groups_are_told_apart_to_the_last_bit() {
        let bench = Bench::new();
        let groups = [0, 1, 2, 3, 0x3fff, 0x4000, 0x7ffe, 0x7fff];
        for ours in groups {
            for theirs in groups {
                bench.set(Entry { side: side(&[0, ours, 1]), ..Entry::default() });
                bench.gates.set_side("10.0.0.2".parse().expect("an address"), side(&[5, theirs, 1])).expect("set");
                let expected = if ours == theirs || ours == 0 || theirs == 0 { PASS } else { DROP };
                assert_eq!(bench.both("10.0.0.2"), [expected; 2], "{ours} and {theirs}");
            }
        }
    }

    #[test]
    fn partitions_add_up() {
        let bench = Bench::new();
        bench.set(Entry { side: side(&[1, 1]), ..Entry::default() });
        let set = |groups: &[u16]| {
            bench.gates.set_side("10.0.0.2".parse().expect("an address"), side(groups)).expect("set");
            bench.both("10.0.0.2")[0]
        };
        assert_eq!([set(&[1, 1]), set(&[0, 1]), set(&[1, 2]), set(&[2, 0])], [PASS, PASS, DROP, DROP]);
    }

    #[test]
    fn a_frame_too_short_for_its_kind_does_not_get_around_a_partition() {
        let bench = Bench::new();
        bench.set(Entry { side: side(&[1]), ..Entry::default() });
        let short = &arp([10, 0, 0, 1], [10, 0, 0, 3])[..40];
        assert_eq!(outcome(&bench.egress, short, 0), DROP);
    }

    #[test]
    fn the_way_back_is_loaded() {
        for direction in [Direction::Egress, Direction::Ingress] {
            return_program(2, direction).expect("the verifier takes it");
        }
    }
}

//! The programs.
//!
//! A packet from one node to another passes where it may **open** something: a rule about sender, receiver and the port that is
//! asked for decides. Where it may not, it passes as part of what the receiver opened:
//!
//! - a segment of TCP that is no first one (`SYN` without `ACK`), where the receiver might connect to the port that it is from;
//! - a datagram of UDP, or an answer to a ping, where the receiver sent what it answers in the last two minutes;
//! - an error of ICMP, where either may open anything to the other.
//!
//! Rules that name ports are about TCP and UDP. Where such a rule is about the two, no packet passes that does not show
//! its port. Fragments, packets with extension headers of IPv6, other protocols and all that is not IP show none. ICMP
//! has no ports; the other rules decide about it. ARP (RFC 826) and neighbour discovery (RFC 4861) pass. The
//! guard at the sender's port drops messages that only routers may send, whatever the rules are ([`control`]).

pub(super) mod control;
mod rules;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;

use slipway_sys::bpf::TC_ACT_SHOT;
use slipway_sys::bpf::asm::{
    AluOp, Cond, Helper, Insn, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Reg, Size, skb,
};
use slipway_sys::netlink::Mac;

use self::rules::Rules;
use super::Table;
use Insn::{Alu, Call, Exit, Jump, JumpIf, Label, Load, LoadMap, Mov, Store};
use Operand::{Imm, Of};

/// As an action: on to the next filter, where there is one (`include/uapi/linux/pkt_cls.h`).
const TC_ACT_UNSPEC: i32 = -1;

/// Bytes of a node's key: its Ethernet address, and two that are zero.
pub(super) const ADDRESS: usize = 8;
/// Bytes of a flow: the index of who asks and of who is asked, both ports, the protocol.
pub(super) const FLOW: usize = 16;

/// Bytes of a node's entry, whose sets of rules have so many words.
pub(super) const fn node_bytes(words: usize) -> usize {
    8 + 16 * words
}

// Offsets on the stack.
const KEY: i16 = -8;
const FLOW_AT: i16 = -24;
const TIME: i16 = -32;
const PROTOCOL: i16 = -36;
/// Both as numbers of the processor's.
const SOURCE: i16 = -40;
const DESTINATION: i16 = -44;
/// The port that rules are asked about.
const ASKED: i16 = -48;
/// Steps that may follow.
const KIND: i16 = -52;
/// The start of a header.
const HEAD: i16 = -72;
/// The address that is looked for, and where in the packet a header begins.
const ADDRESS_AT: i16 = -96;
const AT: i16 = -100;

/// Where it may pass, it may be answered.
const MAY_BE_ANSWERED: i32 = 1;
/// Where it may open nothing, it may be an answer.
const MAY_ANSWER: i32 = 2;
/// Where it may open nothing, it may be of a connection that the receiver opened.
const MAY_GO_ON: i32 = 4;

/// Ethernet's header, bytes; where the source is in it.
const ETHERNET: i32 = 14;
const FROM: i32 = 6;
/// Where an IP header has the address that it is from, and the one that it is to.
const SOURCE_OF_IPV4: i32 = 12;
const SOURCE_OF_IPV6: i32 = 8;
const DESTINATION_OF_IPV4: i32 = 16;
const DESTINATION_OF_IPV6: i32 = 24;

const TCP: i32 = 6;
const UDP: i32 = 17;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
/// Headers of IPv6 behind which there is another (IANA, "IPv6 Extension Header Types"), and what is none in it: ICMP.
const EXTENSIONS: [i32; 9] = [0, 43, 44, 51, 60, 135, 139, 140, ICMP];

/// A flow may be answered for so long after its last packet: 112 × 2³⁰ ns, two minutes.
const PATIENCE: (i32, i32) = (30, 112);

/// An `EtherType` as the context has it: two bytes in network order, read as one number of the processor's.
fn network_order(ethertype: u16) -> i32 {
    ethertype.to_be().into()
}

/// An address as the two numbers that it is stored by.
fn halves([first @ .., fifth, sixth]: Mac) -> (i32, i32) {
    (i32::from_ne_bytes(first), u16::from_ne_bytes([fifth, sixth]).into())
}

/// A sender that is no gateway.
pub(super) struct Own {
    /// As [`Table::addresses`] has it.
    pub(super) number: u32,
    /// Its addresses on this interface, which are looked for first.
    pub(super) ipv4: Ipv4Addr,
    pub(super) ipv6: Option<Ipv6Addr>,
}

/// The program for what the node of this address sends: nothing in another's name, neither of Ethernet nor of IP. To forged
/// packets others answer, with errors of ICMP or resets, to a node that the sender may not reach. An address of nobody's passes.
pub(super) fn sent(table: &Table, mac: Mac, own: Option<Own>) -> Vec<Insn<'_>> {
    let (first, last) = halves(mac);
    let mut code = vec![Mov(R6, Of(R1)), Mov(R2, Imm(FROM))];
    read(&mut code, KEY, 6);
    differs(&mut code, KEY, first, "drop");
    code.extend([Load(Size::Half, R1, R10, KEY + 4), JumpIf(Cond::Ne, R1, Imm(last), "drop")]);
    if let Some(own) = own {
        from_itself(&mut code, table, &own);
    }
    end(&mut code);
    code
}

/// On to "pass" where the packet is not in another node's name, else to "drop".
fn from_itself<'a>(code: &mut Vec<Insn<'a>>, table: &'a Table, own: &Own) {
    code.extend([
        Load(Size::Word, R1, R6, skb::PROTOCOL),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x86dd)), "from 6"),
        JumpIf(Cond::Ne, R1, Imm(network_order(0x0800)), "pass"),
        Mov(R2, Imm(ETHERNET + SOURCE_OF_IPV4)),
    ]);
    read_ipv4(code);
    differs(code, ADDRESS_AT + 12, i32::from_ne_bytes(own.ipv4.octets()), "whose source");
    code.extend([Jump("pass"), Label("from 6"), Mov(R2, Imm(ETHERNET + SOURCE_OF_IPV6))]);
    read(code, ADDRESS_AT, 16);
    if let Some(ipv6) = own.ipv6 {
        for (at, four) in [0, 4, 8, 12].into_iter().zip(ipv6.octets().chunks_exact(4)) {
            let four = i32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
            differs(code, ADDRESS_AT + at, four, "whose source");
        }
        code.push(Jump("pass"));
    }
    code.push(Label("whose source"));
    look_up(code, &table.addresses, ADDRESS_AT);
    code.extend([
        JumpIf(Cond::Eq, R0, Imm(0), "pass"),
        Load(Size::Word, R1, R0, 0),
        JumpIf(Cond::Ne, R1, Imm(own.number.cast_signed()), "drop"),
    ]);
}

/// On to a label where four bytes on the stack are others than these.
fn differs(code: &mut Vec<Insn<'_>>, at: i16, four: i32, on: &'static str) {
    code.extend([
        // Without the sign that it is extended by.
        Mov(R2, Imm(four)),
        Alu(AluOp::Lsh, R2, Imm(32)),
        Alu(AluOp::Rsh, R2, Imm(32)),
        Load(Size::Word, R1, R10, at),
        JumpIf(Cond::Ne, R1, Of(R2), on),
    ]);
}

/// The program for what the node of this address receives. Registers: R6 context, R7 the sender's entry, R8 the receiver's,
/// R9 what is known of all rules.
pub(super) fn received(table: &Table, mac: Mac) -> Vec<Insn<'_>> {
    let rules = Rules { words: i16::try_from(table.words).unwrap_or(i16::MAX / 64) };
    let mut code = vec![
        Mov(R6, Of(R1)),
        Load(Size::Word, R1, R6, skb::PROTOCOL),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x0806)), "pass"),
    ];
    who(&mut code, table, mac);
    code.extend(rules.quick());
    headers(&mut code);
    transports(&mut code);

    // It is judged as a whole: nothing is known of its port.
    code.push(Label("whole"));
    code.extend(rules.named());
    code.extend([
        JumpIf(Cond::Ne, R5, Imm(0), "drop"),
        Store(Size::Word, R10, PROTOCOL, Imm(0)),
        Label("plain"),
        Store(Size::Word, R10, ASKED, Imm(0)),
        Store(Size::Word, R10, KIND, Imm(0)),
    ]);

    code.extend([Label("opens"), Load(Size::Word, R1, R10, ASKED), Store(Size::Word, R10, KEY, Of(R1))]);
    look_up(&mut code, &table.ports, KEY);
    code.push(JumpIf(Cond::Eq, R0, Imm(0), "drop"));
    code.extend(rules.decide(R7, R8));
    code.extend([
        Load(Size::Word, R1, R10, KIND),
        JumpIf(Cond::Ne, R5, Imm(0), "denied"),
        JumpIf(Cond::Set, R1, Imm(MAY_BE_ANSWERED), "remember"),
        Jump("pass"),
        Label("denied"),
        JumpIf(Cond::Set, R1, Imm(MAY_GO_ON), "goes on"),
        JumpIf(Cond::Set, R1, Imm(MAY_ANSWER), "answers"),
        Jump("drop"),
    ]);

    code.extend([Label("goes on"), Load(Size::Word, R1, R10, SOURCE), Store(Size::Word, R10, KEY, Of(R1))]);
    look_up(&mut code, &table.ports, KEY);
    code.push(JumpIf(Cond::Eq, R0, Imm(0), "drop"));
    code.extend(rules.decide(R8, R7));
    code.extend([JumpIf(Cond::Eq, R5, Imm(0), "pass"), Jump("drop")]);

    code.push(Label("error"));
    for (asks, is_asked) in [(R7, R8), (R8, R7)] {
        code.extend(rules.opens_any(asks, is_asked));
        code.push(JumpIf(Cond::Ne, R5, Imm(0), "pass"));
    }
    code.push(Jump("drop"));

    remember(&mut code, table);
    answers(&mut code, table);
    end(&mut code);
    code
}

/// Reads so many bytes of the packet, from the offset in R2 on, to the stack.
fn read(code: &mut Vec<Insn<'_>>, to: i16, bytes: i32) {
    code.extend([
        Mov(R1, Of(R6)),
        Mov(R3, Of(R10)),
        Alu(AluOp::Add, R3, Imm(to.into())),
        Mov(R4, Imm(bytes)),
        Call(Helper::SkbLoadBytes),
        JumpIf(Cond::Ne, R0, Imm(0), "drop"),
    ]);
}

/// Reads an address of IPv4, from the offset in R2 on, as IPv6 has it (RFC 4291, 2.5.5.2).
fn read_ipv4(code: &mut Vec<Insn<'_>>) {
    code.extend([
        Store(Size::Double, R10, ADDRESS_AT, Imm(0)),
        Store(Size::Word, R10, ADDRESS_AT + 8, Imm(0)),
        Store(Size::Half, R10, ADDRESS_AT + 10, Imm(0xffff)),
    ]);
    read(code, ADDRESS_AT + 12, 4);
}

/// R0 = address of the value of what lies on the stack.
fn look_up<'a>(code: &mut Vec<Insn<'a>>, map: &'a slipway_sys::bpf::Map, key: i16) {
    code.extend([
        LoadMap(R1, map.as_fd()),
        Mov(R2, Of(R10)),
        Alu(AluOp::Add, R2, Imm(key.into())),
        Call(Helper::MapLookupElem),
    ]);
}

/// Finds sender, receiver and rules. An address that none of the network's nodes has is nobody here.
fn who<'a>(code: &mut Vec<Insn<'a>>, table: &'a Table, mac: Mac) {
    let (first, last) = halves(mac);
    code.extend([Store(Size::Double, R10, KEY, Imm(0)), Mov(R2, Imm(FROM))]);
    read(code, KEY, 6);
    look_up(code, &table.nodes, KEY);
    code.extend([
        JumpIf(Cond::Eq, R0, Imm(0), "drop"),
        Mov(R7, Of(R0)),
        Store(Size::Word, R10, KEY, Imm(first)),
        Store(Size::Half, R10, KEY + 4, Imm(last)),
    ]);
    look_up(code, &table.nodes, KEY);
    code.extend([JumpIf(Cond::Eq, R0, Imm(0), "drop"), Mov(R8, Of(R0)), Store(Size::Word, R10, KEY, Imm(0))]);
    look_up(code, &table.rules, KEY);
    code.extend([JumpIf(Cond::Eq, R0, Imm(0), "drop"), Mov(R9, Of(R0))]);
}

/// On to "transport" with its protocol in R3 and its offset in R2, or to "whole".
fn headers(code: &mut Vec<Insn<'_>>) {
    code.extend([
        Load(Size::Word, R1, R6, skb::PROTOCOL),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x86dd)), "ipv6"),
        JumpIf(Cond::Ne, R1, Imm(network_order(0x0800)), "whole"),
        Mov(R2, Imm(ETHERNET)),
    ]);
    read(code, HEAD, 10);
    code.extend([
        // Options are passed over; what is shorter than a header (RFC 791) is none.
        Load(Size::Byte, R2, R10, HEAD),
        Alu(AluOp::And, R2, Imm(0xf)),
        JumpIf(Cond::Lt, R2, Imm(5), "drop"),
        Alu(AluOp::Lsh, R2, Imm(2)),
        Alu(AluOp::Add, R2, Imm(ETHERNET)),
        // More fragments, or an offset.
        Load(Size::Byte, R1, R10, HEAD + 6),
        Alu(AluOp::And, R1, Imm(0x3f)),
        Load(Size::Byte, R3, R10, HEAD + 7),
        Alu(AluOp::Or, R1, Of(R3)),
        JumpIf(Cond::Ne, R1, Imm(0), "whole"),
        Load(Size::Byte, R3, R10, HEAD + 9),
        JumpIf(Cond::Eq, R3, Imm(ICMPV6), "whole"),
        Jump("transport"),
        Label("ipv6"),
        Mov(R2, Imm(ETHERNET + 6)),
    ]);
    read(code, HEAD, 1);
    code.push(Load(Size::Byte, R3, R10, HEAD));
    code.extend(EXTENSIONS.map(|extension| JumpIf(Cond::Eq, R3, Imm(extension), "whole")));
    code.push(Mov(R2, Imm(ETHERNET + 40)));
}

/// On to "opens" with ports, and what else there is to do, or to "plain" or "error".
fn transports(code: &mut Vec<Insn<'_>>) {
    code.extend([
        Label("transport"),
        Store(Size::Word, R10, PROTOCOL, Of(R3)),
        JumpIf(Cond::Eq, R3, Imm(TCP), "tcp"),
        JumpIf(Cond::Eq, R3, Imm(UDP), "udp"),
        JumpIf(Cond::Eq, R3, Imm(ICMP), "icmp"),
        JumpIf(Cond::Eq, R3, Imm(ICMPV6), "icmpv6"),
        Jump("whole"),
        Label("tcp"),
    ]);
    read(code, HEAD, 14);
    code.extend([
        Store(Size::Word, R10, KIND, Imm(0)),
        Load(Size::Byte, R1, R10, HEAD + 13),
        // SYN, and not ACK (RFC 9293, 3.1).
        Alu(AluOp::And, R1, Imm(0x12)),
        JumpIf(Cond::Eq, R1, Imm(0x02), "ports"),
        Store(Size::Word, R10, KIND, Imm(MAY_GO_ON)),
        Jump("ports"),
        Label("udp"),
    ]);
    read(code, HEAD, 4);
    code.extend([Store(Size::Word, R10, KIND, Imm(MAY_BE_ANSWERED | MAY_ANSWER)), Label("ports")]);
    port(code, HEAD, SOURCE);
    port(code, HEAD + 2, DESTINATION);
    code.extend([Store(Size::Word, R10, ASKED, Of(R1)), Jump("opens"), Label("icmp")]);
    read(code, HEAD, 6);
    code.push(Load(Size::Byte, R1, R10, HEAD));
    code.extend([3, 11, 12].map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error")));
    code.extend([
        JumpIf(Cond::Eq, R1, Imm(8), "ping"),
        JumpIf(Cond::Eq, R1, Imm(0), "pong"),
        Jump("plain"),
        Label("icmpv6"),
    ]);
    read(code, HEAD, 6);
    code.push(Load(Size::Byte, R1, R10, HEAD));
    code.extend([1, 2, 3, 4].map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error")));
    code.extend([133, 134, 135, 136, 137].map(|discovery| JumpIf(Cond::Eq, R1, Imm(discovery), "pass")));
    code.extend([
        JumpIf(Cond::Eq, R1, Imm(128), "ping"),
        JumpIf(Cond::Ne, R1, Imm(129), "plain"),
        Label("pong"),
        Store(Size::Word, R10, KIND, Imm(MAY_ANSWER)),
        Store(Size::Word, R10, SOURCE, Imm(0)),
    ]);
    // By its number, as if that were the port of who asks (RFC 792, RFC 4443).
    port(code, HEAD + 4, DESTINATION);
    code.extend([
        Store(Size::Word, R10, ASKED, Imm(0)),
        Jump("opens"),
        Label("ping"),
        Store(Size::Word, R10, KIND, Imm(MAY_BE_ANSWERED)),
        Store(Size::Word, R10, DESTINATION, Imm(0)),
    ]);
    port(code, HEAD + 4, SOURCE);
    code.extend([Store(Size::Word, R10, ASKED, Imm(0)), Jump("opens")]);
}

/// A number of two bytes of a header, also in R1.
fn port(code: &mut Vec<Insn<'_>>, from: i16, to: i16) {
    code.extend([
        Load(Size::Byte, R1, R10, from),
        Alu(AluOp::Lsh, R1, Imm(8)),
        Load(Size::Byte, R2, R10, from + 1),
        Alu(AluOp::Or, R1, Of(R2)),
        Store(Size::Word, R10, to, Of(R1)),
    ]);
}

/// A flow on the stack: who asks, who is asked, and where their ports lie.
fn flow(code: &mut Vec<Insn<'_>>, [asks, is_asked]: [Reg; 2], [from, to]: [i16; 2]) {
    code.extend([
        Load(Size::Word, R1, asks, 0),
        Store(Size::Word, R10, FLOW_AT, Of(R1)),
        Load(Size::Word, R1, is_asked, 0),
        Store(Size::Word, R10, FLOW_AT + 4, Of(R1)),
        Load(Size::Word, R1, R10, from),
        Store(Size::Half, R10, FLOW_AT + 8, Of(R1)),
        Load(Size::Word, R1, R10, to),
        Store(Size::Half, R10, FLOW_AT + 10, Of(R1)),
        Load(Size::Word, R1, R10, PROTOCOL),
        Store(Size::Word, R10, FLOW_AT + 12, Of(R1)),
    ]);
}

/// Notes when a flow was last seen that may be answered.
fn remember<'a>(code: &mut Vec<Insn<'a>>, table: &'a Table) {
    code.push(Label("remember"));
    flow(code, [R7, R8], [SOURCE, DESTINATION]);
    code.extend([Call(Helper::KtimeGetNs), Store(Size::Double, R10, TIME, Of(R0))]);
    flows_of(code, table, R7);
    code.extend([
        Mov(R1, Of(R0)),
        Mov(R2, Of(R10)),
        Alu(AluOp::Add, R2, Imm(FLOW_AT.into())),
        Mov(R3, Of(R10)),
        Alu(AluOp::Add, R3, Imm(TIME.into())),
        Mov(R4, Imm(0)),
        // Where there is no memory for it, answers do not pass.
        Call(Helper::MapUpdateElem),
        Jump("pass"),
    ]);
}

/// R0 = the map of a node's flows, by its entry.
fn flows_of<'a>(code: &mut Vec<Insn<'a>>, table: &'a Table, node: Reg) {
    code.extend([Load(Size::Word, R1, node, 0), Store(Size::Word, R10, KEY, Of(R1))]);
    look_up(code, &table.flows, KEY);
    code.push(JumpIf(Cond::Eq, R0, Imm(0), "drop"));
}

/// Lets pass what answers such a flow.
fn answers<'a>(code: &mut Vec<Insn<'a>>, table: &'a Table) {
    code.push(Label("answers"));
    flow(code, [R8, R7], [DESTINATION, SOURCE]);
    code.extend([Call(Helper::KtimeGetNs), Mov(R9, Of(R0))]);
    flows_of(code, table, R8);
    code.extend([
        Mov(R1, Of(R0)),
        Mov(R2, Of(R10)),
        Alu(AluOp::Add, R2, Imm(FLOW_AT.into())),
        Call(Helper::MapLookupElem),
        JumpIf(Cond::Eq, R0, Imm(0), "drop"),
        Load(Size::Double, R1, R0, 0),
        Mov(R2, Of(R9)),
        Alu(AluOp::Sub, R2, Of(R1)),
        Alu(AluOp::Rsh, R2, Imm(PATIENCE.0)),
        JumpIf(Cond::Gt, R2, Imm(PATIENCE.1), "drop"),
        Store(Size::Double, R0, 0, Of(R9)),
        Jump("pass"),
    ]);
}

/// A program that drops nothing, to try what the kernel takes.
pub(super) fn passes_all() -> Vec<Insn<'static>> {
    vec![Mov(R0, Imm(TC_ACT_UNSPEC)), Exit]
}

fn end(code: &mut Vec<Insn<'_>>) {
    code.extend([Label("pass"), Mov(R0, Imm(TC_ACT_UNSPEC)), Exit, Label("drop"), Mov(R0, Imm(TC_ACT_SHOT)), Exit]);
}

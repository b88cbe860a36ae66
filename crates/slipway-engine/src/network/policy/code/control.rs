//! The program at the port of a node that does not forward. The program drops messages that only a router may send:
//!
//! - router advertisements and redirects (RFC 4861, RFC 792);
//! - ICMP errors about packets that were sent to another node. An error quotes the packet that it is about. The receiver's
//!   kernel does not check enough: it takes the MTU from an error that quotes an answer to a ping;
//! - frames with a VLAN tag of number 0 within another tag. The kernel strips both (`__netif_receive_skb_core`,
//!   net/core/dev.c), but a program at a port sees only behind the first one.

use super::{
    ADDRESS_AT, AT, DESTINATION_OF_IPV4, DESTINATION_OF_IPV6, ETHERNET, FROM, HEAD, ICMP, ICMPV6, KEY, TCP, UDP, end,
    look_up, network_order, read, read_ipv4,
};
use Insn::{Alu, Jump, JumpIf, Label, Load, Mov, Store};
use Operand::{Imm, Of};
use slipway_sys::bpf::Map;
use slipway_sys::bpf::asm::{AluOp, Cond, Insn, Operand, R0, R1, R2, R3, R4, R6, R7, R10, Size, skb};

/// Headers of IPv6 that say themselves how long they are, behind which there is another (RFC 8200, 4.1).
const EXTENSIONS: [i32; 3] = [0, 43, 60];
/// More of them than this in one packet are none of a decent sender's.
const STEPS: [&str; 6] = ["step 1", "step 2", "step 3", "step 4", "step 5", "step 6"];
const FRAGMENT: i32 = 44;
/// Redirects, by version.
const REDIRECT: i32 = 5;
const ADVERTISEMENT: i32 = 134;
const REDIRECT_V6: i32 = 137;

/// ICMP errors by version (RFC 792, RFC 4443). Linux still acts on source quench, which is obsolete.
const ERRORS: [i32; 4] = [3, 4, 11, 12];
const ERRORS_V6: [i32; 4] = [1, 2, 3, 4];
/// Bits of a VLAN tag that are its number (IEEE 802.1Q).
const VLAN_BITS: u16 = 0x0fff;

/// The program. `senders` gives a node's number by its Ethernet address, `addresses` by its IP address.
pub(in super::super) fn program<'a>(senders: &'a Map, addresses: &'a Map) -> Vec<Insn<'a>> {
    let mut code = vec![Mov(R6, Of(R1))];
    control(&mut code);
    code.extend([Label("whose"), Store(Size::Double, R10, KEY, Imm(0)), Mov(R2, Imm(FROM))]);
    read(&mut code, KEY, 6);
    look_up(&mut code, senders, KEY);
    code.extend([JumpIf(Cond::Eq, R0, Imm(0), "drop"), Load(Size::Double, R7, R0, 0)]);
    look_up(&mut code, addresses, ADDRESS_AT);
    code.extend([
        JumpIf(Cond::Eq, R0, Imm(0), "drop"),
        Load(Size::Double, R1, R0, 0),
        JumpIf(Cond::Ne, R1, Of(R7), "drop"),
    ]);
    end(&mut code);
    code
}

/// Goes on at "pass", at "drop", or at "whose" with the destination of the packet that an error quotes.
fn control(code: &mut Vec<Insn<'_>>) {
    // One byte, read where it lies, tells whether this is ICMP. Where it cannot be read so, the headers are copied.
    code.extend([
        Load(Size::Word, R1, R6, skb::PROTOCOL),
        Load(Size::Word, R2, R6, skb::DATA),
        Load(Size::Word, R3, R6, skb::DATA_END),
        Mov(R4, Of(R2)),
        Alu(AluOp::Add, R4, Imm(ETHERNET + 10)),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x86dd)), "looks 6"),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x8100)), "tagged"),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x88a8)), "tagged"),
        JumpIf(Cond::Ne, R1, Imm(network_order(0x0800)), "pass"),
        JumpIf(Cond::Gt, R4, Of(R3), "control 4"),
        Load(Size::Byte, R4, R2, 23),
        JumpIf(Cond::Eq, R4, Imm(ICMP), "control 4"),
        Jump("pass"),
        Label("looks 6"),
        JumpIf(Cond::Gt, R4, Of(R3), "control 6"),
        Load(Size::Byte, R4, R2, 20),
        JumpIf(Cond::Eq, R4, Imm(TCP), "pass"),
        JumpIf(Cond::Eq, R4, Imm(UDP), "pass"),
        Jump("control 6"),
    ]);
    code.extend([Label("tagged"), Mov(R2, Imm(ETHERNET))]);
    read(code, HEAD, 2);
    code.extend([
        Load(Size::Half, R1, R10, HEAD),
        JumpIf(Cond::Set, R1, Imm(network_order(VLAN_BITS)), "pass"),
        Jump("drop"),
    ]);
    version_4(code);
    version_6(code);
}

fn version_4(code: &mut Vec<Insn<'_>>) {
    code.extend([Label("control 4"), Mov(R2, Imm(ETHERNET))]);
    read(code, HEAD, 10);
    code.extend([
        Load(Size::Byte, R1, R10, HEAD + 9),
        JumpIf(Cond::Ne, R1, Imm(ICMP), "pass"),
        // Only the first fragment has the header of ICMP.
        Load(Size::Byte, R1, R10, HEAD + 6),
        Alu(AluOp::And, R1, Imm(0x1f)),
        Load(Size::Byte, R2, R10, HEAD + 7),
        Alu(AluOp::Or, R1, Of(R2)),
        JumpIf(Cond::Ne, R1, Imm(0), "pass"),
        Load(Size::Byte, R2, R10, HEAD),
        Alu(AluOp::And, R2, Imm(0xf)),
        JumpIf(Cond::Lt, R2, Imm(5), "drop"),
        Alu(AluOp::Lsh, R2, Imm(2)),
        Alu(AluOp::Add, R2, Imm(ETHERNET)),
        Store(Size::Word, R10, AT, Of(R2)),
    ]);
    read(code, HEAD, 1);
    code.extend([Load(Size::Byte, R1, R10, HEAD), JumpIf(Cond::Eq, R1, Imm(REDIRECT), "drop")]);
    code.extend(ERRORS.map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error 4")));
    code.extend([
        Jump("pass"),
        Label("error 4"),
        Load(Size::Word, R2, R10, AT),
        Alu(AluOp::Add, R2, Imm(8 + DESTINATION_OF_IPV4)),
    ]);
    read_ipv4(code);
    code.push(Jump("whose"));
}

fn version_6(code: &mut Vec<Insn<'_>>) {
    code.extend([Label("control 6"), Store(Size::Word, R10, AT, Imm(ETHERNET + 40)), Mov(R2, Imm(ETHERNET + 6))]);
    read(code, HEAD, 1);
    code.push(Load(Size::Byte, R3, R10, HEAD));
    for step in STEPS {
        code.extend(EXTENSIONS.map(|extension| JumpIf(Cond::Eq, R3, Imm(extension), step)));
        code.extend([Jump("chain ends"), Label(step), Load(Size::Word, R2, R10, AT)]);
        read(code, HEAD, 2);
        code.extend([
            Load(Size::Byte, R1, R10, HEAD + 1),
            Alu(AluOp::Add, R1, Imm(1)),
            Alu(AluOp::Lsh, R1, Imm(3)),
            Load(Size::Word, R2, R10, AT),
            Alu(AluOp::Add, R2, Of(R1)),
            Store(Size::Word, R10, AT, Of(R2)),
            Load(Size::Byte, R3, R10, HEAD),
        ]);
    }
    code.extend(EXTENSIONS.map(|extension| JumpIf(Cond::Eq, R3, Imm(extension), "drop")));
    code.extend([Label("chain ends"), JumpIf(Cond::Ne, R3, Imm(FRAGMENT), "last"), Load(Size::Word, R2, R10, AT)]);
    read(code, HEAD, 4);
    code.extend([
        Load(Size::Byte, R1, R10, HEAD + 3),
        Alu(AluOp::And, R1, Imm(0xf8)),
        Load(Size::Byte, R2, R10, HEAD + 2),
        Alu(AluOp::Or, R1, Of(R2)),
        JumpIf(Cond::Ne, R1, Imm(0), "pass"),
        Load(Size::Word, R2, R10, AT),
        Alu(AluOp::Add, R2, Imm(8)),
        Store(Size::Word, R10, AT, Of(R2)),
        Load(Size::Byte, R3, R10, HEAD),
        JumpIf(Cond::Eq, R3, Imm(FRAGMENT), "drop"),
    ]);
    code.extend(EXTENSIONS.map(|extension| JumpIf(Cond::Eq, R3, Imm(extension), "drop")));
    code.extend([Label("last"), JumpIf(Cond::Ne, R3, Imm(ICMPV6), "pass"), Load(Size::Word, R2, R10, AT)]);
    read(code, HEAD, 1);
    code.push(Load(Size::Byte, R1, R10, HEAD));
    code.extend([ADVERTISEMENT, REDIRECT_V6].map(|leads| JumpIf(Cond::Eq, R1, Imm(leads), "drop")));
    code.extend(ERRORS_V6.map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error 6")));
    code.extend([
        Jump("pass"),
        Label("error 6"),
        Load(Size::Word, R2, R10, AT),
        Alu(AluOp::Add, R2, Imm(8 + DESTINATION_OF_IPV6)),
    ]);
    read(code, ADDRESS_AT, 16);
    code.push(Jump("whose"));
}

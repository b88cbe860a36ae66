//! Messages that change which way others send, or how large their packets are: from who may say so.
//!
//! - Router advertisements and redirects (RFC 4861, RFC 792) pass from gateways alone.
//! - An error of ICMP quotes the packet that it is about. It passes from the node which that packet was sent to, and from
//!   gateways. The receiver's kernel does not check enough: it takes the MTU from an error that quotes an answer to a ping.

use super::{
    ADDRESS_AT, AT, DESTINATION_OF_IPV4, DESTINATION_OF_IPV6, ETHERNET, FLAGS, HEAD, ICMP, ICMPV6, TCP, Table, UDP,
    look_up, network_order, read, read_ipv4,
};
use Insn::{Alu, Jump, JumpIf, Label, Load, Mov, Store};
use Operand::{Imm, Of};
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

/// Goes on at "judge", or at "drop". With a table R7 is the sender's entry; without, it is nobody who may lead others.
pub(super) fn control<'a>(code: &mut Vec<Insn<'a>>, table: Option<&'a Table>) {
    // One byte, read where it lies, tells whether this is ICMP. Where it cannot be read so, the headers are copied.
    code.extend([
        Load(Size::Word, R1, R6, skb::PROTOCOL),
        Load(Size::Word, R2, R6, skb::DATA),
        Load(Size::Word, R3, R6, skb::DATA_END),
        Mov(R4, Of(R2)),
        Alu(AluOp::Add, R4, Imm(ETHERNET + 10)),
        JumpIf(Cond::Eq, R1, Imm(network_order(0x86dd)), "looks 6"),
        JumpIf(Cond::Ne, R1, Imm(network_order(0x0800)), "judge"),
        JumpIf(Cond::Gt, R4, Of(R3), "control 4"),
        Load(Size::Byte, R4, R2, 23),
        JumpIf(Cond::Eq, R4, Imm(ICMP), "control 4"),
        Jump("judge"),
        Label("looks 6"),
        JumpIf(Cond::Gt, R4, Of(R3), "control 6"),
        Load(Size::Byte, R4, R2, 20),
        JumpIf(Cond::Eq, R4, Imm(TCP), "judge"),
        JumpIf(Cond::Eq, R4, Imm(UDP), "judge"),
        Jump("control 6"),
    ]);
    version_4(code, table.is_some());
    version_6(code, table.is_some());
    if let Some(table) = table {
        code.push(Label("whose"));
        look_up(code, &table.addresses, ADDRESS_AT);
        code.extend([
            JumpIf(Cond::Eq, R0, Imm(0), "leads"),
            Load(Size::Word, R1, R0, 0),
            Load(Size::Word, R2, R7, 0),
            JumpIf(Cond::Eq, R1, Of(R2), "judge"),
            Label("leads"),
            Load(Size::Word, R1, R7, FLAGS),
            JumpIf(Cond::Eq, R1, Imm(0), "drop"),
        ]);
    } else {
        code.extend([Label("leads"), Jump("drop")]);
    }
    code.push(Label("judge"));
}

fn version_4(code: &mut Vec<Insn<'_>>, errors: bool) {
    code.extend([Label("control 4"), Mov(R2, Imm(ETHERNET))]);
    read(code, HEAD, 10);
    code.extend([
        Load(Size::Byte, R1, R10, HEAD + 9),
        JumpIf(Cond::Ne, R1, Imm(ICMP), "judge"),
        // Only the first fragment has the header of ICMP.
        Load(Size::Byte, R1, R10, HEAD + 6),
        Alu(AluOp::And, R1, Imm(0x1f)),
        Load(Size::Byte, R2, R10, HEAD + 7),
        Alu(AluOp::Or, R1, Of(R2)),
        JumpIf(Cond::Ne, R1, Imm(0), "judge"),
        Load(Size::Byte, R2, R10, HEAD),
        Alu(AluOp::And, R2, Imm(0xf)),
        JumpIf(Cond::Lt, R2, Imm(5), "drop"),
        Alu(AluOp::Lsh, R2, Imm(2)),
        Alu(AluOp::Add, R2, Imm(ETHERNET)),
        Store(Size::Word, R10, AT, Of(R2)),
    ]);
    read(code, HEAD, 1);
    code.extend([Load(Size::Byte, R1, R10, HEAD), JumpIf(Cond::Eq, R1, Imm(REDIRECT), "leads")]);
    if errors {
        code.extend([3, 11, 12].map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error 4")));
    }
    code.push(Jump("judge"));
    if errors {
        code.extend([
            Label("error 4"),
            Load(Size::Word, R2, R10, AT),
            Alu(AluOp::Add, R2, Imm(8 + DESTINATION_OF_IPV4)),
        ]);
        read_ipv4(code);
        code.push(Jump("whose"));
    }
}

fn version_6(code: &mut Vec<Insn<'_>>, errors: bool) {
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
        JumpIf(Cond::Ne, R1, Imm(0), "judge"),
        Load(Size::Word, R2, R10, AT),
        Alu(AluOp::Add, R2, Imm(8)),
        Store(Size::Word, R10, AT, Of(R2)),
        Load(Size::Byte, R3, R10, HEAD),
        JumpIf(Cond::Eq, R3, Imm(FRAGMENT), "drop"),
    ]);
    code.extend(EXTENSIONS.map(|extension| JumpIf(Cond::Eq, R3, Imm(extension), "drop")));
    code.extend([Label("last"), JumpIf(Cond::Ne, R3, Imm(ICMPV6), "judge"), Load(Size::Word, R2, R10, AT)]);
    read(code, HEAD, 1);
    code.push(Load(Size::Byte, R1, R10, HEAD));
    code.extend([ADVERTISEMENT, REDIRECT_V6].map(|leads| JumpIf(Cond::Eq, R1, Imm(leads), "leads")));
    if errors {
        code.extend([1, 2, 3, 4].map(|error| JumpIf(Cond::Eq, R1, Imm(error), "error 6")));
    }
    code.push(Jump("judge"));
    if errors {
        code.extend([
            Label("error 6"),
            Load(Size::Word, R2, R10, AT),
            Alu(AluOp::Add, R2, Imm(8 + DESTINATION_OF_IPV6)),
        ]);
        read(code, ADDRESS_AT, 16);
        code.push(Jump("whose"));
    }
}

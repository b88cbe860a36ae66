//! Programs as lists of instructions (RFC 9669), so that no compiler is needed.
//!
//! A program is a slice of [`Insn`] with [`Insn::Label`] between them where jumps lead:
//!
//! ```
//! use slipway_sys::bpf::asm::{Cond::*, Insn::*, Operand::*, R0, R1, Size::*, skb};
//!
//! let drop_marked = [
//!     Load(Word, R0, R1, skb::MARK),
//!     JumpIf(Eq, R0, Imm(7), "drop"),
//!     Mov(R0, Imm(slipway_sys::bpf::TC_ACT_OK)),
//!     Exit,
//!     Label("drop"),
//!     Mov(R0, Imm(slipway_sys::bpf::TC_ACT_SHOT)),
//!     Exit,
//! ];
//! assert_eq!(slipway_sys::bpf::asm::assemble(&drop_marked).unwrap().len(), 6);
//! ```

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

/// Result of a call and of the program.
pub const R0: Reg = Reg(0);
/// First argument; at the start the context (`struct __sk_buff`, see [`skb`]). A call destroys
/// this one and R2 to R5.
pub const R1: Reg = Reg(1);
/// Second argument of a call.
pub const R2: Reg = Reg(2);
/// Third argument of a call.
pub const R3: Reg = Reg(3);
/// Fourth argument of a call.
pub const R4: Reg = Reg(4);
/// Fifth argument of a call.
pub const R5: Reg = Reg(5);
/// Survives calls.
pub const R6: Reg = Reg(6);
/// Survives calls.
pub const R7: Reg = Reg(7);
/// Survives calls.
pub const R8: Reg = Reg(8);
/// Survives calls.
pub const R9: Reg = Reg(9);
/// End of the stack: its 512 bytes lie at −512 to −1 from here. Read-only. An address on the stack is made by adding a
/// negative number to a copy; the verifier refuses to subtract.
pub const R10: Reg = Reg(10);

/// Offsets into the context of packet programs (`struct __sk_buff`, `include/uapi/linux/bpf.h`); each is a [`Size::Word`].
///
/// Kernels before 6.4 refuse to store an immediate there: store a register.
pub mod skb {
    /// Length of the packet, bytes from the Ethernet header on; of the whole where it is a large segment.
    pub const LEN: i16 = 0;
    /// The packet's mark (`SO_MARK`, socket(7)). Writable.
    pub const MARK: i16 = 8;
    /// `EtherType`, network byte order.
    pub const PROTOCOL: i16 = 16;
    /// The device that the packet came in by; 0 where a program here sent it.
    pub const INGRESS_IFINDEX: i16 = 36;
    /// The device that it is at.
    pub const IFINDEX: i16 = 40;
    /// Address of the first byte that can be read directly: the Ethernet header's, both at ingress and at egress.
    pub const DATA: i16 = 76;
    /// Address after the last such byte. Not all of a packet must lie there: [`super::Helper::SkbLoadBytes`] reads all.
    pub const DATA_END: i16 = 80;
}

/// How much a load or store moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Half,
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

/// Arithmetic on 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AluOp {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Shift to the left.
    Lsh,
    /// Shift to the right, zeros filling in.
    Rsh,
    /// Bitwise exclusive or.
    Xor,
}

/// A test of two 64-bit numbers, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cond {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Some bit is set in both.
    Set,
}

/// The second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A number, sign-extended to 64 bits: a negative one does not equal a loaded word.
    Imm(i32),
    /// A register's content.
    Of(Reg),
}

/// A function of the kernel's (bpf-helpers(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// (map, address of the key) → address of the value, or 0.
    MapLookupElem = 1,
    /// (map, address of the key, address of the value, flags: 0) → 0, or negative. Replaces any value of the key.
    MapUpdateElem = 2,
    /// () → nanoseconds since the machine's start, its sleep not counted (`CLOCK_MONOTONIC`).
    KtimeGetNs = 5,
    /// (context, offset into the packet, address to copy from, bytes, 0) → 0, or negative where the packet is shorter. The
    /// verifier forgets what it knew of addresses in the packet.
    SkbStoreBytes = 9,
    /// (device, flags) → the action to return. Flags: 0 sends the packet out of the device, [`super::BPF_F_INGRESS`] lets the
    /// device receive it.
    Redirect = 23,
    /// (context, offset into the packet, address to copy to, bytes) → 0, or negative where the packet is shorter.
    SkbLoadBytes = 26,
    /// (context, level, option, address of the value, bytes) → 0, or negative. Sets an option of the context's socket, as
    /// `setsockopt(2)` does; of those few that programs may set (`sol_socket_sockopt`, `net/core/filter.c`).
    SetSockOpt = 49,
    /// (context, flags) → 0, or the flags that the kernel does not know. Says what of a connection the program hears.
    SockOpsCbFlagsSet = 59,
    /// (context, address of a socket's name, its bytes) → 0, or negative. Binds the context's socket, to no port where that is 0.
    Bind = 64,
    /// () → the number of the version 2 control group that the current process is in.
    GetCurrentCgroupId = 80,
    /// (storage, socket, 0, flags: 0) → address of the socket's value, or 0 where it has none.
    SkStorageGet = 107,
    /// (address to copy to, bytes, address of the kernel's) → 0, or negative.
    ProbeReadKernel = 113,
    /// (storage, thread, 0, flags: [`super::CREATE`] or 0) → address of the thread's value, or 0 where it has none.
    TaskStorageGet = 156,
    /// () → the current thread, its `struct task_struct`.
    GetCurrentTaskBtf = 158,
    /// (thread) → its registers as they were in user space, its `struct pt_regs`. Linux 5.15.
    TaskPtRegs = 175,
    /// (error number, negative) → 0. The error of a refused call, other than `EPERM`. Linux 5.18.
    SetRetval = 187,
}

/// An instruction, or a place to jump to.
#[derive(Debug, Clone, Copy)]
pub enum Insn<'a> {
    /// Register = operand.
    Mov(Reg, Operand),
    /// Register = register op operand.
    Alu(AluOp, Reg, Operand),
    /// Register = memory at (second register + offset), zero-extended.
    Load(Size, Reg, Reg, i16),
    /// Memory at (register + offset) = operand.
    Store(Size, Reg, i16, Operand),
    /// Register = the map or storage, for calls.
    LoadMap(Reg, BorrowedFd<'a>),
    /// On to the label.
    Jump(&'a str),
    /// On to the label if (register cond operand).
    JumpIf(Cond, Reg, Operand, &'a str),
    /// R0 = helper(R1, …).
    Call(Helper),
    /// Ends the program with R0.
    Exit,
    /// Where jumps lead. No instruction of its own.
    Label(&'a str),
}

/// Why a list of instructions is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AsmError {
    /// A jump leads nowhere.
    #[error("label `{0}` is jumped to but not in the program")]
    NoLabel(String),
    /// Two places have one name.
    #[error("label `{0}` is in the program twice")]
    Twice(String),
    /// A jump spans more than 32,767 instructions.
    #[error("label `{0}` is too far away to be jumped to")]
    TooFar(String),
}

/// `struct bpf_insn` (`include/uapi/linux/bpf.h`), as a number: opcode, registers, offset and immediate from the lowest byte on.
pub type Encoded = u64;

// Instruction classes, and where an operand comes from (RFC 9669, section 3).
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
const SOURCE_REGISTER: u8 = 0x08;
const MODE_MEM: u8 = 0x60;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// The source "register" of a 64-bit immediate that is a map's descriptor.
const PSEUDO_MAP_FD: Reg = Reg(1);

/// Turns the program into what the kernel takes.
///
/// # Errors
/// [`AsmError`] for jumps that cannot be.
pub fn assemble(program: &[Insn<'_>]) -> Result<Vec<Encoded>, AsmError> {
    let mut labels = HashMap::new();
    let mut at = 0;
    for insn in program {
        if let Insn::Label(name) = insn
            && labels.insert(*name, at).is_some()
        {
            return Err(AsmError::Twice((*name).to_owned()));
        }
        at += length(insn);
    }
    let mut code = Vec::with_capacity(at);
    for insn in program {
        encode(insn, &labels, &mut code)?;
    }
    Ok(code)
}

fn length(insn: &Insn<'_>) -> usize {
    match insn {
        Insn::Label(_) => 0,
        Insn::LoadMap(..) => 2,
        _ => 1,
    }
}

fn encode(insn: &Insn<'_>, labels: &HashMap<&str, usize>, code: &mut Vec<Encoded>) -> Result<(), AsmError> {
    // Jumps count from the instruction after the jump.
    let from = code.len() + 1;
    let offset_to = |label: &str| {
        let to = *labels.get(label).ok_or_else(|| AsmError::NoLabel(label.to_owned()))?;
        let distance = to.cast_signed() - from.cast_signed();
        i16::try_from(distance).map_err(|_| AsmError::TooFar(label.to_owned()))
    };
    match *insn {
        Insn::Mov(to, operand) => code.push(with_operand(ALU64 | MOV, to, 0, operand)),
        Insn::Alu(op, to, operand) => code.push(with_operand(ALU64 | op.code(), to, 0, operand)),
        Insn::Load(size, to, from, offset) => code.push(pack(LDX | MODE_MEM | size.code(), to, from, offset, 0)),
        Insn::Store(size, to, offset, Operand::Imm(value)) => {
            code.push(pack(ST | MODE_MEM | size.code(), to, R0, offset, value));
        }
        Insn::Store(size, to, offset, Operand::Of(from)) => {
            code.push(pack(STX | MODE_MEM | size.code(), to, from, offset, 0));
        }
        Insn::LoadMap(to, map) => {
            code.push(pack(LD | Size::Double.code(), to, PSEUDO_MAP_FD, 0, map.as_raw_fd()));
            code.push(0);
        }
        Insn::Jump(label) => code.push(pack(JMP | JA, R0, R0, offset_to(label)?, 0)),
        Insn::JumpIf(cond, left, operand, label) => {
            code.push(with_operand(JMP | cond.code(), left, offset_to(label)?, operand));
        }
        Insn::Call(helper) => code.push(pack(JMP | CALL, R0, R0, 0, helper as i32)),
        Insn::Exit => code.push(pack(JMP | EXIT, R0, R0, 0, 0)),
        Insn::Label(_) => {}
    }
    Ok(())
}

fn with_operand(code: u8, to: Reg, offset: i16, operand: Operand) -> Encoded {
    match operand {
        Operand::Imm(value) => pack(code, to, R0, offset, value),
        Operand::Of(from) => pack(code | SOURCE_REGISTER, to, from, offset, 0),
    }
}

fn pack(code: u8, to: Reg, from: Reg, offset: i16, immediate: i32) -> Encoded {
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    // Two halves of a byte: bit fields, whose order follows the processor's, which is little-endian on all that are supported.
    u64::from_ne_bytes([code, from.0 << 4 | to.0, o0, o1, i0, i1, i2, i3])
}

impl Size {
    fn code(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

impl AluOp {
    fn code(self) -> u8 {
        match self {
            Self::Add => 0x00,
            Self::Sub => 0x10,
            Self::Or => 0x40,
            Self::And => 0x50,
            Self::Lsh => 0x60,
            Self::Rsh => 0x70,
            Self::Xor => 0xa0,
        }
    }
}

impl Cond {
    fn code(self) -> u8 {
        match self {
            Self::Eq => 0x10,
            Self::Gt => 0x20,
            Self::Ge => 0x30,
            Self::Set => 0x40,
            Self::Ne => 0x50,
            Self::Lt => 0xa0,
            Self::Le => 0xb0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operand::{Imm, Of};

    fn bytes(program: &[Insn<'_>]) -> Vec<[u8; 8]> {
        assemble(program).expect("assembles").into_iter().map(u64::to_le_bytes).collect()
    }

    /// By hand, from the tables of RFC 9669.
    #[test]
    fn encodings() {
        let program = [
            Insn::Mov(R6, Of(R1)),
            Insn::Mov(R0, Imm(-1)),
            Insn::Alu(AluOp::Add, R2, Imm(14)),
            Insn::Alu(AluOp::And, R3, Of(R4)),
            Insn::Load(Size::Word, R0, R6, skb::MARK),
            Insn::Load(Size::Half, R3, R2, 12),
            Insn::Store(Size::Word, R10, -4, Imm(0)),
            Insn::Store(Size::Double, R10, -16, Of(R7)),
            Insn::Call(Helper::Redirect),
            Insn::Exit,
        ];
        let expected = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x07, 0x02, 0, 0, 14, 0, 0, 0],
            [0x5f, 0x43, 0, 0, 0, 0, 0, 0],
            [0x61, 0x60, 8, 0, 0, 0, 0, 0],
            [0x69, 0x23, 12, 0, 0, 0, 0, 0],
            [0x62, 0x0a, 0xfc, 0xff, 0, 0, 0, 0],
            [0x7b, 0x7a, 0xf0, 0xff, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 23, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&program), expected);
    }

    #[test]
    fn jumps_count_from_the_next_instruction() {
        let program = [
            Insn::Label("start"),
            Insn::JumpIf(Cond::Ne, R1, Imm(5), "end"),
            Insn::JumpIf(Cond::Gt, R2, Of(R3), "start"),
            Insn::Jump("end"),
            Insn::Label("end"),
            Insn::Exit,
        ];
        let expected = [
            [0x55, 0x01, 2, 0, 5, 0, 0, 0],
            [0x2d, 0x32, 0xfe, 0xff, 0, 0, 0, 0],
            [0x05, 0, 0, 0, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes(&program), expected);
    }

    #[test]
    fn impossible_jumps_are_refused() {
        assert_eq!(assemble(&[Insn::Jump("nowhere")]), Err(AsmError::NoLabel("nowhere".into())));
        assert_eq!(assemble(&[Insn::Label("a"), Insn::Label("a")]), Err(AsmError::Twice("a".into())));
        let mut far = vec![Insn::Jump("end")];
        far.resize(32_769, Insn::Exit);
        far.push(Insn::Label("end"));
        assert_eq!(assemble(&far), Err(AsmError::TooFar("end".into())));
        far.remove(1);
        assert!(assemble(&far).is_ok());
    }
}

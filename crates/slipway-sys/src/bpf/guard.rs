//! Sockets that only some processes may use as they like.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::asm::{AluOp, Cond, Helper, Insn, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Size};
use super::{Kind, LoadError, Program, SocketStorage, call};

const NAME: &str = "socket_guard";

/// Guards every socket that was made in a version 2 control group, or accepted by one, whoever has it by now. Unless the calling
/// process is in that very group itself, `connect(2)` and `bind(2)` of IPv4 and IPv6 fail with `EPERM`, and so does setting
/// [`GuardedOptions`], whatever the socket's family; its names of IPv4 and IPv6 read as zero.
///
/// A socket's group is that of the process that made it, for good (`sk_cgrp_data`). Disconnecting (`AF_UNSPEC`) and
/// `listen(2)` pass: the kernel has no hook that refuses them. (At its security hooks, programs of a group were not asked about a
/// socket of the group that a process outside of it used, Linux 6.1.) But a socket that was connected once is a **deaf** listener:
/// nobody reaches it.
///
/// Lasts as long as this value; the sockets are unguarded afterwards.
#[derive(Debug)]
pub struct SocketGuard {
    _links: Vec<OwnedFd>,
}

/// Options that may not be set.
#[derive(Debug, Clone, Copy)]
pub struct GuardedOptions<'a> {
    /// All of these levels.
    pub levels: &'a [i32],
    /// These names of `SOL_SOCKET`.
    pub names: &'a [&'a [i32]],
    /// But for these.
    pub free: Option<FreeOptions<'a>>,
}

/// Options that anybody may set, though all others of their level are guarded. A socket of IPv4 or IPv6 gets them from the kernel. One
/// of another family, of whose level they are none, has a value in `storage`, in which they are written down; one without a value
/// is refused (`EPERM`). Needs Linux 5.18.
#[derive(Debug, Clone, Copy)]
pub struct FreeOptions<'a> {
    /// E.g. `IPPROTO_TCP`.
    pub level: i32,
    /// Each of them.
    pub options: &'a [FreeOption],
    /// Where they are written down.
    pub storage: &'a SocketStorage,
}

/// An option that is a number, a C `int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeOption {
    /// E.g. `TCP_NODELAY`.
    pub name: i32,
    /// Where its number is in the value: a multiple of four, bytes.
    pub at: i16,
    /// What it may be.
    pub number: FreeNumber,
}

/// What a number may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeNumber {
    /// Anything; 1 is written down for what is not 0.
    Switch,
    /// None but these, the least of which is no less than 0. `EINVAL` otherwise.
    Within(i32, i32),
}

impl SocketGuard {
    /// Guards the sockets of the group whose folder is `group`, those that it has and those that it will have.
    ///
    /// # Errors
    /// [`LoadError`]; needs `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 5.8.
    pub fn attach(group: BorrowedFd<'_>, options: GuardedOptions<'_>) -> Result<Self, LoadError> {
        let number = number(group)?;
        let mut programs = vec![(Kind::SetOption, refuse_options(number, options))];
        programs.extend([Kind::Connect4, Kind::Connect6, Kind::Bind4, Kind::Bind6].map(|kind| (kind, refuse(number))));
        programs.extend([Kind::OwnName4, Kind::PeerName4].map(|kind| (kind, hide(number, &IP4))));
        programs.extend([Kind::OwnName6, Kind::PeerName6].map(|kind| (kind, hide(number, &IP6))));
        programs.push((Kind::TcpState, deafen()));
        let attach = |(kind, program): &(Kind, Vec<Insn<'_>>)| {
            let program = Program::load(*kind, NAME, program)?;
            call::link(program.as_fd(), group, kind.attach_type()).map_err(refused)
        };
        Ok(Self { _links: programs.iter().map(attach).collect::<Result<_, _>>()? })
    }
}

fn refused(error: io::Error) -> LoadError {
    LoadError::Attach { name: NAME.to_owned(), error }
}

/// A group's number is its folder's inode's (`kernfs_id_ino`).
fn number(group: BorrowedFd<'_>) -> Result<u64, LoadError> {
    Ok(rustix::fs::fstat(group).map_err(|errno| refused(errno.into()))?.st_ino)
}

/// Where `struct bpf_sockopt` has an option's level and name, words (`include/uapi/linux/bpf.h`).
const SOCKOPT: [i16; 2] = [24, 28];
/// The socket, and where its value begins and ends: addresses.
const SOCKET: i16 = 0;
const VALUE: [i16; 2] = [8, 16];
/// The value's length, a word. -1: the kernel has nothing to do any more.
const LENGTH: i16 = 32;
/// Where `struct bpf_sock` has the family, a word.
const FAMILY: i16 = 4;
/// Where `struct bpf_sock_addr` has an address of IPv4 and its port, words.
const IP4: [i16; 2] = [4, 24];
/// The same of IPv6.
const IP6: [i16; 5] = [8, 12, 16, 20, 24];

/// `struct bpf_sock_ops`, words: what has come about, and what the socket's programs hear of it.
const OP: i16 = 0;
const HEARD: i16 = 84;
/// What has come about (`include/uapi/linux/bpf.h`): it is connected, it was accepted, it listens.
const CONNECTED: i32 = 4;
const ACCEPTED: i32 = 5;
const LISTENS: i32 = 11;
/// `BPF_SOCK_OPS_RTO_CB_FLAG`: to hear of time-outs, which are rare.
const TIMEOUTS: i32 = 1;

/// Where the current process is in the group of this number, on to `to`; R1 and R2 are used, R0 too.
fn if_in_group(group: u64, to: &str) -> [Insn<'_>; 8] {
    let [l0, l1, l2, l3, h0, h1, h2, h3] = group.to_le_bytes();
    let [low, high] = [[l0, l1, l2, l3], [h0, h1, h2, h3]].map(i32::from_le_bytes);
    [
        Insn::Call(Helper::GetCurrentCgroupId),
        Insn::Mov(R1, Operand::Imm(high)),
        Insn::Alu(AluOp::Lsh, R1, Operand::Imm(32)),
        // Without the sign that it is extended by.
        Insn::Mov(R2, Operand::Imm(low)),
        Insn::Alu(AluOp::Lsh, R2, Operand::Imm(32)),
        Insn::Alu(AluOp::Rsh, R2, Operand::Imm(32)),
        Insn::Alu(AluOp::Or, R1, Operand::Of(R2)),
        Insn::JumpIf(Cond::Eq, R0, Operand::Of(R1), to),
    ]
}

/// 1 is yes, 0 is `EPERM`.
fn end(label: &str, answer: i32) -> [Insn<'_>; 3] {
    [Insn::Label(label), Insn::Mov(R0, Operand::Imm(answer)), Insn::Exit]
}

/// Yes, by processes of the group alone.
fn refuse(group: u64) -> Vec<Insn<'static>> {
    [&if_in_group(group, "yes")[..], &end("no", 0), &end("yes", 1)].concat()
}

/// Yes, but to others than processes of the group these parts of an address are zero.
fn hide(group: u64, parts: &[i16]) -> Vec<Insn<'static>> {
    let mut program = vec![Insn::Mov(R6, Operand::Of(R1))];
    program.extend(if_in_group(group, "yes"));
    program.push(Insn::Mov(R1, Operand::Imm(0)));
    program.extend(parts.iter().map(|part| Insn::Store(Size::Word, R6, *part, Operand::Of(R1))));
    program.extend(end("yes", 1));
    program
}

/// Makes listeners that were connected before deaf: bound to an interface that there cannot be.
///
/// A connection is marked by a flag, which stays when it is disconnected, and which what is accepted inherits
/// (`tcp_create_openreq_child`). That a socket listens is told when it does already: what it has accepted by then shows the flag
/// as it is connected, and neither hears nor says anything either.
fn deafen() -> Vec<Insn<'static>> {
    let mut program = vec![
        Insn::Mov(R6, Operand::Of(R1)),
        Insn::Load(Size::Word, R2, R6, OP),
        Insn::Load(Size::Word, R3, R6, HEARD),
        Insn::JumpIf(Cond::Eq, R2, Operand::Imm(CONNECTED), "mark"),
        Insn::JumpIf(Cond::Eq, R2, Operand::Imm(LISTENS), "listens"),
        Insn::JumpIf(Cond::Ne, R2, Operand::Imm(ACCEPTED), "yes"),
        Insn::JumpIf(Cond::Ne, R3, Operand::Imm(0), "deaf"),
        Insn::Label("mark"),
        Insn::Mov(R2, Operand::Imm(TIMEOUTS)),
        Insn::Call(Helper::SockOpsCbFlagsSet),
        Insn::Jump("yes"),
        Insn::Label("listens"),
        Insn::JumpIf(Cond::Eq, R3, Operand::Imm(0), "yes"),
        Insn::Label("deaf"),
        Insn::Store(Size::Word, R10, -4, Operand::Imm(i32::MAX)),
        Insn::Mov(R2, Operand::Imm(libc::SOL_SOCKET)),
        Insn::Mov(R3, Operand::Imm(libc::SO_BINDTOIFINDEX)),
        Insn::Mov(R4, Operand::Of(R10)),
        Insn::Alu(AluOp::Add, R4, Operand::Imm(-4)),
        Insn::Mov(R5, Operand::Imm(4)),
        Insn::Call(Helper::SetSockOpt),
    ];
    program.extend(end("yes", 1));
    program
}

/// Yes, unless it is another process than one of the group, and the option one of these.
fn refuse_options(group: u64, options: GuardedOptions<'_>) -> Vec<Insn<'_>> {
    let [level, name] = SOCKOPT;
    let mut program = vec![
        Insn::Mov(R8, Operand::Of(R1)),
        Insn::Load(Size::Word, R6, R1, level),
        Insn::Load(Size::Word, R7, R1, name),
    ];
    program.extend(if_in_group(group, "yes"));
    program.extend(options.free.iter().flat_map(write_down));
    let refused = |argument, value: &i32| Insn::JumpIf(Cond::Eq, argument, Operand::Imm(*value), "no");
    program.extend(options.levels.iter().map(|level| refused(R6, level)));
    program.push(Insn::JumpIf(Cond::Ne, R6, Operand::Imm(libc::SOL_SOCKET), "yes"));
    program.extend(options.names.iter().copied().flatten().map(|name| refused(R7, name)));
    program.extend(end("yes", 1));
    program.extend(end("no", 0));
    program
}

/// One of these options is left to the kernel, or written down here, where it has a value for it; others go on from here. The level
/// is in R6, the name in R7, the context in R8.
fn write_down<'a>(free: &FreeOptions<'a>) -> Vec<Insn<'a>> {
    let mut program = vec![Insn::JumpIf(Cond::Ne, R6, Operand::Imm(free.level), "others")];
    for FreeOption { name, at, number } in free.options {
        let (is_switch, least, most) = match number {
            FreeNumber::Switch => (1, 0, -1),
            FreeNumber::Within(least, most) => (0, *least, *most),
        };
        let known = [(R3, i32::from(*at)), (R4, least), (R5, most), (R9, is_switch)];
        program.extend(known.map(|(register, number)| Insn::Mov(register, Operand::Imm(number))));
        program.push(Insn::JumpIf(Cond::Eq, R7, Operand::Imm(*name), "free"));
    }
    let [start, stop] = VALUE;
    program.extend([
        Insn::Jump("others"),
        Insn::Label("free"),
        Insn::Load(Size::Double, R2, R8, SOCKET),
        Insn::Load(Size::Word, R2, R2, FAMILY),
        Insn::JumpIf(Cond::Eq, R2, Operand::Imm(libc::AF_INET), "yes"),
        Insn::JumpIf(Cond::Eq, R2, Operand::Imm(libc::AF_INET6), "yes"),
        // The kernel has room for 16 bytes, however few there are (`sockopt_alloc_buf`, `kernel/bpf/cgroup.c`).
        Insn::Load(Size::Word, R1, R8, LENGTH),
        Insn::JumpIf(Cond::Lt, R1, Operand::Imm(4), "invalid"),
        Insn::Load(Size::Double, R1, R8, start),
        Insn::Load(Size::Double, R2, R8, stop),
        Insn::Mov(R0, Operand::Of(R1)),
        Insn::Alu(AluOp::Add, R0, Operand::Imm(4)),
        Insn::JumpIf(Cond::Gt, R0, Operand::Of(R2), "invalid"),
        Insn::Load(Size::Word, R6, R1, 0),
        Insn::JumpIf(Cond::Lt, R6, Operand::Of(R4), "invalid"),
        Insn::JumpIf(Cond::Gt, R6, Operand::Of(R5), "invalid"),
        Insn::JumpIf(Cond::Eq, R9, Operand::Imm(0), "number"),
        Insn::JumpIf(Cond::Eq, R6, Operand::Imm(0), "number"),
        Insn::Mov(R6, Operand::Imm(1)),
        Insn::Label("number"),
        Insn::Mov(R7, Operand::Of(R3)),
        Insn::LoadMap(R1, free.storage.as_fd()),
        Insn::Load(Size::Double, R2, R8, SOCKET),
        Insn::Mov(R3, Operand::Imm(0)),
        Insn::Mov(R4, Operand::Imm(0)),
        Insn::Call(Helper::SkStorageGet),
        Insn::JumpIf(Cond::Eq, R0, Operand::Imm(0), "no"),
        Insn::Alu(AluOp::Add, R0, Operand::Of(R7)),
        Insn::Store(Size::Word, R0, 0, Operand::Of(R6)),
        Insn::Mov(R1, Operand::Imm(-1)),
        Insn::Store(Size::Word, R8, LENGTH, Operand::Of(R1)),
        Insn::Jump("yes"),
        Insn::Label("invalid"),
        Insn::Mov(R1, Operand::Imm(-libc::EINVAL)),
        Insn::Call(Helper::SetRetval),
        Insn::Jump("no"),
        Insn::Label("others"),
    ]);
    program
}

//! Sockets that send from an address of their control group's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::asm::{AluOp, Cond, Helper, Insn, Operand, R0, R1, R2, R3, R6, R7, R8, R10, Size};
use super::{Kind, LoadError, Program, call};

const NAME: &str = "source_address";

/// An address, and the subnet to whose other addresses packets come from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceAddress {
    /// An address of this machine.
    pub address: IpAddr,
    /// The length of its subnet's prefix, bits.
    pub prefix: u8,
}

/// Gives sockets of a version 2 control group, and of groups within it, their source address. It does so for TCP and
/// UDP sockets that are connected without having been bound, and for UDP sockets bound to no address that send. Only
/// towards the subnets named; all else is as the routes say.
///
/// A socket that its program bound to a port, but to no address, cannot be given one as it is connected, nor can one of ICMP. These
/// follow the route, which rules may choose by the mark.
///
/// Lasts as long as this value; sockets that have an address by then keep it.
#[derive(Debug)]
pub struct SourceAddresses {
    _links: Vec<OwnedFd>,
}

impl SourceAddresses {
    /// Gives the sockets of the group whose folder is `group` these source addresses, and a mark (`SO_MARK`) to those that are made
    /// from now on.
    ///
    /// # Errors
    /// [`LoadError`]; needs `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 5.7.
    pub fn attach(group: BorrowedFd<'_>, own: &[SourceAddress], mark: u32) -> Result<Self, LoadError> {
        let attach = |(kind, program): (Kind, Vec<Insn<'_>>)| {
            let program = Program::load(kind, NAME, &program)?;
            call::link(program.as_fd(), group, kind.attach_type())
                .map_err(|error| LoadError::Attach { name: NAME.to_owned(), error })
        };
        let programs = own.chunks(LABELS.len()).flat_map(programs).chain([(Kind::SocketMade, set_mark(mark))]);
        Ok(Self { _links: programs.map(attach).collect::<Result<_, _>>()? })
    }

    /// Whether the kernel takes such programs; nothing is attached.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn probe() -> Result<(), LoadError> {
        let own = [
            SourceAddress { address: Ipv4Addr::new(10, 64, 0, 1).into(), prefix: 16 },
            SourceAddress { address: Ipv6Addr::LOCALHOST.into(), prefix: 64 },
        ];
        programs(&own).into_iter().try_for_each(|(kind, program)| Program::load(kind, NAME, &program).map(drop))
    }
}

/// Where `struct bpf_sock` has the mark, a word.
const MARK: i16 = 16;

fn set_mark(mark: u32) -> Vec<Insn<'static>> {
    vec![
        Insn::Mov(R2, Operand::Imm(mark.cast_signed())),
        Insn::Store(Size::Word, R1, MARK, Operand::Of(R2)),
        Insn::Mov(R0, Operand::Imm(1)),
        Insn::Exit,
    ]
}

/// Where a program goes on with the next address. One has no more addresses than there are of these.
const LABELS: [&str; 4] = ["next0", "next1", "next2", "next3"];

fn programs(own: &[SourceAddress]) -> Vec<(Kind, Vec<Insn<'static>>)> {
    let (mut connect4, mut send4, mut connect6, mut send6) = (start(), start(), start(), start());
    for (&SourceAddress { address, prefix }, next) in own.iter().zip(LABELS) {
        match address {
            IpAddr::V4(address) => {
                let there = destination(&V4, &address.octets(), prefix, next);
                connect4.extend(there.iter().copied().chain(bind4(address)).chain([Insn::Label(next)]));
                let say = unless_said(&[(40, word(&address.octets(), 0))], next);
                send4.extend(there.into_iter().chain(say).chain([Insn::Label(next)]));
                // A socket of IPv6 that is connected to an address of IPv4, written as one of IPv6.
                let mapped = address.to_ipv6_mapped().octets();
                connect6.extend(destination(&V6, &mapped, 96 + prefix, next));
                connect6.extend(bind6(&mapped).into_iter().chain([Insn::Label(next)]));
            }
            IpAddr::V6(address) => {
                let octets = address.octets();
                let there = destination(&V6, &octets, prefix, next);
                connect6.extend(there.iter().copied().chain(bind6(&octets)).chain([Insn::Label(next)]));
                let words: Vec<(i16, i32)> =
                    [44, 48, 52, 56].into_iter().zip([0, 4, 8, 12].map(|at| word(&octets, at))).collect();
                send6.extend(there.into_iter().chain(unless_said(&words, next)).chain([Insn::Label(next)]));
            }
        }
    }
    let all = [(Kind::Connect4, connect4), (Kind::Connect6, connect6), (Kind::Send4, send4), (Kind::Send6, send6)];
    all.map(|(kind, mut program)| {
        // Whatever was done: go on.
        program.extend([Insn::Label("bound"), Insn::Mov(R0, Operand::Imm(1)), Insn::Exit]);
        (kind, program)
    })
    .into()
}

/// Where `struct bpf_sock_addr` has the destination's words (`include/uapi/linux/bpf.h`).
const V4: [i16; 1] = [4];
const V6: [i16; 4] = [8, 12, 16, 20];
/// Its socket, and the words of the socket's own address in `struct bpf_sock`.
const SOCKET: i16 = 64;
const OWN4: i16 = 24;
const OWN6: [i16; 4] = [28, 32, 36, 40];

fn start() -> Vec<Insn<'static>> {
    vec![Insn::Mov(R6, Operand::Of(R1))]
}

/// Four bytes of an address as the context has them.
fn word(octets: &[u8], at: usize) -> i32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&octets[at..at + 4]);
    i32::from_ne_bytes(bytes)
}

/// On to `next` unless the destination is in the subnet.
fn destination(fields: &[i16], own: &[u8], prefix: u8, next: &'static str) -> Vec<Insn<'static>> {
    let mut program = Vec::new();
    for (index, &field) in fields.iter().enumerate() {
        let bits = usize::from(prefix).saturating_sub(32 * index).min(32);
        if bits == 0 {
            break;
        }
        let mask = (u32::MAX << (32 - bits)).to_be();
        let subnet = u32::from_ne_bytes(word(own, 4 * index).to_ne_bytes()) & mask;
        program.push(Insn::Load(Size::Word, R2, R6, field));
        program.extend(unsigned(R3, mask));
        program.push(Insn::Alu(AluOp::And, R2, Operand::Of(R3)));
        program.extend(unsigned(R3, subnet));
        program.push(Insn::JumpIf(Cond::Ne, R2, Operand::Of(R3), next));
    }
    program
}

/// A word in a register, without the sign that an immediate is extended by.
fn unsigned(register: super::asm::Reg, number: u32) -> [Insn<'static>; 3] {
    [
        Insn::Mov(register, Operand::Imm(number.cast_signed())),
        Insn::Alu(AluOp::Lsh, register, Operand::Imm(32)),
        Insn::Alu(AluOp::Rsh, register, Operand::Imm(32)),
    ]
}

/// Binds the context's socket, if it is bound to nothing: `struct sockaddr_in`, its port 0.
fn bind4(own: Ipv4Addr) -> Vec<Insn<'static>> {
    let name = -16;
    vec![
        Insn::Load(Size::Double, R7, R6, SOCKET),
        Insn::Load(Size::Word, R8, R7, OWN4),
        Insn::JumpIf(Cond::Ne, R8, Operand::Imm(0), "bound"),
        Insn::Store(Size::Double, R10, name, Operand::Imm(0)),
        Insn::Store(Size::Double, R10, name + 8, Operand::Imm(0)),
        Insn::Store(Size::Half, R10, name, Operand::Imm(libc::AF_INET)),
        Insn::Store(Size::Word, R10, name + 4, Operand::Imm(word(&own.octets(), 0))),
    ]
    .into_iter()
    .chain(bind(name, 16))
    .collect()
}

/// The same with `struct sockaddr_in6`.
fn bind6(own: &[u8; 16]) -> Vec<Insn<'static>> {
    let name: i16 = -32;
    let mut program = vec![Insn::Load(Size::Double, R7, R6, SOCKET)];
    for field in OWN6 {
        program.push(Insn::Load(Size::Word, R8, R7, field));
        program.push(Insn::JumpIf(Cond::Ne, R8, Operand::Imm(0), "bound"));
    }
    program.extend([0, 8, 16, 24].map(|at| Insn::Store(Size::Double, R10, name + at, Operand::Imm(0))));
    program.push(Insn::Store(Size::Half, R10, name, Operand::Imm(libc::AF_INET6)));
    for (at, index) in [(8, 0), (12, 4), (16, 8), (20, 12)] {
        program.push(Insn::Store(Size::Word, R10, name + at, Operand::Imm(word(own, index))));
    }
    program.extend(bind(name, 28));
    program
}

/// Instructions that bind the socket. One that the kernel refuses to bind stays as it was.
fn bind(name: i16, length: i32) -> [Insn<'static>; 6] {
    [
        Insn::Mov(R1, Operand::Of(R6)),
        Insn::Mov(R2, Operand::Of(R10)),
        Insn::Alu(AluOp::Add, R2, Operand::Imm(name.into())),
        Insn::Mov(R3, Operand::Imm(length)),
        Insn::Call(Helper::Bind),
        Insn::Jump("bound"),
    ]
}

/// Says where a packet comes from, on the way to `next`, unless it is said already.
fn unless_said(words: &[(i16, i32)], next: &'static str) -> Vec<Insn<'static>> {
    let mut program = Vec::new();
    for &(field, _) in words {
        program.push(Insn::Load(Size::Word, R2, R6, field));
        program.push(Insn::JumpIf(Cond::Ne, R2, Operand::Imm(0), next));
    }
    for &(field, number) in words {
        program.push(Insn::Mov(R2, Operand::Imm(number)));
        program.push(Insn::Store(Size::Word, R6, field, Operand::Of(R2)));
    }
    program
}

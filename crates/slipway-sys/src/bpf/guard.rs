//! Sockets that only some processes may connect or bind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::asm::{AluOp, Cond, Helper, Insn, Operand, R0, R1, R2};
use super::{Kind, LoadError, Program, call};

const NAME: &str = "socket_guard";

/// Guards every socket that was made in a version 2 control group, or accepted by one: IPv4 and IPv6, whoever has it by now.
/// `connect(2)` and `bind(2)` on it fail with `EPERM`, unless the calling process is in that very group itself.
///
/// A socket's group is that of the process that made it, for good (`sk_cgrp_data`). Disconnecting (`AF_UNSPEC`) and
/// `listen(2)` pass: the kernel has no hook there.
///
/// Lasts as long as this value; the sockets are unguarded afterwards.
#[derive(Debug)]
pub struct SocketGuard {
    _links: [OwnedFd; 4],
}

impl SocketGuard {
    /// Guards the sockets of the group whose folder is `group`, those that it has and those that it will have.
    ///
    /// # Errors
    /// [`LoadError`]; needs `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 5.7.
    pub fn attach(group: BorrowedFd<'_>) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Attach { name: NAME.to_owned(), error };
        // A group's number is its folder's inode's (`kernfs_id_ino`).
        let number = rustix::fs::fstat(group).map_err(|errno| refused(errno.into()))?.st_ino;
        let program = program(number);
        let attach = |kind: Kind| {
            let program = Program::load(kind, NAME, &program)?;
            call::link(program.as_fd(), group, kind.attach_type()).map_err(refused)
        };
        let links = [attach(Kind::Connect4)?, attach(Kind::Connect6)?, attach(Kind::Bind4)?, attach(Kind::Bind6)?];
        Ok(Self { _links: links })
    }
}

/// 1, which is yes, where the current process is in the group of this number; 0 otherwise.
fn program(group: u64) -> [Insn<'static>; 13] {
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
        Insn::JumpIf(Cond::Eq, R0, Operand::Of(R1), "yes"),
        Insn::Mov(R0, Operand::Imm(0)),
        Insn::Exit,
        Insn::Label("yes"),
        Insn::Mov(R0, Operand::Imm(1)),
        Insn::Exit,
    ]
}

//! Which threads had their calls interrupted.

use std::ffi::{CStr, c_long};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::asm::{AluOp, Cond, Helper, Insn, Operand, R0, R1, R2, R3, R4, R6, R10, Size};
use super::storage::{Of, Storage};
use super::{CREATE, Kind, LoadError, Program, call};

const NAME: &str = "interruptions";

/// Where a thread takes a signal (`get_signal`, `kernel/signal.c`): before its interrupted call is about to be made again, or to
/// fail with `EINTR`.
const TRACEPOINT: &CStr = c"signal_deliver";
/// Which of its arguments, 8 bytes each, is the address of what is done about the signal, a `struct k_sigaction`. It begins with the
/// handler's address.
const ACTION: i16 = 16;
/// The greatest that is no handler (`SIG_IGN`).
const NO_HANDLER: i32 = 1;

/// How a call that waits for a filter's supervisor is interrupted: `ERESTARTSYS` (`include/linux/errno.h`).
const INTERRUPTED: i32 = -512;

/// Where a thread's registers have a call's result, and which call it was (`struct pt_regs`, `arch/x86/include/asm/ptrace.h`).
const RESULT: i16 = 80;
const CALL: i16 = 120;

/// Counts for every thread of the machine how often some of its calls were interrupted by a signal that has a handler, while they
/// waited for an answer of a filter's supervisor.
///
/// Who answers calls for others (`seccomp_unotify(2)`) is not told whether an answer was heard: a caller that a signal has woken goes
/// on without the answer that comes before it holds the filter's lock (`seccomp_do_user_notification`, `kernel/seccomp.c`). By
/// these counts it can be known. They cost nothing where no signal comes.
///
/// Counts as long as this value lives.
#[derive(Debug)]
pub struct Interruptions {
    _link: OwnedFd,
}

impl Interruptions {
    /// Counts these calls in `counts`, e.g. `SYS_accept4`.
    ///
    /// # Errors
    /// [`LoadError`]; needs x86-64, `CAP_BPF` and `CAP_PERFMON`, Linux 5.15, and a kernel that describes its types
    /// (`CONFIG_DEBUG_INFO_BTF`) and lets programs be run at its tracepoints (`CONFIG_BPF_EVENTS`).
    pub fn count(calls: &[c_long], counts: &ThreadCounts) -> Result<Self, LoadError> {
        let refused = |error| LoadError::Attach { name: NAME.to_owned(), error };
        if !cfg!(target_arch = "x86_64") {
            let why = "only x86-64 still shows here that a call is to be made again";
            return Err(refused(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let program = Program::load(Kind::Tracepoint, NAME, &count(calls, counts))?;
        Ok(Self { _link: call::trace(program.as_fd(), TRACEPOINT).map_err(refused)? })
    }
}

fn count<'a>(calls: &[c_long], counts: &'a ThreadCounts) -> Vec<Insn<'a>> {
    let mut program = vec![
        // A thread can take several signals for one interruption, but only one that has a handler.
        Insn::Load(Size::Double, R3, R1, ACTION),
        Insn::Mov(R1, Operand::Of(R10)),
        Insn::Alu(AluOp::Add, R1, Operand::Imm(-8)),
        Insn::Mov(R2, Operand::Imm(8)),
        Insn::Call(Helper::ProbeReadKernel),
        Insn::JumpIf(Cond::Ne, R0, Operand::Imm(0), "out"),
        Insn::Load(Size::Double, R1, R10, -8),
        Insn::JumpIf(Cond::Le, R1, Operand::Imm(NO_HANDLER), "out"),
        Insn::Call(Helper::GetCurrentTaskBtf),
        Insn::Mov(R6, Operand::Of(R0)),
        Insn::Mov(R1, Operand::Of(R0)),
        Insn::Call(Helper::TaskPtRegs),
        Insn::Load(Size::Double, R1, R0, RESULT),
        Insn::JumpIf(Cond::Ne, R1, Operand::Imm(INTERRUPTED), "out"),
        Insn::Load(Size::Double, R1, R0, CALL),
    ];
    // All numbers of calls are small.
    let calls = calls.iter().filter_map(|&call| i32::try_from(call).ok());
    program.extend(calls.map(|call| Insn::JumpIf(Cond::Eq, R1, Operand::Imm(call), "count")));
    program.extend([
        Insn::Jump("out"),
        Insn::Label("count"),
        Insn::LoadMap(R1, counts.as_fd()),
        Insn::Mov(R2, Operand::Of(R6)),
        Insn::Mov(R3, Operand::Imm(0)),
        Insn::Mov(R4, Operand::Imm(CREATE)),
        Insn::Call(Helper::TaskStorageGet),
        Insn::JumpIf(Cond::Eq, R0, Operand::Imm(0), "out"),
        Insn::Load(Size::Double, R1, R0, 0),
        Insn::Alu(AluOp::Add, R1, Operand::Imm(1)),
        Insn::Store(Size::Double, R0, 0, Operand::Of(R1)),
        Insn::Label("out"),
        Insn::Mov(R0, Operand::Imm(0)),
        Insn::Exit,
    ]);
    program
}

/// A number for each thread, gone with it.
#[derive(Debug)]
pub struct ThreadCounts(Storage);

impl ThreadCounts {
    /// Makes them, all zero. `name` shows in `bpftool map`: at most 15 letters, digits, `_` or `.`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn create(name: &str) -> io::Result<Self> {
        Storage::create(Of::Threads, name, size_of::<u64>()).map(Self)
    }

    /// That of a thread, by a pidfd of its own (`PIDFD_THREAD`, Linux 6.9), or of a process's first thread, by one of the process.
    ///
    /// # Errors
    /// `EBADF` where it is no pidfd; before Linux 5.19 `EPERM` without `CAP_BPF`.
    pub fn of(&self, thread: BorrowedFd<'_>) -> io::Result<u64> {
        let value = self.0.get(thread)?;
        Ok(value.and_then(|value| value.first_chunk().copied()).map_or(0, u64::from_ne_bytes))
    }
}

impl AsFd for ThreadCounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl TryFrom<OwnedFd> for ThreadCounts {
    type Error = io::Error;

    /// Takes over counts that another process made and passed on; `InvalidInput` where it is something else.
    fn try_from(descriptor: OwnedFd) -> io::Result<Self> {
        Storage::take_over(Of::Threads, descriptor).map(Self)
    }
}

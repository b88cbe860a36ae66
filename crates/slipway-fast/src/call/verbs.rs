//! Control commands of verbs that libibverbs sends to its device past a plug-in (`RDMA_VERBS_IOCTL`,
//! `include/uapi/rdma/rdma_user_ioctl_cmds.h`).

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Answer, Trapped};
use crate::rdma_wire::{Control, HEADER, LONGEST_CONTROL};

/// Carries a command out. No other device has this request number: nodes have none.
pub(super) fn ioctl(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let length = call.read(2, 2)?;
    let length = length.first_chunk().map_or(0, |bytes| usize::from(u16::from_ne_bytes(*bytes)));
    if !(HEADER..=LONGEST_CONTROL).contains(&length) {
        return Err(Errno::INVAL.into());
    }
    match Control::read(&call.read(2, length)?) {
        // The kernel's answer to a command that is too short, which tells libibverbs that commands work this way
        // (`has_ioctl_write`, `libibverbs/device.c` of rdma-core).
        Some(Control::Probe) => Err(Errno::NOSPC.into()),
        Some(Control::CreateCompletionChannel { answer_at }) => create_completion_channel(call, answer_at),
        // libibverbs then asks sysfs (`query_gid_entry`).
        Some(Control::QueryGidEntry) => Err(Errno::PROTONOSUPPORT.into()),
        None => Err(Errno::OPNOTSUPP.into()),
    }
}

/// Gives the program a descriptor for completion events. It is a FIFO that is open for reading and writing, so the plug-in in the
/// program writes events to it. No other program has it.
fn create_completion_channel(call: &Trapped<'_>, answer_at: u64) -> Result<Answer, Answer> {
    let memory = call.confirmed(call.call.memory())?;
    let fifo = fifo()?;
    let number = call.tree.listener.install(call.call.id, fifo.as_fd(), None, true)?;
    // A program that gave a bad address has one descriptor more.
    memory.write(answer_at, &number.to_ne_bytes())?;
    Ok(Answer::Result(Ok(0)))
}

fn fifo() -> std::io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    Ok(std::fs::File::options().read(true).write(true).open(path)?.into())
}

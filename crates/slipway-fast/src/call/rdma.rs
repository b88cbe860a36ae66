//! Calls of librdmacm: opening its device, looking at it, and commands.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Answer, Trapped};
use crate::filter::{CHANNELS, FIRST_CHANNEL};
use crate::rdma::{Standing, Waiting, inode};
use crate::rdma_wire::{COMMAND, Command, LONGEST_COMMAND};
use crate::sync::lock;

/// The device's path, as programs pass it.
const PATH: &[u8] = b"/dev/infiniband/rdma_cm\0";

/// `openat(2)`: opens a channel in the place of the device. Other files are the kernel's to open: a program that changes the path
/// meanwhile has only the file that it asked for.
pub(super) fn open(call: &Trapped<'_>) -> Result<Answer, Answer> {
    match call.read(1, PATH.len()) {
        Ok(path) if path == PATH => {}
        // A path at the very end of a program's memory is shorter.
        _ => return Ok(Answer::GoOn),
    }
    let caller = call.confirmed(call.tree.caller(call.call.tid))?;
    let is_free = |number: &i32| matches!(caller.descriptor(*number), Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF));
    let window = FIRST_CHANNEL.cast_signed()..(FIRST_CHANNEL + CHANNELS).cast_signed();
    let end = call.parts.rdma.open(call.node())?;
    // Threads of one program share its numbers.
    let _numbering = lock(&call.tree.numbering);
    let number = window.into_iter().find(is_free).ok_or(Errno::MFILE)?;
    let installed = call.tree.listener.install(call.call.id, end.as_fd(), Some(number), true);
    // EBADF: beyond the program's limit of descriptors.
    let installed = installed.map_err(|_| Errno::MFILE)?;
    Ok(Answer::Result(Ok(installed.into())))
}

/// The caller's end of a channel. `None` for any other file: its call is the kernel's.
fn channel(call: &Trapped<'_>) -> Result<Option<(OwnedFd, u64)>, Answer> {
    let file = call.socket()?;
    let inode = inode(&file)?;
    Ok(call.parts.rdma.is_channel(call.node(), inode).then_some((file, inode)))
}

/// `fstat(2)`, and `newfstatat(2)` on a descriptor itself: a channel looks like the device.
pub(super) fn stat(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let buffer = if call.call.number == libc::SYS_newfstatat {
        let is_itself = call.int(3) & libc::AT_EMPTY_PATH != 0 && call.read(1, 1).is_ok_and(|path| path == [0]);
        if !is_itself {
            return Ok(Answer::GoOn);
        }
        2
    } else {
        1
    };
    if channel(call)?.is_none() {
        return Ok(Answer::GoOn);
    }
    call.confirmed(call.call.memory())?.write(call.call.args[buffer], &device())?;
    Ok(Answer::Result(Ok(0)))
}

/// `struct stat` of a character device with the number of `/dev/null` (`arch/*/include/uapi/asm/stat.h`).
fn device() -> [u8; size_of::<libc::stat>()] {
    let mut bytes = [0; size_of::<libc::stat>()];
    let mode = std::mem::offset_of!(libc::stat, st_mode);
    bytes[mode..mode + 4].copy_from_slice(&(libc::S_IFCHR | 0o666).to_ne_bytes());
    let number = std::mem::offset_of!(libc::stat, st_rdev);
    bytes[number..number + 8].copy_from_slice(&rustix::fs::makedev(1, 3).to_ne_bytes());
    let links = std::mem::offset_of!(libc::stat, st_nlink);
    bytes[links] = 1;
    bytes
}

/// `write(2)`: carries a command out. A command that has been carried out was written whole.
pub(super) fn command(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let Some((end, channel)) = channel(call)? else { return Ok(Answer::GoOn) };
    let length = usize::try_from(call.call.args[2]).map_err(|_| Errno::INVAL)?;
    if !(COMMAND..=LONGEST_COMMAND).contains(&length) {
        return Err(Errno::INVAL.into());
    }
    let command = Command::read(&call.read(1, length)?).ok_or(Errno::INVAL)?;
    let at = Standing { node: call.node(), channel, end: &end };
    if let Command::GetEvent { answer_at, room } = command {
        let memory = call.confirmed(call.call.memory())?;
        let waiting = Waiting { tree: call.tree.clone(), call: call.call, memory, answer_at, room };
        let may_wait = !rustix::fs::fcntl_getfl(&end).map_err(std::io::Error::from)?.contains(OFlags::NONBLOCK);
        call.parts.rdma.get_event(at, waiting, may_wait)?;
        return Ok(Answer::Blocked);
    }
    let (room, answer) = carry_out(call, at, command)?;
    if !answer.is_empty() {
        call.confirmed(call.call.memory())?.write(room, &answer)?;
    }
    Ok(Answer::Result(Ok(i64::try_from(length).map_err(|_| Errno::INVAL)?)))
}

/// Carries a command out. Gives its answer, and the address in the program that it goes to.
fn carry_out(call: &Trapped<'_>, at: Standing<'_>, command: Command) -> Result<(u64, Vec<u8>), Answer> {
    let nothing = (0, Vec::new());
    let from = match &command {
        Command::Migrate { from, .. } => {
            let other = call.tree.found(call.call.tid, *from).and_then(|(_, file)| inode(file));
            call.confirmed(other)?
        }
        _ => 0,
    };
    if let Command::Connect { id, offer } = &command {
        let wish = call.parts.rdma.with(|commands| commands.connect(at, *id, offer))?;
        if let Some(wish) = wish {
            call.parts.rdma.call(&call.parts.peers, wish);
        }
        return Ok(nothing);
    }
    let done = call.parts.rdma.with(|commands| match command {
        Command::CreateId { uid, answer_at, port_space } => {
            let id = commands.create(at, uid, port_space)?;
            Ok((answer_at, id.to_ne_bytes().to_vec()))
        }
        Command::DestroyId { id, answer_at } => Ok((answer_at, commands.destroy(at, id)?.to_ne_bytes().to_vec())),
        Command::Bind { id, address } => commands.bind(at, id, address.ok_or(Errno::AFNOSUPPORT)?).map(|()| nothing),
        Command::ResolveAddress { id, from, to } => {
            commands.resolve_address(at, id, from, to.ok_or(Errno::AFNOSUPPORT)?).map(|()| nothing)
        }
        Command::ResolveRoute { id } => commands.resolve_route(at, id).map(|()| nothing),
        Command::QueryRoute { id, answer_at } => Ok((answer_at, commands.route(at, id)?.to_vec())),
        Command::Listen { id, backlog } => commands.listen(at, id, backlog).map(|()| nothing),
        Command::Accept { id, uid, offer } => commands.accept(at, id, uid, &offer).map(|()| nothing),
        Command::Reject { id, private } => commands.reject(at, id, private).map(|()| nothing),
        Command::Disconnect { id } => commands.disconnect(at, id).map(|()| nothing),
        Command::InitAttributes { id, state, answer_at } => {
            Ok((answer_at, commands.attributes(at, id, state)?.to_vec()))
        }
        Command::Migrate { id, answer_at, .. } => {
            Ok((answer_at, commands.migrate(at, id, from)?.to_ne_bytes().to_vec()))
        }
        Command::JoinGroup { id, uid, group, answer_at } => {
            let member = commands.join_group(at, id, uid, group.ok_or(Errno::AFNOSUPPORT)?)?;
            Ok((answer_at, member.to_ne_bytes().to_vec()))
        }
        Command::LeaveGroup { id, answer_at } => Ok((answer_at, commands.leave_group(at, id)?.to_ne_bytes().to_vec())),
        Command::Nothing => Ok(nothing),
        Command::Connect { .. } | Command::GetEvent { .. } | Command::Unknown => Err(Errno::NOSYS),
    });
    Ok(done?)
}

//! Calls of librdmacm: opening its device, looking at it, and commands.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Answer, Trapped};
use crate::filter::{CHANNELS, FIRST_CHANNEL};
use crate::rdma::{Fate, Made, Standing, Waiting, inode};
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
    let bytes = call.read(1, length)?;
    let command = Command::read(&bytes).ok_or(Errno::INVAL)?;
    let made = Made::new(call.call.tid, &bytes);
    let at = Standing { node: call.node(), channel, end: &end, made };
    if let Command::GetEvent { answer_at, room } = command {
        let memory = call.confirmed(call.call.memory())?;
        let waiting = Waiting { tree: call.tree.clone(), call: call.call, memory, answer_at, room };
        let may_wait = !rustix::fs::fcntl_getfl(&end).map_err(std::io::Error::from)?.contains(OFlags::NONBLOCK);
        call.parts.rdma.get_event(at, waiting, may_wait)?;
        return Ok(Answer::Blocked);
    }
    let answer_at = command.answer_at();
    let answer = match carry_out(call, at, command)? {
        Told::Nothing => Vec::new(),
        Told::Number(number) => number.to_ne_bytes().to_vec(),
        Told::Bytes(bytes) => bytes,
    };
    if let Some(answer_at) = answer_at {
        call.confirmed(call.call.memory())?.write(answer_at, &answer)?;
    }
    Ok(Answer::Result(Ok(i64::try_from(length).map_err(|_| Errno::INVAL)?)))
}

/// The answer to a command.
enum Told {
    Nothing,
    /// A number, by a command that has changed something.
    Number(u32),
    /// The bytes that it asks for.
    Bytes(Vec<u8>),
}

/// The answer to a command that tells nothing.
fn nothing(done: Result<(), Errno>) -> Result<Told, Errno> {
    done.map(|()| Told::Nothing)
}

/// Carries a command out, unless that was done before.
fn carry_out(call: &Trapped<'_>, at: Standing<'_>, command: Command) -> Result<Told, Answer> {
    let from = match &command {
        Command::Migrate { from, .. } => {
            let other = call.tree.found(call.call.tid, *from).and_then(|(_, file)| inode(file));
            call.confirmed(other)?
        }
        _ => 0,
    };
    let mut wish = None;
    let told = call.parts.rdma.with(|commands| {
        if let Some(answer) = commands.repeated(at) {
            return Ok(Told::Number(answer));
        }
        let told = match command {
            Command::CreateId { uid, port_space, .. } => Told::Number(commands.create(at, uid, port_space)?),
            Command::DestroyId { id, .. } => Told::Number(commands.destroy(at, id)?),
            Command::Bind { id, address } => nothing(commands.bind(at, id, address.ok_or(Errno::AFNOSUPPORT)?))?,
            Command::ResolveAddress { id, from, to } => {
                let to = to.ok_or(Errno::AFNOSUPPORT)?;
                // A program may look once more for one that was not found.
                if !commands.resolve_address(at, id, from, to)? {
                    return Ok(Told::Nothing);
                }
                Told::Nothing
            }
            Command::ResolveRoute { id } => nothing(commands.resolve_route(at, id))?,
            Command::Connect { id, offer } => {
                match commands.connect(at, id, &offer)? {
                    // Noted once the other router was asked.
                    Fate::Far(asked) => wish = Some(asked),
                    Fate::Told | Fate::Waits => commands.did(at, 0),
                    Fate::Refused => {}
                }
                return Ok(Told::Nothing);
            }
            Command::Listen { id, backlog } => nothing(commands.listen(at, id, backlog))?,
            Command::Accept { id, uid, offer } => nothing(commands.accept(at, id, uid, &offer))?,
            Command::Reject { id, private } => nothing(commands.reject(at, id, private))?,
            Command::Disconnect { id } => nothing(commands.disconnect(at, id))?,
            Command::Migrate { id, .. } => Told::Number(commands.migrate(at, id, from)?),
            Command::JoinGroup { id, uid, group, .. } => {
                Told::Number(commands.join_group(at, id, uid, group.ok_or(Errno::AFNOSUPPORT)?)?)
            }
            Command::LeaveGroup { id, .. } => Told::Number(commands.leave_group(at, id)?),
            Command::QueryRoute { id, .. } => return Ok(Told::Bytes(commands.route(at, id)?.to_vec())),
            Command::InitAttributes { id, state, .. } => {
                return Ok(Told::Bytes(commands.attributes(at, id, state)?.to_vec()));
            }
            Command::Nothing => return Ok(Told::Nothing),
            Command::GetEvent { .. } | Command::Unknown => return Err(Errno::NOSYS),
        };
        commands.did(at, if let Told::Number(answer) = told { answer } else { 0 });
        Ok(told)
    })?;
    if let Some(wish) = wish {
        call.parts.rdma.call(&call.parts.peers, at, wish);
    }
    Ok(told)
}

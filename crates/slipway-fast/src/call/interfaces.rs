//! `ioctl(2)` about network interfaces (`netdevice(7)`). A socket answers for the namespace that it was made in. For a
//! handed-out socket that is not the node's.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use slipway_sys::interfaces::{self, Question, SIOCGIFCONF};

use super::{Answer, Trapped};

pub(super) fn ioctl(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let file = call.socket()?;
    let metadata = match call.parts.metadata.of(&file) {
        // Devices use these request numbers too, and are not ours.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTSOCK) => return Ok(Answer::GoOn),
        other => other?,
    };
    let request = call.int(1).cast_unsigned();
    let known = request == SIOCGIFCONF || interfaces::is_question(request);
    match metadata {
        None if !known => Ok(Answer::GoOn),
        // The call runs on a copy, which the program cannot replace meanwhile.
        None => answer(call, file.as_fd(), request),
        Some(_) if !known => Err(Errno::NOTTY.into()),
        Some(metadata) => {
            let native = call.parts.delivery.node_socket(call.node(), metadata.local.is_ipv6()).ok_or(Errno::NOTTY)?;
            answer(call, native.socket.as_fd(), request)
        }
    }
}

fn answer(call: &Trapped<'_>, socket: BorrowedFd<'_>, request: u32) -> Result<Answer, Answer> {
    let at = call.call.args[2];
    if request == SIOCGIFCONF {
        // `struct ifconf`: a length, padding, an address.
        let asked = call.read(2, 16)?;
        let (length, room) =
            (asked.first_chunk().copied().unwrap_or_default(), asked.last_chunk().copied().unwrap_or_default());
        let room = u64::from_ne_bytes(room);
        // A program without room asks for the size.
        let most = if room == 0 { usize::MAX } else { usize::try_from(i32::from_ne_bytes(length)).unwrap_or_default() };
        let list = interfaces::list(socket, most)?;
        let memory = call.confirmed(call.call.memory())?;
        if room != 0 && !list.is_empty() {
            memory.write(room, &list)?;
        }
        memory.write(at, &u32::try_from(list.len()).unwrap_or_default().to_ne_bytes())?;
    } else {
        let mut question: Question = *call.read(2, size_of::<Question>())?.first_chunk().ok_or(Errno::FAULT)?;
        interfaces::ask(socket, request, &mut question)?;
        call.confirmed(call.call.memory())?.write(at, &question)?;
    }
    Ok(Answer::Result(Ok(0)))
}

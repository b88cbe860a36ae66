//! `getsockname(2)` and `getpeername(2)`: virtual addresses, whatever the socket is.

use rustix::io::Errno;

use super::{Answer, Trapped};
use crate::address::write;

pub(super) fn name(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let Some(note) = call.router.notes.of(&socket)? else { return Ok(Answer::GoOn) };
    let address = if call.call.number == libc::SYS_getsockname { note.local } else { note.peer };
    call.write(1, &write(address), false)?;
    Ok(Answer::Result(Ok(0)))
}

/// Questions about interfaces (`netdevice(7)`) are answered for the namespace that a socket was made in, which for one that was
/// handed out is not the node's.
pub(super) fn ioctl(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let file = call.socket()?;
    match call.router.notes.of(&file) {
        Ok(Some(_)) => Err(Errno::NOTTY.into()),
        // Devices take requests of these numbers too, and are none of ours.
        Ok(None) => Ok(Answer::GoOn),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTSOCK) => Ok(Answer::GoOn),
        Err(error) => Err(error.into()),
    }
}

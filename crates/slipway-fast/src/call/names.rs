//! `getsockname(2)` and `getpeername(2)`: virtual addresses, whatever the socket is.

use super::{Answer, Trapped};
use crate::address::write;

pub(super) fn name(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    let Some(metadata) = call.parts.metadata.of(&socket)? else { return Ok(Answer::GoOn) };
    let address = if call.call.number == libc::SYS_getsockname { metadata.local } else { metadata.peer };
    call.write(1, &write(address), false)?;
    Ok(Answer::Result(Ok(0)))
}

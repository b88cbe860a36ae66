//! `listen(2)`: a socket that was handed out cannot become a listener of the host.

use rustix::io::Errno;

use super::{Answer, Trapped};

pub(super) fn listen(call: &Trapped<'_>) -> Result<Answer, Answer> {
    let socket = call.socket()?;
    if call.router.notes.of(&socket)?.is_some() {
        return Err(Errno::INVAL.into());
    }
    rustix::net::listen(&socket, call.int(1))?;
    Ok(Answer::Result(Ok(0)))
}

//! The control socket of a running player: `slipway pause`, `slipway resume`, and news of a job on another machine.

use std::io;
use std::path::Path;

use crate::protocol::{Alone, End, JobEnded, Pause, PlayerRequest, Resume, Server};

/// Opens the socket at `path`, where an earlier player may have left its own.
pub(super) fn open(path: &Path) -> io::Result<Server<PlayerRequest>> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Server::open(path)
}

/// Goes on with the peers that are ready. Gives a request, which has been answered.
pub(super) fn hear(server: &mut Server<PlayerRequest>, ready: &[bool]) -> Option<PlayerRequest> {
    let mut heard = None;
    server.tend(ready, |request, _, to| {
        let answer = match &request {
            PlayerRequest::Pause(_) => to.answer::<Pause>(Ok(())),
            PlayerRequest::Resume(_) => to.answer::<Resume>(Ok(())),
            PlayerRequest::JobEnded(_) => to.answer::<JobEnded>(Ok(())),
            PlayerRequest::End(_) => to.answer::<End>(Ok(())),
            PlayerRequest::Alone(_) => to.answer::<Alone>(Ok(())),
        };
        heard = Some(request);
        answer
    });
    heard
}

//! Where a running player hears `slipway pause` and `slipway resume`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recv, send, socket_with,
};
use serde::{Deserialize, Serialize};

/// What a player can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knock {
    /// Stop the scenario's clock.
    Pause,
    /// Let it go on.
    Resume,
}

/// For one who connects and says nothing.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Door(OwnedFd);

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Door {
    /// Opens one at `path`, where an earlier player may have left its own.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let door = socket()?;
        bind(&door, &SocketAddrUnix::new(path)?)?;
        listen(&door, 4)?;
        Ok(Self(door))
    }

    /// Hears one who is there, and lets them know. `None`: they went away, or said nothing that is understood.
    pub(super) fn hear(&self) -> io::Result<Option<Knock>> {
        let visitor = accept_with(&self.0, SocketFlags::CLOEXEC)?;
        let mut word = [0; 64];
        // Said right after the connection is made. One who says nothing must not hold the player.
        set_socket_timeout(&visitor, Timeout::Recv, Some(PATIENCE))?;
        let Ok((length, _)) = recv(&visitor, &mut word[..], RecvFlags::empty()) else { return Ok(None) };
        let knock = serde_json::from_slice(&word[..length]).ok();
        if knock.is_some() {
            let _ = send(&visitor, b"heard", SendFlags::NOSIGNAL);
        }
        Ok(knock)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Asks the player behind the door at `path`, and waits until it has heard.
pub(super) fn knock(path: &Path, knock: Knock) -> io::Result<()> {
    let visitor = socket()?;
    connect(&visitor, &SocketAddrUnix::new(path)?)?;
    send(&visitor, &serde_json::to_vec(&knock)?, SendFlags::NOSIGNAL)?;
    let mut word = [0; 8];
    match recv(&visitor, &mut word[..], RecvFlags::empty())? {
        (0, _) => Err(io::Error::other("it did not listen")),
        _ => Ok(()),
    }
}

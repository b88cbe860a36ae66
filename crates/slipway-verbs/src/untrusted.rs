//! Descriptors that programs have made, or have too. To close the last one of a file takes as long as a program likes. A socket may
//! wait until its data are sent (`SO_LINGER`, socket(7)), and so may sockets in the queue of another.

#![allow(unsafe_code)]

use std::io::IoSliceMut;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use rustix::fs::{FileType, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

/// An option by which a socket takes descriptors, or refuses them (`include/uapi/asm-generic/socket.h`).
pub const SO_PASSRIGHTS: libc::c_int = 83;
/// Most descriptors of one message (`SCM_MAX_FD`, unix(7)).
const RIGHTS: usize = 253;
/// How long a descriptor may wait for others to be closed with it.
const MOMENT: Duration = Duration::from_millis(5);

/// A descriptor of a program. To drop it never waits.
#[derive(Debug)]
pub struct Untrusted(ManuallyDrop<OwnedFd>);

impl Untrusted {
    /// Gives the descriptor, which the caller knows to close at once: a file of memory, or a socket that no program has had.
    #[must_use]
    pub fn trusted(self) -> OwnedFd {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nobody uses or drops `this` again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl From<OwnedFd> for Untrusted {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for Untrusted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Untrusted {
    fn drop(&mut self) {
        static CLOSER: OnceLock<Option<Sender<OwnedFd>>> = OnceLock::new();
        let start = || {
            let (sender, descriptors) = channel();
            let close = move || close_all(&descriptors);
            Builder::new().name("closes".into()).spawn(close).ok().map(|_| sender)
        };
        // SAFETY: nobody uses it again.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(closer) = CLOSER.get_or_init(start) {
            // Its thread lives as long as the process. Without it, the descriptor is closed here.
            let _ = closer.send(fd);
        }
    }
}

/// Descriptors that a program gets, or has got.
#[must_use]
pub fn untrusted(fds: Vec<OwnedFd>) -> Vec<Untrusted> {
    fds.into_iter().map(Untrusted::from).collect()
}

/// Has the kernel refuse descriptors that are sent to this socket, until its owner wants otherwise. Kernels before Linux 6.16
/// cannot, and nothing changes.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn refuse_rights(socket: impl AsFd) -> Result<(), Errno> {
    let (passes, length): (libc::c_int, libc::socklen_t) = (0, 4);
    let (number, value) = (socket.as_fd().as_raw_fd(), (&raw const passes).cast());
    // SAFETY: a number of four bytes, which lives through the call.
    match unsafe { libc::setsockopt(number, libc::SOL_SOCKET, SO_PASSRIGHTS, value, length) } {
        0 => Ok(()),
        _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::NOPROTOOPT) => Ok(()),
            other => Err(other.unwrap_or(Errno::IO)),
        },
    }
}

/// A message of a program.
#[derive(Debug)]
pub struct Received {
    /// Its length in bytes, as far as there was room.
    pub bytes: usize,
    /// False where bytes or descriptors had no room, and are lost.
    pub is_whole: bool,
    /// Descriptors that came along.
    pub fds: Vec<Untrusted>,
}

/// Receives a message, with all descriptors that come along: the kernel would close others at once, and may wait for that.
///
/// # Errors
/// As `recvmsg(2)`.
pub fn receive(socket: BorrowedFd<'_>, to: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(to)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights.map(Untrusted::from));
        }
    }
    let is_whole = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Received { bytes: received.bytes, is_whole, fds })
}

/// Closes descriptors as they come. Those of a moment are closed together.
fn close_all(descriptors: &Receiver<OwnedFd>) {
    while let Ok(first) = descriptors.recv() {
        std::thread::sleep(MOMENT);
        let all = std::iter::once(first).chain(descriptors.try_iter());
        // Only files of memory have seals.
        let all = all.filter(|fd| fcntl_get_seals(fd).is_err());
        let (sockets, others): (Vec<_>, Vec<_>) = all.partition(is_socket);
        close_sockets(sockets);
        if !others.is_empty() {
            // A file system of the program's may answer late.
            aside(move || drop(others));
        }
    }
}

/// Does what may wait in a thread of its own. Without a thread, the work is dropped here.
pub(crate) fn aside(work: impl FnOnce() + Send + 'static) {
    let _ = Builder::new().name("closes".into()).spawn(work);
}

fn is_socket(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Socket)
}

/// Closes sockets without waiting for their data, which the kernel sends all the same. A thread that ends closes its last
/// descriptors so (`PF_EXITING`; `inet_release`, `net/ipv4/af_inet.c`). So another thread has a copy of the table, and ends after
/// these sockets are closed here.
fn close_sockets(sockets: Vec<OwnedFd>) {
    if sockets.is_empty() {
        return;
    }
    let (has_copy, copied) = channel();
    let (closed, wait) = channel::<()>();
    let hold = move || {
        // SAFETY: the thread uses no descriptor afterwards.
        let _ = has_copy.send(unsafe { libc::unshare(libc::CLONE_FILES) });
        let _ = wait.recv();
    };
    if Builder::new().name("closes".into()).spawn(hold).is_ok() {
        let _ = copied.recv();
    }
    drop(sockets);
    drop(closed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::set_socket_linger;

    /// A socket that has unsent data, and waits for an hour when it is closed. Its peer comes too.
    fn lingering() -> (OwnedFd, TcpStream, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(more) = socket.write(&[7; 4096]) {
            sent += more;
        }
        set_socket_linger(&socket, Some(Duration::from_hours(1))).unwrap();
        (socket.into(), peer, sent)
    }

    #[test]
    fn sockets_that_linger_are_closed_at_once_and_their_data_arrive() {
        let mut given: Vec<_> = (0..3).map(|_| lingering()).collect();
        let (sender, descriptors) = channel();
        for (socket, _, _) in &mut given {
            let (other, _) = rustix::pipe::pipe().unwrap();
            sender.send(std::mem::replace(socket, other)).unwrap();
        }
        drop(sender);
        close_all(&descriptors);
        for (_, mut peer, sent) in given {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), sent);
        }
    }

    #[test]
    fn to_drop_one_waits_for_nobody() {
        let (socket, mut peer, sent) = lingering();
        drop(Untrusted::from(socket));
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), sent);
    }
}

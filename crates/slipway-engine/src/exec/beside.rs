//! Ways that a program has beside its standard streams: to the process manager that launched it, outside of its node.
//!
//! Nothing of the caller's passes into a node here either. The program has a port or a socket of its own, and threads of this
//! process carry the bytes. They begin once the program runs, since a process with threads cannot clone one.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::fs::{FileType, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use slipway_sys::ns::with_net;

use super::entry::Entry;

/// Connections that programs of the node may make to one port in all. A client of a process manager makes one.
const CONNECTIONS: usize = 16;
/// Sockets of programs have numbers from here on: lower ones are standard streams.
const LOWEST: RawFd = 10;

/// Ways that a program has beside its standard streams.
#[derive(Debug, Default)]
pub struct Beside {
    ports: Vec<(TcpListener, SocketAddr)>,
    /// Two ends to join: one of a pair that was made for the program, and one outside.
    sockets: Vec<[UnixStream; 2]>,
    /// The program's ends.
    kept: Vec<OwnedFd>,
}

impl Beside {
    /// Opens a port on the node's loopback that leads to an address of this machine. Gives its number.
    ///
    /// # Errors
    /// When the node has ended, or has no loopback that is up.
    pub fn port(&mut self, entry: &Entry, to: SocketAddr) -> io::Result<u16> {
        let init = entry.init.open()?.ok_or_else(|| io::Error::other("the node has ended"))?;
        let listener = with_net(init.as_fd(), || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
        let port = listener.local_addr()?.port();
        self.ports.push((listener, to));
        Ok(port)
    }

    /// Makes a socket for the program that leads to one that this process inherited under this number. Gives the number that
    /// it has in the program.
    ///
    /// # Errors
    /// When there is no such socket.
    pub fn socket(&mut self, inherited: RawFd) -> io::Result<RawFd> {
        if inherited < 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        let outside = pidfd_getfd(own, inherited, PidfdGetfdFlags::empty())?;
        if FileType::from_raw_mode(fstat(&outside)?.st_mode) != FileType::Socket {
            return Err(io::Error::other("it is no socket"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = fcntl_dupfd_cloexec(theirs, LOWEST)?;
        let number = theirs.as_raw_fd();
        self.sockets.push([ours, outside.into()]);
        self.kept.push(theirs);
        Ok(number)
    }

    /// The descriptors that the program has.
    pub(super) fn kept(&self) -> &[OwnedFd] {
        &self.kept
    }

    /// Carries bytes from now on, in threads that end with the process.
    pub(super) fn serve(self) -> io::Result<()> {
        for [ours, outside] in self.sockets {
            // The manager hears of the program's end from the batch system: half an end would puzzle it.
            carry(ours.try_clone()?, outside.try_clone()?, |_| Ok(()))?;
            carry(outside, ours, |end| end.shutdown(Shutdown::Write))?;
        }
        for (listener, to) in self.ports {
            in_thread(move || accept(&listener, to))?;
        }
        Ok(())
    }
}

fn accept(listener: &TcpListener, to: SocketAddr) -> io::Result<()> {
    for near in listener.incoming().take(CONNECTIONS) {
        let (near, far) = (near?, TcpStream::connect(to)?);
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        carry(near.try_clone()?, far.try_clone()?, |end| end.shutdown(Shutdown::Write))?;
        carry(far, near, |end| end.shutdown(Shutdown::Write))?;
    }
    Ok(())
}

/// Carries bytes one way, and calls `end` after the last.
fn carry<S>(mut from: S, mut to: S, end: impl FnOnce(&S) -> io::Result<()> + Send + 'static) -> io::Result<()>
where
    S: io::Read + io::Write + Send + 'static,
{
    in_thread(move || {
        io::copy(&mut from, &mut to)?;
        end(&to)
    })
}

/// A connection that breaks is seen by both of its ends.
fn in_thread(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let told = move || {
        if let Err(error) = work() {
            tracing::debug!("a way to the process manager has ended: {error}");
        }
    };
    thread::Builder::new().spawn(told).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_socket_leads_to_the_inherited_one() {
        let (mut manager, inherited) = UnixStream::pair().expect("a pair");
        let mut beside = Beside::default();
        assert!(beside.socket(-1).is_err() && beside.socket(0).is_err(), "standard input is no socket");
        let number = beside.socket(inherited.as_raw_fd()).expect("it is one");
        assert!(number >= LOWEST);
        let mut theirs = UnixStream::from(beside.kept[0].try_clone().expect("a copy"));
        beside.kept.clear();
        beside.serve().expect("threads start");
        theirs.write_all(b"cmd=init").expect("writes");
        drop(inherited);
        let mut heard = [0; 8];
        manager.read_exact(&mut heard).expect("reads");
        assert_eq!(&heard, b"cmd=init");
        manager.write_all(b"rc=0").expect("writes");
        drop(manager);
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).expect("reads to the end");
        assert_eq!(answer, "rc=0");
    }
}

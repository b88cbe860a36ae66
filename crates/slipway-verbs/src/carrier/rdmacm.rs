//! Sockets over RDMA (`rsocket(7)`), by the machine's own librdmacm. It is loaded at run time: building needs no header or library.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4};

use libc::{in_addr, pollfd, sa_family_t, sockaddr, sockaddr_in, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::servant::{functions, last};
use crate::untrusted::aside;

/// Connections that nobody has accepted yet.
const BACKLOG: c_int = 128;
/// Seconds without a word after which the library asks whether the peer is there.
const IDLE: c_int = 15;

functions! {
    /// The functions that the carrier calls (`rdma/rsocket.h`).
    Library of &[c"librdmacm.so.1"];
    rsocket: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    rbind: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
    rlisten: unsafe extern "C" fn(c_int, c_int) -> c_int,
    raccept: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    rconnect: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int,
    rclose: unsafe extern "C" fn(c_int) -> c_int,
    rrecv: unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> ssize_t,
    rsend: unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> ssize_t,
    rpoll: unsafe extern "C" fn(*mut pollfd, libc::nfds_t, c_int) -> c_int,
    rgetsockname: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    rgetsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    rsetsockopt: unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    rfcntl: unsafe extern "C" fn(c_int, c_int, ...) -> c_int,
}

/// A socket over RDMA. It never waits, except to accept.
#[derive(Debug)]
pub(super) struct Socket {
    library: &'static Library,
    number: c_int,
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// Bytes moved; `None` where the call would have waited.
fn moved(result: ssize_t) -> Result<Option<usize>, Errno> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => match last() {
            Errno::AGAIN | Errno::INTR => Ok(None),
            errno => Err(errno),
        },
    }
}

fn address(at: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: FAMILY,
        sin_port: at.port().to_be(),
        sin_addr: in_addr { s_addr: u32::from(*at.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const FAMILY: sa_family_t = libc::AF_INET as sa_family_t;
/// Length of an address.
const LENGTH: socklen_t = length::<sockaddr_in>();
/// Length of an option that is a number.
const NUMBER: socklen_t = length::<c_int>();

#[expect(clippy::cast_possible_truncation, reason = "small structures")]
const fn length<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

impl Library {
    /// A socket at an address of a device. `ENODEV`: no device has the address.
    fn bound(&'static self, at: SocketAddrV4) -> Result<Socket, Errno> {
        // SAFETY: no pointers.
        let number = check(unsafe { (self.rsocket)(libc::AF_INET, libc::SOCK_STREAM, 0) })?;
        let (socket, at) = (Socket { library: self, number }, address(at));
        // SAFETY: the address lives through the call.
        check(unsafe { (self.rbind)(number, (&raw const at).cast(), LENGTH) })?;
        Ok(socket)
    }

    /// Listens at an address of a device, for [`Socket::accept`] to wait. Gives the port too, which is the library's choice where it is 0 here.
    pub(super) fn listen(&'static self, at: SocketAddrV4) -> Result<(Socket, u16), Errno> {
        let socket = self.bound(at)?;
        let (mut own, mut length) = (address(at), LENGTH);
        // SAFETY: no pointers, then an address and its length, which live through the call.
        unsafe {
            check((self.rlisten)(socket.number, BACKLOG))?;
            check((self.rgetsockname)(socket.number, (&raw mut own).cast(), &raw mut length))?;
        }
        Ok((socket, u16::from_be(own.sin_port)))
    }

    /// Begins to connect. The socket is writable once that is done, or has failed ([`Socket::outcome`]).
    pub(super) fn connect(&'static self, from: Ipv4Addr, to: SocketAddrV4) -> Result<Socket, Errno> {
        let socket = self.bound(SocketAddrV4::new(from, 0))?;
        socket.wait_never()?;
        let to = address(to);
        // SAFETY: the address lives through the call.
        match check(unsafe { (self.rconnect)(socket.number, (&raw const to).cast(), LENGTH) }) {
            Ok(_) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(errno) => Err(errno),
        }
    }

    /// Waits for events of sockets and of other descriptors, in milliseconds; -1: for ever.
    pub(super) fn poll(&self, on: &mut [pollfd], timeout: c_int) -> Result<(), Errno> {
        let count = libc::nfds_t::try_from(on.len()).map_err(|_| Errno::INVAL)?;
        // SAFETY: so many structures that live through the call.
        match check(unsafe { (self.rpoll)(on.as_mut_ptr(), count, timeout) }) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Socket {
    /// Its number, for [`Library::poll`].
    pub(super) fn number(&self) -> c_int {
        self.number
    }

    fn wait_never(&self) -> Result<(), Errno> {
        // SAFETY: `F_SETFL` takes a number.
        check(unsafe { (self.library.rfcntl)(self.number, libc::F_SETFL, libc::O_NONBLOCK) }).map(drop)
    }

    /// Has the library find out about a peer that is gone.
    fn ask_idle(&self) -> Result<(), Errno> {
        let options = [(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1), (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, IDLE)];
        for (level, name, value) in options {
            // SAFETY: a number that lives through the call, and its length.
            let set =
                unsafe { (self.library.rsetsockopt)(self.number, level, name, (&raw const value).cast(), NUMBER) };
            check(set)?;
        }
        Ok(())
    }

    /// Waits for the next connection. `rpoll` would learn of it up to five seconds late. It waits for the listener's channel, whose
    /// events a thread of the library consumes (`rs_poll_arm`, librdmacm/rsocket.c).
    pub(super) fn accept(&self) -> Result<Self, Errno> {
        // SAFETY: the peer's address is not asked for.
        let number = unsafe { (self.library.raccept)(self.number, std::ptr::null_mut(), std::ptr::null_mut()) };
        let socket = Self { library: self.library, number: check(number)? };
        socket.wait_never()?;
        socket.ask_idle()?;
        Ok(socket)
    }

    /// The outcome of [`Library::connect`].
    pub(super) fn outcome(&self) -> Result<(), Errno> {
        let (mut error, mut length): (c_int, _) = (0, NUMBER);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ERROR);
        // SAFETY: a number and its length, which live through the call.
        let got =
            unsafe { (self.library.rgetsockopt)(self.number, level, name, (&raw mut error).cast(), &raw mut length) };
        check(got)?;
        if error == 0 { self.ask_idle() } else { Err(Errno::from_raw_os_error(error)) }
    }

    /// Sends as much as there is room for.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Errno> {
        // SAFETY: so many bytes that live through the call.
        moved(unsafe { (self.library.rsend)(self.number, bytes.as_ptr().cast(), bytes.len(), 0) })
    }

    /// Receives what has come; 0 bytes are the end.
    pub(super) fn receive(&self, to: &mut [u8]) -> Result<Option<usize>, Errno> {
        // SAFETY: room for so many bytes, which lives through the call.
        moved(unsafe { (self.library.rrecv)(self.number, to.as_mut_ptr().cast(), to.len(), 0) })
    }
}

impl Drop for Socket {
    /// To close waits until the device has sent all, or given up. Nobody else has to wait for that.
    fn drop(&mut self) {
        let (close, number) = (self.library.rclose, self.number);
        let close = move || {
            // SAFETY: no pointers, and nobody else has the socket. An error says that it was closed before.
            unsafe { close(number) };
        };
        // Without a thread it stays open until this process ends.
        aside(close);
    }
}

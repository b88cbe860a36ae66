//! Sockets that close slowly (`SO_LINGER`, socket(7)).

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Both ends of a TCP connection.
pub(crate) fn stream() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one.into(), listener.accept().unwrap().0.into())
}

/// Has a socket wait for a minute where somebody closes it: its peer does not read what it has to send.
pub(crate) fn linger(socket: OwnedFd) -> OwnedFd {
    let mut socket = TcpStream::from(socket);
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[7; 4096]).is_ok() {}
    set_socket_linger(&socket, Some(Duration::from_mins(1))).unwrap();
    socket.into()
}

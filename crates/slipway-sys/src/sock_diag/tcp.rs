//! TCP connections (`include/uapi/linux/inet_diag.h`).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use super::{BY_FAMILY, DESTROY, ask, attribute, cookie, number, write_attribute};
use crate::bpf::SocketStorage;

/// `INET_DIAG_INFO`: a `struct tcp_info`. As a question, bit `kind − 1`, here and below.
const INFO: u8 = 2;
/// `INET_DIAG_CONG`: the name of the congestion control.
const CONGESTION: u8 = 4;
/// Longest name of a congestion control, bytes (`TCP_CA_NAME_MAX`, its end mark counted).
const LONGEST_NAME: usize = 16;

/// `INET_DIAG_REQ_SK_BPF_STORAGES` as a question, with a map by its descriptor (`SK_DIAG_BPF_STORAGE_REQ_MAP_FD`); Linux 5.8.
const ASK_STORAGES: u16 = 2;
const ASK_MAP: u16 = 1;
/// `INET_DIAG_SK_BPF_STORAGES` as an answer, in it `SK_DIAG_BPF_STORAGE`, in that `SK_DIAG_BPF_STORAGE_MAP_VALUE`
/// (`include/uapi/linux/sock_diag.h`).
const STORAGES: u16 = 20;
const STORAGE: u16 = 1;
const VALUE: u16 = 3;

/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// States without a connection's socket (`include/net/tcp_states.h`): `TCP_TIME_WAIT`, `TCP_CLOSE`, `TCP_LISTEN`,
/// `TCP_NEW_SYN_RECV`.
const UNCONNECTED: [u8; 4] = [6, 7, 10, 12];

/// A TCP connection's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own address. One of IPv6 with an IPv4 address in it is given as the latter, here and below.
    pub local: SocketAddr,
    /// The other end's.
    pub remote: SocketAddr,
    /// As in `include/net/tcp_states.h`: 1 established, 2 and 3 connecting, others on their way to the end.
    pub state: u8,
    /// The low half of its inode's number: what `/proc/PID/fd` names as `socket:[…]`; 0 where no descriptor is left.
    pub inode: u32,
    /// The cookie, which is unique since the machine's start (`SO_COOKIE`).
    pub cookie: u64,
    /// A `struct tcp_info` (`include/uapi/linux/tcp.h`), as long as the kernel has it.
    pub info: Vec<u8>,
    /// The name of its congestion control, such as `bbr`. Empty where the kernel does not say.
    pub congestion: String,
}

/// All connections.
///
/// # Errors
/// `ENOENT` where the kernel was built without `CONFIG_INET_TCP_DIAG`.
pub fn tcp_sockets() -> io::Result<Vec<TcpSocket>> {
    let mut sockets = Vec::new();
    each_connection(&[], |message| sockets.extend(parse(message)))?;
    Ok(sockets)
}

/// The connections that have a value in this storage, with it: whoever holds their descriptors, and where nobody does yet.
///
/// # Errors
/// `EPERM` without `CAP_BPF`; otherwise as [`tcp_sockets`].
pub fn stored_tcp_sockets(storage: &SocketStorage) -> io::Result<Vec<(TcpSocket, Vec<u8>)>> {
    let map = write_attribute(ASK_MAP, &storage.as_fd().as_raw_fd().to_ne_bytes());
    let mut sockets = Vec::new();
    each_connection(&write_attribute(ASK_STORAGES, &map), |message| {
        sockets.extend(parse(message).zip(stored(message, storage.bytes())));
    })?;
    Ok(sockets)
}

fn each_connection(attributes: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let states = UNCONNECTED.iter().fold(u32::MAX, |states, state| states & !(1 << state));
    for family in [libc::AF_INET, libc::AF_INET6] {
        let question = [&request(family, &[INFO, CONGESTION], states, [0; 48]), attributes].concat();
        ask(BY_FAMILY, true, &question, &mut each)?;
    }
    Ok(())
}

/// Cuts the connection of this cookie between these addresses, as by `tcp_abort` (`net/ipv4/tcp.c`): its descriptors give
/// `ECONNABORTED`, the other end hears a reset. No other that has its addresses by now, and never a listener.
///
/// # Errors
/// `ENOENT` where there is none, `InvalidInput` where one address is of IPv4 and one of IPv6; `EPERM` without `CAP_NET_ADMIN`,
/// `EOPNOTSUPP` where the kernel was built without `CONFIG_INET_DIAG_DESTROY`.
pub fn destroy_tcp(local: SocketAddr, remote: SocketAddr, cookie: u64) -> io::Result<()> {
    let family = match (local, remote) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => libc::AF_INET,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => libc::AF_INET6,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let cut = ask(DESTROY, false, &request(family, &[], u32::MAX, identity(local, remote, cookie)), |_| {});
    cut.map_err(|error| match error.raw_os_error() {
        // Another socket was found there: the listener that would take a new one (`sock_diag_check_cookie`).
        Some(libc::ESTALE) => io::Error::from_raw_os_error(libc::ENOENT),
        _ => error,
    })
}

/// `struct inet_diag_req_v2`.
fn request(family: i32, extensions: &[u8], states: u32, identity: [u8; 48]) -> Vec<u8> {
    let extensions = extensions.iter().fold(0, |bits, kind| bits | 1 << (kind - 1));
    let mut request = vec![family.to_ne_bytes()[0], libc::IPPROTO_TCP.to_ne_bytes()[0], extensions, 0];
    request.extend(states.to_ne_bytes());
    request.extend(identity);
    request
}

/// `struct inet_diag_sockid`. A cookie of all ones fits any (`INET_DIAG_NOCOOKIE`).
fn identity(local: SocketAddr, remote: SocketAddr, cookie: u64) -> [u8; 48] {
    let mut identity = [0; 48];
    identity[..2].copy_from_slice(&local.port().to_be_bytes());
    identity[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, address) in [(4, local), (20, remote)] {
        match address.ip() {
            IpAddr::V4(ip) => identity[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => identity[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // Link-local addresses are of a device.
    if let SocketAddr::V6(local) = local {
        identity[36..40].copy_from_slice(&local.scope_id().to_ne_bytes());
    }
    // Both processors that are supported are little-endian: the low half is first.
    identity[40..].copy_from_slice(&cookie.to_ne_bytes());
    identity
}

fn parse(message: &[u8]) -> Option<TcpSocket> {
    let attributes = message.get(MESSAGE..)?;
    let port = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let ip = |at: usize| {
        let bytes = message.get(at..)?;
        if i32::from(message[0]) == libc::AF_INET {
            Some(IpAddr::from(*bytes.first_chunk::<4>()?))
        } else {
            Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_canonical())
        }
    };
    Some(TcpSocket {
        local: SocketAddr::new(ip(8)?, port(4)?),
        remote: SocketAddr::new(ip(24)?, port(6)?),
        state: message[1],
        inode: number(message, 68)?,
        cookie: cookie(message, 44)?,
        info: attribute(attributes, INFO.into()).unwrap_or_default(),
        congestion: attribute(attributes, CONGESTION.into()).map_or_else(String::new, |name| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).into_owned()
        }),
    })
}

/// The value on a socket, where it has one of that length.
fn stored(message: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let storages = attribute(message.get(MESSAGE..)?, STORAGES)?;
    let value = attribute(&attribute(&storages, STORAGE)?, VALUE)?;
    (value.len() == bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;
    use rustix::net::sockopt::socket_cookie;

    use super::*;
    use crate::netlink::{Netlink, Request, SetLink};
    use crate::ns::{create_net, with_net};

    /// In a network namespace of the test's own.
    fn alone(test: impl FnOnce()) {
        let net = create_net().expect("these tests need root, to make network namespaces");
        with_net(net.as_fd(), || {
            let mut netlink = Netlink::open().expect("opens");
            let up = SetLink { index: 1, up: Some(true), ..SetLink::default() };
            netlink.run(&[Request::SetLink(up)]).expect("loopback comes up");
            test();
        })
        .expect("enters");
    }

    fn connection(at: &str) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).expect("binds");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (server, _) = listener.accept().expect("accepts");
        (listener, client, server)
    }

    fn cut(socket: &TcpStream) -> io::Result<()> {
        let (local, remote) = ends(socket);
        destroy_tcp(local, remote, socket_cookie(socket).expect("asks"))
    }

    fn ends(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
        (socket.local_addr().expect("known"), socket.peer_addr().expect("known"))
    }

    #[test]
    fn connections_are_seen_with_what_the_kernel_knows_of_them() {
        alone(|| {
            for at in ["127.0.0.1:0", "[::1]:0"] {
                let (_listener, client, server) = connection(at);
                let sockets = tcp_sockets().expect("asks");
                assert_eq!(sockets.len(), 2, "its listener is none: {sockets:?}");
                for socket in [&client, &server] {
                    let cookie = socket_cookie(socket).expect("asks");
                    let seen = sockets.iter().find(|seen| seen.cookie == cookie).expect("it is open");
                    assert_eq!((seen.local, seen.remote), ends(socket));
                    assert_eq!(seen.state, 1);
                    // The first byte of tcp_info is the state again; it has had more than 200 bytes since Linux 4.
                    assert!(seen.info.len() > 200 && seen.info[0] == 1, "{:?}", seen.info);
                }
                // Cut, so that neither end waits for the other's last word.
                cut(&client).expect("cuts");
            }
        });
    }

    #[test]
    fn a_connection_is_cut_and_its_listener_is_not() {
        alone(|| {
            for at in ["127.0.0.1:0", "[::1]:0"] {
                let (listener, mut client, mut server) = connection(at);
                let (local, remote) = ends(&server);
                let cookie = socket_cookie(&server).expect("asks");
                cut(&server).expect("cuts");
                let aborted = server.read(&mut [0]).expect_err("cut");
                assert_eq!(aborted.raw_os_error(), Some(libc::ECONNABORTED));
                assert_eq!(client.read(&mut [0]).expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
                drop((client, server));
                let gone = destroy_tcp(local, remote, cookie).expect_err("gone");
                assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
                // The listener is there, and takes more.
                client = TcpStream::connect(local).expect("connects");
                (server, _) = listener.accept().expect("accepts");
                client.write_all(b"a").expect("writes");
                server.read_exact(&mut [0]).expect("reads");
                cut(&server).expect("cuts");
            }
        });
    }

    /// A socket of IPv6 that has been given IPv4 addresses, as Go and Java make them.
    #[test]
    fn a_connection_of_both_families_is_one_of_the_older() {
        alone(|| {
            let listener = TcpListener::bind("[::]:0").expect("binds");
            let at = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().expect("bound").port()));
            let mut client = TcpStream::connect(at).expect("connects");
            let (server, _) = listener.accept().expect("accepts");
            let cookie = socket_cookie(&server).expect("asks");
            let sockets = tcp_sockets().expect("asks");
            let seen = sockets.iter().find(|seen| seen.cookie == cookie).expect("it is open");
            assert_eq!((seen.local, seen.remote), (at, client.local_addr().expect("known")));
            destroy_tcp(seen.local, seen.remote, cookie).expect("cuts");
            assert_eq!(client.read(&mut [0]).expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
            let mixed = destroy_tcp(at, "[::1]:1".parse().expect("an address"), cookie).expect_err("mixed");
            assert_eq!(mixed.kind(), io::ErrorKind::InvalidInput);
        });
    }

    #[test]
    fn what_is_kept_on_a_connection_comes_with_it() {
        alone(|| {
            let storage = SocketStorage::create("test", 12).expect("root may make a map");
            let other = SocketStorage::create("test", 12).expect("root may make a map");
            let (_listener, client, server) = connection("127.0.0.1:0");
            storage.set(client.as_fd(), &[7; 12]).expect("sets");
            other.set(server.as_fd(), &[8; 12]).expect("sets");
            let cookie = socket_cookie(&client).expect("asks");
            let stored = stored_tcp_sockets(&storage).expect("Linux 5.8, and root");
            assert_eq!(
                stored.iter().map(|(socket, value)| (socket.cookie, value.clone())).collect::<Vec<_>>(),
                [(cookie, vec![7; 12])]
            );
            cut(&client).expect("cuts");
        });
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(message: Vec<u8>, storages: Vec<u8>, bytes in 0_usize..64) {
            let _ = parse(&message);
            let _ = stored(&message, bytes);
            // Attributes that look right, with anything in them.
            let mut message = vec![2; MESSAGE];
            message.extend(write_attribute(STORAGES, &write_attribute(STORAGE, &storages)));
            let _ = stored(&message, bytes);
        }

        #[test]
        fn a_value_is_of_the_length_that_is_due(value in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut message = vec![2; MESSAGE];
            let storage = write_attribute(STORAGE, &write_attribute(VALUE, &value));
            message.extend(write_attribute(STORAGES, &storage));
            prop_assert_eq!(stored(&message, value.len()), Some(value.clone()));
            prop_assert_eq!(stored(&message, value.len() + 1), None);
        }
    }

    #[test]
    fn a_message_that_is_short_is_none() {
        let mut message = vec![2; MESSAGE];
        assert!(parse(&message).is_some());
        message.pop();
        assert_eq!(parse(&message), None);
        assert_eq!(parse(&[]), None);
    }
}

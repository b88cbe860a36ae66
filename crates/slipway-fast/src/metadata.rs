//! The metadata of a socket that a router handed out: addresses, number, options.
//!
//! The metadata is in the kernel, in the socket's local storage ([`SocketStorage`]). So there is no table to keep in step: the
//! metadata goes where the socket goes, ends with it, outlives the router, and no program can change it.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use slipway_sys::bpf::SocketStorage;

use crate::address::mapped;
pub use crate::emulation::Change;
use crate::emulation::Options;
pub use crate::epoll_entry::EpollEntry;
pub use crate::path::Path;

/// Bytes of a socket's metadata.
pub const BYTES: usize = UNREGISTERED + EpollEntry::BYTES;

/// Offset of the options in the metadata, bytes.
pub(crate) const OPTIONS: usize = 48;

/// Offset of the epoll entry, bytes.
const UNREGISTERED: usize = OPTIONS + Options::BYTES;

/// The first byte of metadata, so that zeroed storage is no metadata.
const VERSION: u8 = 1;
/// The first byte on a program's own socket whose options have changed.
const CHANGED: u8 = 2;

/// Marks a connection's number at the server's end where its client is on another host, whose router numbered it.
const REMOTE: u64 = 1 << 62;

/// The first number that a router gives to a connection. It is random, so that it differs from numbers that an earlier router
/// gave to connections that live. It is so far below the mark that counting never gets there.
pub(crate) fn first_number(chance: u64) -> u64 {
    chance >> 3
}

/// The number at the server's router, of a connection that the client's router gave this number.
pub(crate) fn remote(number: u64) -> u64 {
    number | REMOTE
}

/// The content of a socket's storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, for the length of a call")]
pub enum Stored {
    /// The socket is a program's own. Its options below the level of sockets are those of a new one, or of its listener.
    Nothing,
    /// The socket is a program's own, which has set such an option, or may have.
    Changed(Change),
    /// The router handed the socket out.
    Metadata(SocketMetadata),
}

/// The end of a connection: client's or server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that connected.
    Client,
    /// The end that was accepted.
    Server,
}

/// The metadata of a socket that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketMetadata {
    /// The kind of connection.
    pub path: Path,
    /// The end of the connection.
    pub role: Role,
    /// The connection's number, the same at both ends, but for a mark at the server's if they are on two hosts.
    pub flow: u64,
    /// The answer to `getsockname(2)`, in the form of the program's socket (mapped, where that is of IPv6).
    pub local: SocketAddr,
    /// The answer to `getpeername(2)`.
    pub peer: SocketAddr,
    /// False until the program has asked how its non-blocking `connect(2)` went.
    pub reported: bool,
    /// Options of TCP and IP that the program set, or that the listener had.
    pub options: Options,
    /// The first entry of the program's epoll instances that is to be made for a client's end, until it is made. A router that
    /// ends in between leaves it to the next.
    pub unregistered: Option<EpollEntry>,
}

impl SocketMetadata {
    /// The connection's number, at both ends the same.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.flow & !REMOTE
    }

    fn write(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1] = u8::from(self.path == Path::Tcp);
        bytes[2] = u8::from(self.local.is_ipv6());
        bytes[3] = u8::from(self.reported) | u8::from(self.role == Role::Server) << 1;
        bytes[3] |= u8::from(self.unregistered.is_some()) << 2;
        bytes[4..12].copy_from_slice(&self.flow.to_ne_bytes());
        put(&mut bytes[12..30], self.local);
        put(&mut bytes[30..48], self.peer);
        self.options.write(&mut bytes[OPTIONS..UNREGISTERED]);
        if let Some(entry) = self.unregistered {
            bytes[UNREGISTERED..].copy_from_slice(&entry.write());
        }
        bytes
    }

    /// Reads the bytes of a socket's storage; `None` where they are no metadata.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        if bytes[0] != VERSION {
            return None;
        }
        let ipv6 = bytes[2] == 1;
        Some(Self {
            path: if bytes[1] == 1 { Path::Tcp } else { Path::Pair },
            role: if bytes[3] & 2 == 2 { Role::Server } else { Role::Client },
            flow: u64::from_ne_bytes(*bytes[4..].first_chunk()?),
            local: take(&bytes[12..30], ipv6)?,
            peer: take(&bytes[30..48], ipv6)?,
            reported: bytes[3] & 1 == 1,
            options: Options::read(&bytes[OPTIONS..UNREGISTERED]),
            unregistered: if bytes[3] & 4 == 4 { EpollEntry::read(&bytes[UNREGISTERED..]) } else { None },
        })
    }
}

/// Both addresses of a connection have the form of its socket, so one flag says it of both.
fn put(bytes: &mut [u8], address: SocketAddr) {
    let ip = mapped(address.ip());
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&address.port().to_ne_bytes());
}

fn take(bytes: &[u8], ipv6: bool) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
    let port = u16::from_ne_bytes(*bytes.get(16..)?.first_chunk()?);
    let ip = if ipv6 { ip.into() } else { ip.to_ipv4_mapped()?.into() };
    Some(SocketAddr::new(ip, port))
}

/// The metadata of all sockets of a lab.
#[derive(Debug)]
pub struct MetadataStore(SocketStorage);

impl MetadataStore {
    /// In this storage, whose values have [`BYTES`] bytes.
    #[must_use]
    pub fn new(storage: SocketStorage) -> Self {
        Self(storage)
    }

    /// The content of a socket's storage.
    ///
    /// # Errors
    /// `ENOTSOCK` where it is no socket.
    pub fn on(&self, socket: impl AsFd) -> io::Result<Stored> {
        let Some(bytes) = self.0.get(socket.as_fd())? else { return Ok(Stored::Nothing) };
        let change = || Stored::Changed(Change::read(bytes.get(1).copied().unwrap_or_default()));
        Ok(SocketMetadata::read(&bytes).map_or_else(change, Stored::Metadata))
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &SocketStorage {
        &self.0
    }

    /// The metadata of a socket; `None` where no router handed it out.
    ///
    /// # Errors
    /// `ENOTSOCK` where it is no socket.
    pub fn of(&self, socket: impl AsFd) -> io::Result<Option<SocketMetadata>> {
        Ok(match self.on(socket)? {
            Stored::Metadata(metadata) => Some(metadata),
            Stored::Nothing | Stored::Changed(_) => None,
        })
    }

    /// Adds a change to the storage of a program's own socket, which holds `stored`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn mark_changed(&self, socket: impl AsFd, stored: &Stored, change: Change) -> io::Result<()> {
        let before = match stored {
            Stored::Changed(before) => Some(*before),
            Stored::Nothing | Stored::Metadata(_) => None,
        };
        let change = before.unwrap_or_default().and(change);
        if before == Some(change) {
            return Ok(());
        }
        let mut bytes = [0; BYTES];
        [bytes[0], bytes[1]] = [CHANGED, change.write()];
        self.0.set(socket.as_fd(), &bytes)
    }

    /// Writes a socket's metadata, and replaces what was there.
    ///
    /// # Errors
    /// `ENOMEM` where the kernel has no memory for it.
    pub fn put(&self, socket: impl AsFd, metadata: &SocketMetadata) -> io::Result<()> {
        self.0.set(socket.as_fd(), &metadata.write())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn metadata_is_read_as_it_was_written(flow: u64, local: std::net::SocketAddrV4, port: u16, ip: Ipv6Addr, six: bool, reported: bool, server: bool, entry: Option<(i32, u32, u64)>) {
            let [local, peer] = if six {
                [SocketAddr::from((ip, local.port())), SocketAddr::from((ip, port))]
            } else {
                [local.into(), SocketAddr::from((*local.ip(), port))]
            };
            let role = if server { Role::Server } else { Role::Client };
            let unregistered = entry.map(|(epoll, events, data)| EpollEntry { epoll, events, data });
            let metadata = SocketMetadata { path: Path::Pair, role, flow, local, peer, reported, options: Options::default(), unregistered };
            prop_assert_eq!(SocketMetadata::read(&metadata.write()), Some(metadata));
        }

        #[test]
        fn no_bytes_are_too_bad(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = SocketMetadata::read(&bytes);
        }
    }

    #[test]
    fn nothing_is_no_metadata() {
        assert_eq!(SocketMetadata::read(&[0; BYTES]), None);
        assert_eq!(SocketMetadata::read(&[]), None);
    }
}

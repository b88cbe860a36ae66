//! The bodies of messages. Every kind has one length, and every value one encoding: to read a body and write it again gives
//! the same bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The version of this protocol. Routers of a lab are one program, so others are refused.
pub const VERSION: u16 = 3;

/// Bytes of the longest body.
pub(super) const LONGEST_BODY: usize = Open::LENGTH;

const ADDRESS: usize = 1 + 16 + 2;

/// A kind of message.
pub trait Body: Sized {
    /// Length of the body, bytes.
    const LENGTH: usize;

    /// Writes the body into `into`, which is [`LENGTH`](Self::LENGTH) bytes long.
    fn write(&self, into: &mut [u8]);

    /// Reads a body. `None` for bytes that [`write`](Self::write) does not write, any other length included.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// The identity of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The lab's number, which the anchor draws.
    pub lab: u64,
    /// Index of the router's host (`Lab::hosts`).
    pub host: u32,
    /// [`VERSION`].
    pub version: u16,
}

/// Adds a further connection to a session: the first message on it, and all of its greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The session's name.
    pub session: Name,
}

/// The name of a session: the first bytes of the nonce that its answerer drew. It is no secret.
pub type Name = [u8; 8];

/// A client asks for a server on the other host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// The caller's number for the connection, repeated in the reply.
    pub flow: u64,
    /// The address that the client connects to: a node's. Scope and flow label are not carried.
    pub server: SocketAddr,
    /// The address of the client, on a node of the caller's host. The answerer believes a router that has the lab's key.
    pub client: SocketAddr,
}

/// The number of a connection that carries messages about RDMA between the two routers. Connections of programs have lower ones.
pub const MANAGEMENT: u64 = u64::MAX;

/// The answer to an [`Open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReply {
    /// The number of the question.
    pub flow: u64,
    /// Accepted, or the reason why not.
    pub answer: OpenAnswer,
}

/// The answer to a request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAnswer {
    /// The stream belongs to the programs from the next byte on.
    Accepted,
    /// The server's router refuses, and closes the connection.
    Refused(Refusal),
}

/// Why a router refuses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// No program listens there: `ECONNREFUSED`.
    NobodyListens,
    /// A rule of the lab's policy.
    Policy,
    /// The listener's queue is full.
    Backlog,
    /// A rule allows no more connections at once.
    Limit,
    /// No node of the host has the address.
    NoSuchNode,
    /// The fast path cannot serve this listener; the container network can.
    NotServed,
    /// The router has no descriptors or memory for it.
    Resources,
    /// Too many connections of the two nodes wait to be accepted.
    Crowded,
    /// The listener has an option that the fast path cannot keep; the container network can.
    Options,
}

impl Refusal {
    /// All refusals, in the order of their numbers in a message (from 1).
    pub const ALL: [Self; 9] = [
        Self::NobodyListens,
        Self::Policy,
        Self::Backlog,
        Self::Limit,
        Self::NoSuchNode,
        Self::NotServed,
        Self::Resources,
        Self::Crowded,
        Self::Options,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyListens => "nobody listens there",
            Self::Policy => "the lab's policy forbids it",
            Self::Backlog => "the server's backlog is full",
            Self::Limit => "the policy allows no more connections at once",
            Self::NoSuchNode => "no node has this address",
            Self::NotServed => "the listener is not one that the fast path serves",
            Self::Crowded => "too many connections of the two nodes wait to be accepted",
            Self::Resources => "the server's router is out of descriptors or memory",
            Self::Options => "the listener has an option that the fast path cannot keep",
        })
    }
}

impl Hello {
    /// The identity of a router of this version.
    #[must_use]
    pub fn new(lab: u64, host: u32) -> Self {
        Self { lab, host, version: VERSION }
    }
}

/// The first byte of a body.
const HELLO: u8 = 1;
const OPEN: u8 = 2;
const OPEN_REPLY: u8 = 3;
const JOIN: u8 = 4;

impl Body for Hello {
    const LENGTH: usize = 1 + 8 + 4 + 2;

    fn write(&self, into: &mut [u8]) {
        let mut writer = Writer(into);
        writer.put([HELLO]);
        writer.put(self.lab.to_be_bytes());
        writer.put(self.host.to_be_bytes());
        writer.put(self.version.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.kind(HELLO)?;
        let lab = u64::from_be_bytes(reader.take()?);
        let host = u32::from_be_bytes(reader.take()?);
        let version = u16::from_be_bytes(reader.take()?);
        reader.end(Self { lab, host, version })
    }
}

impl Body for Join {
    const LENGTH: usize = 1 + size_of::<Name>();

    fn write(&self, into: &mut [u8]) {
        let mut writer = Writer(into);
        writer.put([JOIN]);
        writer.put(self.session);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.kind(JOIN)?;
        let session = reader.take()?;
        reader.end(Self { session })
    }
}

impl Body for Open {
    const LENGTH: usize = 1 + 8 + 2 * ADDRESS;

    fn write(&self, into: &mut [u8]) {
        let mut writer = Writer(into);
        writer.put([OPEN]);
        writer.put(self.flow.to_be_bytes());
        writer.address(self.server);
        writer.address(self.client);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.kind(OPEN)?;
        let flow = u64::from_be_bytes(reader.take()?);
        let (server, client) = (reader.address()?, reader.address()?);
        reader.end(Self { flow, server, client })
    }
}

impl Body for OpenReply {
    const LENGTH: usize = 1 + 8 + 1;

    fn write(&self, into: &mut [u8]) {
        let mut writer = Writer(into);
        writer.put([OPEN_REPLY]);
        writer.put(self.flow.to_be_bytes());
        writer.put([match self.answer {
            OpenAnswer::Accepted => 0,
            // In the order of `Refusal::ALL`, as a test holds.
            OpenAnswer::Refused(reason) => reason as u8 + 1,
        }]);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        reader.kind(OPEN_REPLY)?;
        let flow = u64::from_be_bytes(reader.take()?);
        let answer = match reader.take()? {
            [0] => OpenAnswer::Accepted,
            [number] => OpenAnswer::Refused(*Refusal::ALL.get(usize::from(number) - 1)?),
        };
        reader.end(Self { flow, answer })
    }
}

/// The rest of a body that is being written.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        here.copy_from_slice(&bytes);
        self.0 = rest;
    }

    fn address(&mut self, address: SocketAddr) {
        let mut octets = [0; 16];
        match address.ip() {
            IpAddr::V4(ip) => {
                self.put([4]);
                octets[..4].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.put([6]);
                octets = ip.octets();
            }
        }
        self.put(octets);
        self.put(address.port().to_be_bytes());
    }
}

/// The rest of a body that is being read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (here, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*here)
    }

    fn kind(&mut self, kind: u8) -> Option<()> {
        (self.take()? == [kind]).then_some(())
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = match (self.take()?, self.take::<16>()?) {
            ([4], [a, b, c, d, rest @ ..]) if rest == [0; 12] => Ipv4Addr::new(a, b, c, d).into(),
            ([6], octets) => Ipv6Addr::from(octets).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes(self.take()?)))
    }

    fn end<T>(&self, body: T) -> Option<T> {
        self.0.is_empty().then_some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again<B: Body + PartialEq + std::fmt::Debug>(body: &B) {
        let mut bytes = vec![0xff; B::LENGTH];
        body.write(&mut bytes);
        assert_eq!(B::read(&bytes).as_ref(), Some(body));
        assert!(B::LENGTH <= LONGEST_BODY);
        for length in 0..B::LENGTH {
            assert_eq!(B::read(&bytes[..length]), None);
        }
        bytes.push(0);
        assert_eq!(B::read(&bytes), None);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_shorter_or_longer() {
        again(&Hello::new(u64::MAX, 7));
        again(&Join { session: *b"a name.." });
        let open =
            Open { flow: 5, server: "10.64.0.2:80".parse().unwrap(), client: "[fd53::1]:40000".parse().unwrap() };
        again(&open);
        again(&OpenReply { flow: 1, answer: OpenAnswer::Accepted });
        for reason in Refusal::ALL {
            again(&OpenReply { flow: 1, answer: OpenAnswer::Refused(reason) });
        }
    }

    #[test]
    fn a_number_without_a_reason_means_nothing() {
        let mut bytes = [0; OpenReply::LENGTH];
        OpenReply { flow: 1, answer: OpenAnswer::Accepted }.write(&mut bytes);
        *bytes.last_mut().unwrap() = u8::try_from(Refusal::ALL.len()).unwrap() + 1;
        assert_eq!(OpenReply::read(&bytes), None);
    }

    #[test]
    fn an_address_has_one_spelling() {
        let open =
            Open { flow: 5, server: "10.64.0.2:80".parse().unwrap(), client: "10.64.0.1:40000".parse().unwrap() };
        let mut bytes = [0; Open::LENGTH];
        open.write(&mut bytes);
        // After IPv4's four octets.
        bytes[1 + 8 + 1 + 4] = 1;
        assert_eq!(Open::read(&bytes), None);
    }
}

//! Network devices, addresses, routes, neighbours and traffic control, spoken directly to the kernel (`rtnetlink(7)`).
//!
//! A [`Netlink`] socket belongs to the network namespace in which it was opened, and stays there, whatever its thread
//! enters later. One kept socket per namespace is cheaper and clearer than entering and leaving. [`Request`]s are plain
//! values; [`Netlink::run`] sends many of them in one system call and says in words which one the kernel refused.

mod encode;
mod ethtool;
mod generic;
mod link;
mod request;
mod tc;
mod watch;

use std::fmt;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

pub use ethtool::Offload;
pub use generic::has_generic_family;
pub use link::{Counters, Link, Mac, MacText};
pub use request::{
    AddrGenMode, Bridge, BridgePort, Forward, LOCAL_TABLE, Macvlan, MacvlanMode, NewLink, Peer, Request, Rule, SetLink,
    Veth, Vxlan,
};
pub use tc::{
    BpfFilter, Direction, Distribution, Handle, Loss, Netem, Qdisc, QdiscStats, ReplaceQdisc, Tbf, scaled_share,
};
pub use watch::{AddressWatch, wait_until_gone};

/// Bytes sent at once. Well below the default send buffer (`net.core.wmem_default`, 208 KiB).
const SEND_BYTES: usize = 64 * 1024;
/// Requests sent at once. If the kernel refuses every one, its answers still fit a default receive buffer.
const SEND_REQUESTS: usize = 128;
/// Bytes received at once; the kernel never sends more in one go (`NLMSG_GOODSIZE`, at most 32 KiB for dumps).
pub(crate) const RECEIVE_BYTES: usize = 64 * 1024;

pub(crate) const NLMSG_ERROR: u16 = 2;
/// `NLM_F_ACK_TLVS`: the answer carries attributes, the kernel's own message among them.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// An answer's error number, then the header of the request (capped: the request's body is left out).
const ERROR_HEADER: usize = 4 + 16;

/// A routing socket in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One request that the kernel refused.
#[derive(Debug)]
pub struct Refused {
    /// The request, e.g. `create veth n1.0 and its peer eth0`.
    pub request: String,
    /// The kernel's error number.
    pub error: io::Error,
    /// The kernel's own words, where it gave any.
    pub message: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, self.error)?;
        match &self.message {
            Some(message) => write!(f, "; the kernel says: {message}"),
            None => Ok(()),
        }
    }
}

/// An error of netlink.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused at least one request; the others were carried out.
    #[error("{}", summary(.0))]
    Refused(Vec<Refused>),
    /// The socket itself failed.
    #[error("talk to the kernel over netlink: {0}")]
    Socket(#[from] io::Error),
    /// An answer that is no netlink message.
    #[error("understand the kernel's netlink answer: {0}")]
    Answer(String),
    /// A device that is not there.
    #[error("find network device {0}")]
    NoDevice(String),
}

fn summary(refused: &[Refused]) -> String {
    match refused {
        [] => String::new(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} (and {} more requests)", rest.len()),
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Carries out all `requests` in order. One that is refused does not keep later ones from running.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`] with every refused request.
    #[tracing::instrument(level = "trace", name = "netlink", skip_all, fields(requests = requests.len()), err(level = "debug"))]
    pub fn run(&mut self, requests: &[Request<'_>]) -> Result<(), NetlinkError> {
        for request in requests {
            tracing::trace!("{request}");
        }
        let mut refused = Vec::new();
        let mut rest = requests;
        while !rest.is_empty() {
            let first = self.sequence.wrapping_add(1);
            let (bytes, count) = self.serialize(rest);
            self.socket.send(&bytes, 0)?;
            self.answers(first, count, |index, error, message| {
                let numbered = matches!(rest[index], Request::NumberNet { .. });
                if numbered && error.kind() == io::ErrorKind::AlreadyExists {
                    return;
                }
                refused.push(Refused { request: rest[index].to_string(), error, message });
            })?;
            rest = &rest[count..];
        }
        if refused.is_empty() { Ok(()) } else { Err(NetlinkError::Refused(refused)) }
    }

    /// As many of `requests` as go into one send, and how many those are.
    fn serialize(&mut self, requests: &[Request<'_>]) -> (Vec<u8>, usize) {
        let mut bytes = Vec::with_capacity(SEND_BYTES);
        let mut last = 0;
        let mut count = 0;
        for request in requests.iter().take(SEND_REQUESTS) {
            let (message, flags) = encode::encode(request);
            last = bytes.len();
            self.append(&mut bytes, message, flags | NLM_F_REQUEST);
            count += 1;
            if bytes.len() > SEND_BYTES * 3 / 4 {
                break;
            }
        }
        // Refusals are always answered; success only where asked. Asking on the last alone is enough to know that all are
        // done, since the kernel works in order, and spares it a message per request.
        let flags_at = last + 6;
        let flags = u16::from_ne_bytes([bytes[flags_at], bytes[flags_at + 1]]) | NLM_F_ACK;
        bytes[flags_at..flags_at + 2].copy_from_slice(&flags.to_ne_bytes());
        (bytes, count)
    }

    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let start = bytes.len();
        // Messages are aligned to 4 bytes in a send (`NLMSG_ALIGN`).
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
    }

    /// Reads the answers to `count` requests from sequence number `first` on.
    fn answers(
        &mut self,
        first: u32,
        count: usize,
        mut refused: impl FnMut(usize, io::Error, Option<String>),
    ) -> Result<(), NetlinkError> {
        self.receive(|message| {
            let index = message.sequence_number().wrapping_sub(first) as usize;
            if message.message_type() != NLMSG_ERROR || index >= count {
                return Ok(false);
            }
            let payload = message.payload();
            let code = payload.first_chunk::<4>().ok_or("an answer without an error code")?;
            let code = i32::from_ne_bytes(*code);
            if code != 0 {
                refused(index, io::Error::from_raw_os_error(-code), kernel_message(message.flags(), payload));
            }
            Ok(index + 1 == count)
        })
    }

    /// Asks for a dump and gives every message in it to `each`.
    fn dump(
        &mut self,
        request: RouteNetlinkMessage,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), NetlinkError> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, request, NLM_F_REQUEST | NLM_F_DUMP);
        self.socket.send(&bytes, 0)?;
        let wanted = self.sequence;
        let mut failure = None;
        self.receive(|message| {
            if message.sequence_number() != wanted {
                return Ok(false);
            }
            let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message.into_inner())
                .map_err(|error| error.to_string())?;
            match parsed.payload {
                NetlinkPayload::InnerMessage(inner) => each(inner),
                NetlinkPayload::Error(error) => failure = Some(error.to_io()),
                _ => return Ok(matches!(parsed.payload, NetlinkPayload::Done(_))),
            }
            Ok(failure.is_some())
        })?;
        failure.map_or(Ok(()), |error| Err(NetlinkError::Socket(error)))
    }

    fn receive(&mut self, each: impl FnMut(NetlinkBuffer<&[u8]>) -> Result<bool, String>) -> Result<(), NetlinkError> {
        receive(&self.socket, &mut self.buffer, each)
    }
}

/// Receives messages until `each` returns true.
pub(crate) fn receive(
    socket: &Socket,
    buffer: &mut [u8],
    mut each: impl FnMut(NetlinkBuffer<&[u8]>) -> Result<bool, String>,
) -> Result<(), NetlinkError> {
    loop {
        let received = match socket.recv(&mut &mut buffer[..], 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let mut rest = &buffer[..received];
        while !rest.is_empty() {
            let length = NetlinkBuffer::new_checked(rest)
                .map_err(|error| NetlinkError::Answer(error.to_string()))?
                .length() as usize;
            let (message, after) = rest.split_at(length);
            if each(NetlinkBuffer::new(message)).map_err(NetlinkError::Answer)? {
                return Ok(());
            }
            // Padding between messages (`NLMSG_ALIGN`).
            rest = after.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        }
    }
}

/// The text that the kernel adds to a refusal (`NLMSGERR_ATTR_MSG`, include/uapi/linux/netlink.h).
fn kernel_message(flags: u16, payload: &[u8]) -> Option<String> {
    let attributes = payload.get(ERROR_HEADER..).filter(|_| flags & NLM_F_ACK_TLVS != 0)?;
    NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests;

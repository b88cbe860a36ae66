//! One connection, with TLS or without, and how it is opened and joined to a session.

mod socket;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use slipway_sys::sockopt::Name;

use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::message::{self, Hello, VERSION, Welcome};
use crate::tls;
use crate::token::Token;
use socket::Socket;
pub(crate) use socket::nanoseconds;

/// How long a handshake may take, from its first byte to its last.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// How long a path may be silent before its connections end.
const SILENCE: Duration = Duration::from_mins(1);
/// How long a peer may say nothing where it speaks every [`ALIVE`] at least.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// An end with nothing to say says so after this time.
pub(crate) const ALIVE: Duration = Duration::from_secs(15);
/// First byte of a connection without TLS, whose records begin with 0x16.
const CLEAR: u8 = 0xc1;
/// Bytes that rustls encrypts before it sends: about a frame.
const BUFFER: usize = 2 << 20;

/// A connection.
pub(crate) enum Link {
    Clear(Socket),
    Client(Box<StreamOwned<ClientConnection, Socket>>),
    Server(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(buffer),
            Self::Client(stream) => stream.write(buffer),
            Self::Server(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}

impl Link {
    /// The socket beneath.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => &socket.stream,
            Self::Client(stream) => &stream.sock.stream,
            Self::Server(stream) => &stream.sock.stream,
        }
    }

    /// After the handshake: the kernel's timers end what is dead.
    pub(crate) fn calm(&mut self) -> Result<(), TransferError> {
        let socket = match self {
            Self::Clear(socket) => socket,
            Self::Client(stream) => &mut stream.sock,
            Self::Server(stream) => &mut stream.sock,
        };
        socket.deadline = None;
        let calmed = socket.stream.set_read_timeout(None).and_then(|()| socket.stream.set_write_timeout(None));
        calmed.map_err(TransferError::io("set options of a socket"))
    }

    /// Adds the time that writers wait to `waited`.
    pub(crate) fn count_waits(&mut self, waited: Arc<AtomicU64>) {
        match self {
            Self::Clear(socket) => socket.waited = waited,
            Self::Client(stream) => stream.sock.waited = waited,
            Self::Server(stream) => stream.sock.waited = waited,
        }
    }

    /// Reading fails where the peer says nothing for `patience`.
    pub(crate) fn expect_words(&self, patience: Duration) -> Result<(), TransferError> {
        self.tcp().set_read_timeout(Some(patience)).map_err(TransferError::io("set options of a socket"))
    }

    /// Says that nothing more comes.
    pub(crate) fn close(&mut self) {
        // The other end sees the end of the stream either way.
        match self {
            Self::Clear(_) => {}
            Self::Client(stream) => stream.conn.send_close_notify(),
            Self::Server(stream) => stream.conn.send_close_notify(),
        }
        let _ = self.flush();
        let _ = self.tcp().shutdown(Shutdown::Write);
    }

    fn binding(&self) -> Result<[u8; 32], TransferError> {
        let found = match self {
            Self::Clear(_) => return Err(TransferError::Identity("a session opens over TLS alone".to_owned())),
            Self::Client(stream) => tls::binding(&stream.conn),
            Self::Server(stream) => tls::binding(&stream.conn),
        };
        found.map_err(|error| TransferError::Identity(error.to_string()))
    }
}

/// Sockets of a session, to end all by. `None` once they were ended.
pub(crate) struct Sockets(Mutex<Option<Vec<TcpStream>>>);

impl Default for Sockets {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Sockets {
    /// Adds one, or ends it where all were ended.
    pub(crate) fn add(&self, link: &Link) {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *sockets, link.tcp().try_clone()) {
            (Some(sockets), Ok(handle)) => sockets.push(handle),
            // Without a handle nobody could end it later.
            _ => drop(link.tcp().shutdown(Shutdown::Both)),
        }
    }

    /// Ends all of them, so that no thread waits for one.
    pub(crate) fn end(&self) {
        for socket in self.0.lock().unwrap_or_else(PoisonError::into_inner).take().into_iter().flatten() {
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The secret of a session, and the way to its server.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) id: [u8; 16],
    pub(crate) secret: [u8; 32],
}

/// Opens connections to a server.
pub(crate) struct Dialer {
    address: SocketAddr,
    token: Token,
    config: Arc<ClientConfig>,
    /// How long the server may say nothing.
    pub(crate) patience: Duration,
    /// Nanoseconds that writers waited for sockets.
    pub(crate) waited: Arc<AtomicU64>,
}

impl Dialer {
    pub(crate) fn new(address: SocketAddr, token: &Token) -> Result<Self, TransferError> {
        let config = tls::client(token).map_err(|error| TransferError::Identity(error.to_string()))?;
        Ok(Self { address, token: token.clone(), config, patience: PATIENCE, waited: Arc::default() })
    }

    /// A TCP connection, and the round-trip time of its path: the kernel's, or the time that it took to open.
    pub(crate) fn tcp(&self) -> Result<(TcpStream, Duration), TransferError> {
        let began = Instant::now();
        let doing = format!("connect to {}", self.address);
        let stream = TcpStream::connect_timeout(&self.address, HANDSHAKE).map_err(TransferError::io(doing))?;
        let opened = began.elapsed();
        let rtt = round_trip(&stream).map_or(opened, |rtt| rtt.min(opened));
        prepare(&stream).map_err(TransferError::io("set options of a socket"))?;
        Ok((stream, rtt))
    }

    fn tls(&self, stream: TcpStream) -> Result<Link, TransferError> {
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut conn = ClientConnection::new(self.config.clone(), name)
            .map_err(|error| TransferError::Identity(error.to_string()))?;
        conn.set_buffer_limit(Some(BUFFER));
        let mut socket = Socket::new(stream, HANDSHAKE, self.waited.clone());
        shake(&mut conn, &mut socket)?;
        Ok(Link::Client(Box::new(StreamOwned::new(conn, socket))))
    }

    /// Opens a session on a connection, which carries its orders from then on.
    pub(crate) fn open(&self, stream: TcpStream) -> Result<(Link, Session), TransferError> {
        let link = self.tls(stream)?;
        let proof = *self.token.proof(&link.binding()?).as_bytes();
        let link = say(link, &Hello::Session { version: VERSION, proof })?;
        let (mut link, welcome) = hear(link)?;
        let session = match welcome {
            Welcome::Session { session, secret } => Session { id: session, secret },
            Welcome::Busy => {
                return Err(TransferError::Refused("it has too many sessions\nHint: try again later".to_owned()));
            }
            Welcome::Version(version) => {
                return Err(TransferError::Protocol(format!(
                    "it speaks version {version} of the protocol, and this end version {VERSION}\nHint: install the same Slipway at both ends"
                )));
            }
        };
        link.calm()?;
        Ok((link, session))
    }

    /// A connection that is to [join](Self::join) a session, maybe one that is not open yet. `prepare` sees the socket
    /// before its handshake.
    pub(crate) fn dial(&self, clear: bool, prepare: impl FnOnce(&TcpStream)) -> Result<Link, TransferError> {
        let (stream, _) = self.tcp()?;
        prepare(&stream);
        if !clear {
            return self.tls(stream);
        }
        let mut socket = Socket::new(stream, HANDSHAKE, self.waited.clone());
        socket.write_all(&[CLEAR]).map_err(TransferError::Lost)?;
        Ok(Link::Clear(socket))
    }

    /// Makes a connection stream `number` of a session.
    pub(crate) fn join(link: Link, session: &Session, number: u32) -> Result<Link, TransferError> {
        let proof = stream_proof(&session.secret, number);
        let mut link = say(link, &Hello::Stream { session: session.id, number, proof })?;
        link.calm()?;
        Ok(link)
    }
}

/// A connection to a server, by its first message.
pub(crate) enum Joined {
    /// A new session, which still awaits its [`Welcome`].
    Session(Link),
    /// A stream that claims to be of a session.
    Stream { link: Link, session: [u8; 16], number: u32, proof: [u8; 32] },
}

/// The server's side of a handshake.
pub(crate) fn accept(
    stream: TcpStream,
    token: &Token,
    config: &Arc<ServerConfig>,
    clear: bool,
) -> Result<Joined, TransferError> {
    prepare(&stream).map_err(TransferError::io("set options of a socket"))?;
    let mut first = [0];
    stream.peek(&mut first).map_err(TransferError::Lost)?;
    let mut socket = Socket::new(stream, HANDSHAKE, Arc::default());
    let link = if first[0] == CLEAR && clear {
        socket.read_exact(&mut first).map_err(TransferError::Lost)?;
        Link::Clear(socket)
    } else {
        let mut conn =
            ServerConnection::new(config.clone()).map_err(|error| TransferError::Identity(error.to_string()))?;
        conn.set_buffer_limit(Some(BUFFER));
        shake(&mut conn, &mut socket)?;
        Link::Server(Box::new(StreamOwned::new(conn, socket)))
    };
    let (link, hello) = hear(link)?;
    match hello {
        Hello::Session { version, .. } if version != VERSION => {
            say(link, &Welcome::Version(VERSION))?;
            Err(TransferError::Protocol(format!("a client speaks version {version}")))
        }
        Hello::Session { proof, .. } => {
            if token.proof(&link.binding()?) != blake3::Hash::from_bytes(proof) {
                return Err(TransferError::Identity("a client has another token".to_owned()));
            }
            Ok(Joined::Session(link))
        }
        Hello::Stream { session, number, proof } => Ok(Joined::Stream { link, session, number, proof }),
    }
}

/// Tells a client that there is no room for a session.
pub(crate) fn turn_away(link: Link) -> Result<(), TransferError> {
    say(link, &Welcome::Busy).map(|mut link| link.close())
}

/// Welcomes a client to its session.
pub(crate) fn welcome(link: Link, session: &Session) -> Result<Link, TransferError> {
    let mut link = say(link, &Welcome::Session { session: session.id, secret: session.secret })?;
    link.calm()?;
    Ok(link)
}

/// True for the proof that a stream of a session makes.
pub(crate) fn proves(session: &Session, number: u32, proof: [u8; 32]) -> bool {
    blake3::Hash::from_bytes(stream_proof(&session.secret, number)) == blake3::Hash::from_bytes(proof)
}

fn stream_proof(secret: &[u8; 32], number: u32) -> [u8; 32] {
    let key = blake3::derive_key("slipway transfer 1: stream proof", secret);
    *blake3::keyed_hash(&key, &number.to_le_bytes()).as_bytes()
}

/// The kernel's round-trip time of a connection. A busy machine takes longer to open one.
fn round_trip(stream: &TcpStream) -> Option<Duration> {
    /// Offset of `tcpi_rtt`, microseconds (`include/uapi/linux/tcp.h`).
    const RTT: usize = 68;
    let mut info = [0; RTT + 4];
    let name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_INFO };
    let length = slipway_sys::sockopt::get(stream, name, &mut info).ok().filter(|&length| length == info.len())?;
    let micros = u32::from_ne_bytes(*info[..length].last_chunk()?);
    (micros > 0).then(|| Duration::from_micros(micros.into()))
}

/// Before the handshake: a peer may not take for ever.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    stream.set_write_timeout(Some(HANDSHAKE))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 6)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

fn shake<C, S>(connection: &mut C, socket: &mut Socket) -> Result<(), TransferError>
where
    C: std::ops::DerefMut<Target = rustls::ConnectionCommon<S>>,
    S: rustls::SideData,
{
    while connection.is_handshaking() {
        connection.complete_io(socket).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => TransferError::Identity(error.to_string()),
            io::ErrorKind::UnexpectedEof => TransferError::Identity("it ended the handshake".to_owned()),
            _ => TransferError::Lost(error),
        })?;
    }
    Ok(())
}

/// Frames before the session has its secret: TLS protects them, or nothing has to.
fn opening() -> Key {
    Key::new(&[0; 32], 0)
}

fn say<T: serde::Serialize>(link: Link, message: &T) -> Result<Link, TransferError> {
    let mut writer = Writer::new(link, opening());
    message::put(message, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    Ok(writer.into_inner())
}

fn hear<T: serde::de::DeserializeOwned>(link: Link) -> Result<(Link, T), TransferError> {
    let mut reader = Reader::new(link, opening());
    let body = reader.frame().map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => TransferError::Identity("it ended the connection".to_owned()),
        _ => TransferError::stream(error),
    })?;
    let mut body = body.ok_or_else(|| TransferError::Identity("it ended the connection".to_owned()))?;
    let message = message::take(&mut body).map_err(TransferError::stream)?;
    Ok((reader.into_inner(), message))
}

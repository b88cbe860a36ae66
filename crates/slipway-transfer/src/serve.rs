//! The server: it listens, lets in those who prove the token, and serves their sessions.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ServerConfig;

use crate::error::TransferError;
use crate::frame::{Key, Writer};
use crate::link::{self, Joined, Link, Session, Sockets};
use crate::message::{self, Order};
use crate::receive::{self, Begun, Ends, Orders, Seen};
use crate::send::{self, Origin, Request};
use crate::tls;
use crate::token::{Token, fill};
use crate::tree::Tree;

/// Connections in their handshake, at most. The next one takes the place of the oldest: a peer that means it is done within
/// two round trips.
const SHAKING: usize = 64;
/// Sessions at one time, at most.
const SESSIONS: usize = 64;
/// Streams of a session, at most.
const STREAMS: usize = 128;

/// A server that listens for transfers.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    token: Token,
    config: Arc<ServerConfig>,
    /// Destinations lie below it; `None`: anywhere, as the process may.
    root: Option<PathBuf>,
    /// Data may come without TLS.
    clear: bool,
    sessions: Mutex<HashMap<[u8; 16], Open>>,
    /// Connections in their handshake, the oldest first.
    shaking: Mutex<VecDeque<(u64, TcpStream)>>,
    /// Clients may fetch, too.
    sends: bool,
    /// How long a client may say nothing.
    patience: Duration,
}

/// An open session: its secret, and the way to it for connections that join.
struct Open {
    session: Session,
    streams: Sender<(u32, Link)>,
    numbers: Vec<u32>,
}

impl Server {
    /// Listens at `address`.
    pub fn bind(address: SocketAddr, token: &Token, root: Option<PathBuf>, clear: bool) -> Result<Self, TransferError> {
        let listener = TcpListener::bind(address).map_err(TransferError::io(format!("listen at {address}")))?;
        let config = tls::server(token).map_err(|error| TransferError::Identity(error.to_string()))?;
        let shared = Shared {
            token: token.clone(),
            config,
            root,
            clear,
            sessions: Mutex::default(),
            shaking: Mutex::default(),
            sends: false,
            patience: link::PATIENCE,
        };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Lets clients fetch what lies below the root, too.
    #[must_use]
    pub fn sending(mut self, sends: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.sends = sends;
        }
        self
    }

    /// Ends the session of a client that says nothing for `patience`; two minutes where nothing is said here.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.patience = patience;
        }
        self
    }

    /// The address at which it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until accepting fails, or one session where `once`. `ended` hears how each session went.
    pub fn run(
        &self,
        once: bool,
        ended: impl Fn(&Result<(), TransferError>) + Clone + Send + 'static,
    ) -> Result<(), TransferError> {
        let (over, is_over) = channel();
        let accepting = {
            let listener = self.listener.try_clone().map_err(TransferError::io("listen"))?;
            let shared = self.shared.clone();
            thread::spawn(move || accept(&listener, &shared, &over, &ended))
        };
        if once {
            // The process ends behind it, and the accepting thread with the process.
            return is_over
                .recv()
                .unwrap_or_else(|_| Err(TransferError::Lost(io::ErrorKind::ConnectionAborted.into())));
        }
        drop(is_over);
        match accepting.join() {
            Ok(error) => Err(TransferError::io("accept connections")(error)),
            Err(_) => Err(TransferError::Protocol("a thread panicked".to_owned())),
        }
    }
}

/// Files that wait for the disk together stay open: a shell's limit of 1,024 would make for small groups.
pub fn hold_more_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("failed to raise the limit of open files: {error}");
    }
}

type Ended = Sender<Result<(), TransferError>>;

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    over: &Ended,
    ended: &(impl Fn(&Result<(), TransferError>) + Clone + Send + 'static),
) -> io::Error {
    // Given up for a moment where there are no more descriptors, to tell a peer so by ending its connection.
    let mut spare = File::open("/dev/null").ok();
    for number in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The peer went before it was accepted (`accept(2)`).
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) if is_want(&error) && spare.take().is_some() => {
                tracing::warn!("a connection was refused: {error}\nHint: raise the limit of open files (ulimit -n)");
                drop(listener.accept());
                spare = File::open("/dev/null").ok();
                continue;
            }
            Err(error) => return error,
        };
        if !shared.begin_shaking(number, &stream) {
            continue;
        }
        let (shared, over, ended) = (shared.clone(), over.clone(), ended.clone());
        let spawned = thread::Builder::new().spawn(move || {
            let joined = shake(stream, &shared);
            shared.shaking().retain(|(shaking, _)| *shaking != number);
            match joined {
                Ok(None) => {}
                Ok(Some((link, session))) => {
                    let outcome = serve(link, &session, &shared);
                    shared.sessions().remove(&session.id);
                    ended(&outcome);
                    let _ = over.send(outcome);
                }
                // Anyone may knock.
                Err(error) => tracing::info!("a connection was refused: {error}"),
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("a connection was refused: failed to start a thread: {error}");
        }
    }
    // Nobody counts so far.
    io::ErrorKind::Other.into()
}

/// Whether a process or machine has no more descriptors or memory.
fn is_want(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    wants.iter().any(|want| error.raw_os_error() == Some(want.raw_os_error()))
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 16], Open>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shaking(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.shaking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a connection. Ends the oldest where there are too many. False where nobody could end this one.
    fn begin_shaking(&self, number: u64, stream: &TcpStream) -> bool {
        let Ok(handle) = stream.try_clone() else { return false };
        let mut shaking = self.shaking();
        if shaking.len() >= SHAKING
            && let Some((_, oldest)) = shaking.pop_front()
        {
            // It may have ended by itself.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        shaking.push_back((number, handle));
        true
    }
}

/// A handshake. Gives the connection of a new session; a stream goes to its session.
fn shake(stream: TcpStream, shared: &Shared) -> Result<Option<(Link, Session)>, TransferError> {
    match link::accept(stream, &shared.token, &shared.config, shared.clear)? {
        Joined::Session(link) => {
            let mut session = Session { id: [0; 16], secret: [0; 32] };
            let filled = fill(&mut session.id).and_then(|()| fill(&mut session.secret));
            filled.map_err(TransferError::io("get random bytes"))?;
            Ok(Some((link, session)))
        }
        Joined::Stream { mut link, session, number, proof } => {
            let mut sessions = shared.sessions();
            let open = sessions.get_mut(&session).filter(|open| link::proves(&open.session, number, proof));
            let open = open.ok_or_else(|| TransferError::Identity("a stream belongs to no session".to_owned()))?;
            if number == 0 || open.numbers.contains(&number) || open.numbers.len() >= STREAMS {
                return Err(TransferError::Protocol("a stream's number is taken".to_owned()));
            }
            link.calm()?;
            open.numbers.push(number);
            let _ = open.streams.send((number, link));
            Ok(None)
        }
    }
}

fn serve(link: Link, session: &Session, shared: &Shared) -> Result<(), TransferError> {
    let (streams, joined) = channel();
    let has_room = {
        let mut sessions = shared.sessions();
        let has_room = sessions.len() < SESSIONS;
        if has_room {
            sessions.insert(session.id, Open { session: session.clone(), streams, numbers: Vec::new() });
        }
        has_room
    };
    if !has_room {
        link::turn_away(link)?;
        return Err(TransferError::Protocol("too many sessions are open".to_owned()));
    }
    let welcomed = Instant::now();
    let link = link::welcome(link, session)?;
    link.expect_words(shared.patience)?;
    let close = || drop(shared.sessions().remove(&session.id));
    let sockets = Sockets::default();
    sockets.add(&link);
    let mut orders = Orders::new(link, Key::new(&session.secret, 0));
    let first = orders.next();
    let rtt = welcomed.elapsed();
    let (answers, early) = receive::answers(&joined, shared.patience)?;
    let streams = early.into_iter().chain(joined);
    if let Ok(Some(Order::Fetch { sources, verify, limit })) = first {
        let refused =
            (!shared.sends).then(|| "it only receives\nHint: start it with `transfer serve --send`".to_owned());
        let origin = shared.root.as_ref().map_or(Ok(Origin::Here), |root| {
            let opened = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            opened.map(|root| Origin::Beneath(Arc::new(root))).map_err(|error| error.to_string())
        });
        let mut link = orders.into_inner();
        let origin = match (refused, origin) {
            (None, Ok(origin)) => origin,
            (Some(why), _) | (_, Err(why)) => {
                let mut writer = Writer::new(link, Key::of_server(&session.secret));
                let told = message::put(&Order::Refused(why.clone()), writer.body()).and_then(|()| writer.send());
                told.map_err(TransferError::stream)?;
                writer.get_mut().close();
                return Err(TransferError::Protocol(why));
            }
        };
        link.calm()?;
        answers.expect_words(shared.patience)?;
        let sources = sources.into_iter().map(|path| PathBuf::from(OsString::from_vec(path))).collect();
        let request = Request { sources, destination: Vec::new(), verify, clear: shared.clear, limit, sync: false };
        return send::serve(send::Served { orders: link, answers, session, origin, rtt }, &request, streams, close);
    }
    let root = shared.root.as_deref();
    let begin = move |_: &mut Orders| match first? {
        Some(Order::Begin { destination, verify, sync }) => {
            Ok(Begun { tree: Tree::open(root, &destination, !verify)?, verify, sync })
        }
        _ => Err(TransferError::Protocol("the first order does not say where to".to_owned())),
    };
    let seen = Seen::default();
    let ends = Ends { orders, answers, session, sockets: &sockets, seen: &seen };
    receive::run(ends, streams, close, begin).map(drop)
}

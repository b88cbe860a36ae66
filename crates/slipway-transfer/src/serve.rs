//! The server: it listens, lets in those who prove the token, and serves their sessions.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustls::ServerConfig;

use crate::error::TransferError;
use crate::link::{self, Joined, Link, Session};
use crate::token::{Token, fill};
use crate::{receive, tls};

/// Connections in their handshake, at most. Others wait in the kernel's queue.
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
    shaking: AtomicUsize,
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
            shaking: AtomicUsize::new(0),
        };
        Ok(Self { listener, shared: Arc::new(shared) })
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

type Ended = Sender<Result<(), TransferError>>;

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    over: &Ended,
    ended: &(impl Fn(&Result<(), TransferError>) + Clone + Send + 'static),
) -> io::Error {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The peer went before it was accepted (`accept(2)`).
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return error,
        };
        if shared.shaking.fetch_add(1, Ordering::Relaxed) >= SHAKING {
            shared.shaking.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (shared, over, ended) = (shared.clone(), over.clone(), ended.clone());
        thread::spawn(move || {
            let joined = shake(stream, &shared);
            shared.shaking.fetch_sub(1, Ordering::Relaxed);
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
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 16], Open>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
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
        Joined::Stream { link, session, number, proof } => {
            let mut sessions = shared.sessions();
            let open = sessions.get_mut(&session).filter(|open| link::proves(&open.session, number, proof));
            let open = open.ok_or_else(|| TransferError::Identity("a stream belongs to no session".to_owned()))?;
            if number == 0 || open.numbers.contains(&number) || open.numbers.len() >= STREAMS {
                return Err(TransferError::Protocol("a stream's number is taken".to_owned()));
            }
            link::calm(link.tcp())?;
            open.numbers.push(number);
            let _ = open.streams.send((number, link));
            Ok(None)
        }
    }
}

fn serve(link: Link, session: &Session, shared: &Shared) -> Result<(), TransferError> {
    let (streams, joined) = channel();
    {
        let mut sessions = shared.sessions();
        if sessions.len() >= SESSIONS {
            return Err(TransferError::Protocol("too many sessions are open".to_owned()));
        }
        sessions.insert(session.id, Open { session: session.clone(), streams, numbers: Vec::new() });
    }
    let link = link::welcome(link, session)?;
    let close = || drop(shared.sessions().remove(&session.id));
    receive::serve(link, session, joined, close, shared.root.as_deref())
}

//! The coordinator's end: it lets workers' machines in that prove the token, and passes calls on to workers' sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipway_document::text::printable;
use slipway_transfer::token::Token;
use slipway_transfer::{TransferError, tls};
use tokio::io::{AsyncReadExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::hello::{Hello, Purpose, Welcome, hear, say};
use super::{HANDSHAKE, Invitation, watch_over};
use crate::folder::Folder;

/// Most connections that have not proved the token yet. Others wait in the kernel's queue.
const STRANGERS: usize = 256;
/// Most bytes of a worker's last words.
const WORDS: u64 = 4096;
/// Pause after an error of `accept`, such as too many open files, which others' ends may clear.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why workers cannot be let in. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The address.
    #[error("listen for workers on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// This machine has no address that others could reach.
    #[error(
        "listen for workers: this machine has no address that others could reach\nHint: `listen: ADDRESS:PORT` names one"
    )]
    Lonely,
    /// The token.
    #[error(transparent)]
    Token(#[from] TransferError),
    /// The key.
    #[error("make a key for workers' connections: {0}")]
    Key(#[from] rustls::Error),
}

/// A place where workers' machines connect.
#[derive(Debug)]
pub struct Gate {
    listener: TcpListener,
    token: Token,
    config: Arc<ServerConfig>,
    addresses: Vec<SocketAddr>,
}

impl Gate {
    /// Listens at an address, with a token of its own; without one, at all addresses and a free port.
    ///
    /// # Errors
    /// Where nothing can listen there.
    pub fn open(listen: Option<SocketAddr>) -> Result<Self, GateError> {
        let wanted = listen.unwrap_or_else(|| SocketAddr::from(([0; 4], 0)));
        let failed = |source| GateError::Listen { address: wanted, source };
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let is_v4 = |address: &IpAddr| address.is_ipv4() || bound.is_ipv6();
        let addresses: Vec<SocketAddr> = if bound.ip().is_unspecified() {
            let own = slipway_sys::interfaces::addresses().map_err(failed)?;
            own.into_iter().filter(is_v4).map(|address| SocketAddr::new(address, bound.port())).collect()
        } else {
            vec![bound]
        };
        if addresses.is_empty() {
            return Err(GateError::Lonely);
        }
        let token = Token::random()?;
        let config = tls::server(&token)?;
        raise_descriptors();
        Ok(Self { listener, token, config, addresses })
    }

    /// The way here, for a file that workers' machines read.
    #[must_use]
    pub fn invitation(&self) -> Invitation {
        Invitation { addresses: self.addresses.clone(), token: self.token.text() }
    }

    /// Lets workers in, on the caller's event loop. Their ends and beginnings are `news`.
    pub(crate) fn serve(self, folder: &Folder, news: mpsc::UnboundedSender<News>) -> io::Result<Seats> {
        let Self { listener, token, config, .. } = self;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let seats = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = Shared { token, acceptor: config.into(), folder: folder.clone(), seats: seats.clone(), news };
        let task = tokio::spawn(accept(listener, Arc::new(shared)));
        Ok(Seats { seats, task })
    }
}

/// Each worker takes some descriptors here, and the usual limit of a shell has room for a hundred.
fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current < maximum {
        // Best effort: connections beyond the limit wait.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// A worker's beginning or end on another machine.
#[derive(Debug)]
pub(crate) enum News {
    /// Its machine joined.
    Joined { worker: u32, start: u64 },
    /// Its machine left, with these words; empty without any.
    Left { worker: u32, start: u64, words: String },
}

/// A worker that may join. Dropped, all its connections end.
#[derive(Debug)]
struct Seat {
    start: u64,
    has_joined: bool,
    alive: watch::Sender<()>,
}

type Taken = Arc<Mutex<BTreeMap<u32, Seat>>>;

fn locked(seats: &Taken) -> MutexGuard<'_, BTreeMap<u32, Seat>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The workers that may join.
#[derive(Debug)]
pub(crate) struct Seats {
    seats: Taken,
    task: JoinHandle<()>,
}

impl Seats {
    /// Lets a worker in, at this start alone.
    pub(crate) fn expect(&self, worker: u32, start: u64) {
        locked(&self.seats).insert(worker, Seat { start, has_joined: false, alive: watch::Sender::new(()) });
    }

    /// Ends a worker's connections, and lets it in no more.
    pub(crate) fn remove(&self, worker: u32) {
        locked(&self.seats).remove(&worker);
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.task.abort();
        locked(&self.seats).clear();
    }
}

struct Shared {
    token: Token,
    acceptor: TlsAcceptor,
    folder: Folder,
    seats: Taken,
    news: mpsc::UnboundedSender<News>,
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    loop {
        // It is never closed.
        let Ok(place) = strangers.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("accept a worker's connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let admitted = timeout(HANDSHAKE, shared.admit(stream)).await;
            drop(place);
            let served = match admitted {
                Ok(Ok(Some((stream, hello, alive)))) => shared.serve(stream, hello, alive).await,
                Ok(Ok(None)) => Ok(()),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            if let Err(error) = served {
                tracing::debug!("serve a worker's connection: {error}");
            }
        });
    }
}

/// A connection that was let in, with its purpose, for as long as its worker has a seat.
type Admitted = (TlsStream<TcpStream>, Hello, watch::Receiver<()>);

impl Shared {
    /// Lets a connection in that proves the token and is of a worker that is expected.
    async fn admit(&self, stream: TcpStream) -> io::Result<Option<Admitted>> {
        watch_over(&stream)?;
        let mut stream = self.acceptor.accept(stream).await?;
        let binding = tls::binding(stream.get_ref().1).map_err(io::Error::other)?;
        let hello: Hello = hear(&mut stream).await?;
        // This comparison takes the same time whatever differs.
        if !self.token.is_proof(&binding, &hello.proof) {
            say(&mut stream, &Welcome::Refused("the token is another one".to_owned())).await?;
            return Ok(None);
        }
        let here = env!("CARGO_PKG_VERSION");
        let alive = if hello.version == here {
            self.take_seat(&hello).ok_or_else(|| "the coordinator no longer expects this worker".to_owned())
        } else {
            Err(format!(
                "Slipway there is {}, and here {here}\nHint: install the same version on all machines",
                hello.version
            ))
        };
        match alive {
            Ok(alive) => Ok(Some((stream, hello, alive))),
            Err(why) => {
                say(&mut stream, &Welcome::Refused(why)).await?;
                Ok(None)
            }
        }
    }

    /// The first connection is the worker's life, and there is one.
    fn take_seat(&self, hello: &Hello) -> Option<watch::Receiver<()>> {
        let mut seats = locked(&self.seats);
        let seat = seats.get_mut(&hello.worker).filter(|seat| seat.start == hello.start)?;
        let is_life = hello.purpose == Purpose::Life;
        if seat.has_joined == is_life {
            return None;
        }
        seat.has_joined = true;
        Some(seat.alive.subscribe())
    }

    async fn serve(
        &self,
        mut stream: TlsStream<TcpStream>,
        Hello { worker, start, purpose, .. }: Hello,
        mut alive: watch::Receiver<()>,
    ) -> io::Result<()> {
        if purpose == Purpose::Calls {
            say(&mut stream, &Welcome::Welcome).await?;
            let mut socket = UnixStream::connect(self.socket(worker)).await?;
            return tokio::select! {
                carried = copy_bidirectional(&mut stream, &mut socket) => carried.map(drop),
                // An error: the seat is gone.
                _ = alive.changed() => Ok(()),
            };
        }
        // The campaign may have ended: then nobody wants to know.
        let _ = self.news.send(News::Joined { worker, start });
        let mut words = Vec::new();
        let life = async {
            say(&mut stream, &Welcome::Welcome).await?;
            (&mut stream).take(WORDS).read_to_end(&mut words).await
        };
        let ended = tokio::select! {
            ended = life => ended.map(drop),
            _ = alive.changed() => return Ok(()),
        };
        let words = printable(&String::from_utf8_lossy(&words)).trim().to_owned();
        let _ = self.news.send(News::Left { worker, start, words });
        ended
    }

    fn socket(&self, worker: u32) -> PathBuf {
        self.folder.socket(worker)
    }
}

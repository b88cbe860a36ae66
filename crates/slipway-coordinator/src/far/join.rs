//! The end of a worker's machine: it joins for one worker, and carries that worker's calls.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use slipway_sys::signals::Taken;
use slipway_transfer::tls;
use slipway_transfer::token::Token;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, pki_types::ServerName};

use super::hello::{Hello, Purpose, Welcome, hear, say};
use super::{HANDSHAKE, Invitation, watch_over};
use crate::readable::watch;

/// The reason why a machine cannot join. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No address leads to the coordinator.
    #[error(
        "reach the coordinator: {0}\nHint: it listens where `listen` in the campaign file says, else at any free port"
    )]
    Unreachable(String),
    /// The coordinator does not want the worker.
    #[error("join the campaign: {0}")]
    Refused(String),
    /// The invitation's token.
    #[error("join the campaign: its token is none")]
    Token,
    /// The key.
    #[error("make the key of the coordinator: {0}")]
    Key(#[from] rustls::Error),
    /// The worker's socket, or the event loop.
    #[error("carry calls: {0}")]
    Io(#[from] io::Error),
}

/// The reason why a machine carries no more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The worker has ended.
    Worker,
    /// The coordinator has ended, or cannot be reached any more.
    Coordinator,
    /// A signal asks this process to end.
    Signal,
}

/// Connects with one worker's machine.
#[derive(Clone)]
struct Way {
    connector: TlsConnector,
    token: Token,
    address: SocketAddr,
    worker: u32,
    start: u64,
}

/// A machine that has joined for a worker. Dropped, it leaves.
pub struct Joined {
    runtime: Runtime,
    way: Way,
    life: TlsStream<TcpStream>,
}

/// Joins for a worker, at one of its starts.
///
/// # Errors
/// Where the coordinator cannot be reached, or does not expect the worker.
pub fn join(invitation: &Invitation, worker: u32, start: u64) -> Result<Joined, JoinError> {
    let token = Token::parse(&invitation.token).ok_or(JoinError::Token)?;
    let connector = TlsConnector::from(tls::client(&token)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let mut why = "its file names no address".to_owned();
    for &address in &invitation.addresses {
        let way = Way { connector: connector.clone(), token: token.clone(), address, worker, start };
        match runtime.block_on(way.open(Purpose::Life)) {
            Ok(life) => return Ok(Joined { runtime, way, life }),
            Err(JoinError::Io(error)) => why = format!("{address}: {error}"),
            Err(other) => return Err(other),
        }
    }
    Err(JoinError::Unreachable(why))
}

impl Way {
    async fn open(&self, purpose: Purpose) -> Result<TlsStream<TcpStream>, JoinError> {
        let opened = timeout(HANDSHAKE, self.shake(purpose)).await;
        opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    async fn shake(&self, purpose: Purpose) -> Result<TlsStream<TcpStream>, JoinError> {
        let stream = TcpStream::connect(self.address).await?;
        watch_over(&stream)?;
        let mut stream = self.connector.connect(ServerName::from(self.address.ip()), stream).await?;
        let binding = tls::binding(stream.get_ref().1)?;
        let proof = self.token.proof(&binding).to_hex().to_string();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        say(&mut stream, &Hello { version, worker: self.worker, start: self.start, proof, purpose }).await?;
        match hear(&mut stream).await? {
            Welcome::Welcome => Ok(stream),
            Welcome::Refused(why) => Err(JoinError::Refused(why)),
        }
    }

    /// Carries the calls of one connection of the worker's.
    async fn carry(&self, mut worker: UnixStream) {
        // The worker finds out: its call breaks off.
        let carried = match self.open(Purpose::Calls).await {
            Ok(mut stream) => copy_bidirectional(&mut worker, &mut stream).await.map(drop).map_err(JoinError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = carried {
            tracing::debug!("carry a worker's calls: {error}");
        }
    }
}

impl Joined {
    /// Carries the calls that come to a socket, until the worker, the coordinator, or this process is to end. `worker` is
    /// readable when the worker has ended.
    ///
    /// # Errors
    /// Where the socket or a descriptor cannot be watched.
    pub fn carry(
        &mut self,
        socket: &UnixListener,
        worker: impl AsFd + AsRawFd,
        signals: &Taken,
    ) -> Result<End, JoinError> {
        let Self { runtime, way, life } = self;
        let way = Arc::new(way.clone());
        runtime.block_on(async {
            socket.set_nonblocking(true)?;
            let socket = tokio::net::UnixListener::from_std(socket.try_clone()?)?;
            let (worker, asked) = (watch(worker)?, watch(signals.as_fd())?);
            let mut byte = [0];
            loop {
                tokio::select! {
                    accepted = socket.accept() => {
                        let (stream, way) = (accepted?.0, way.clone());
                        tokio::spawn(async move { way.carry(stream).await });
                    }
                    // The coordinator says nothing: it only ends.
                    _ = life.read(&mut byte) => return Ok(End::Coordinator),
                    ended = worker.readable() => return ended.map(|_| End::Worker).map_err(JoinError::from),
                    asked = asked.readable() => return asked.map(|_| End::Signal).map_err(JoinError::from),
                }
            }
        })
    }

    /// Leaves, with last words; empty without any.
    pub fn leave(mut self, words: &str) {
        // Best effort: a coordinator that is gone hears nothing.
        let _ = self.runtime.block_on(async {
            timeout(HANDSHAKE, async {
                self.life.write_all(words.as_bytes()).await?;
                self.life.shutdown().await
            })
            .await
        });
    }
}

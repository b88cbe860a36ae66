//! The agent: it lets in the machines that it knows, and executes Slipway for them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use slipway_tls::{OwnKey, PublicKey};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::AgentError;
use crate::frame::{self, Kind};
use crate::keys::Keys;

/// Connections at one time. The next ones wait.
const CONNECTIONS: usize = 512;
/// How long a client may take to prove its key, and to say its command.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of output read at a time.
const PIECE: usize = 64 << 10;
/// The one program that an agent executes.
const PROGRAM: &str = "slipway";
/// Names the command by which Slipway reaches other machines.
const RSH: &str = "SLIPWAY_RSH";
/// Exit code of a command that did not come to run, as a shell's.
const NO_COMMAND: u8 = 127;

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: std::net::TcpListener,
    keys: Keys,
    own: OwnKey,
    program: PathBuf,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// As the file of machines names it.
    pub name: String,
    /// The client's address.
    pub address: SocketAddr,
}

/// Frames to the client.
type Answers = mpsc::Sender<(Kind, Vec<u8>)>;

impl Agent {
    /// Listens. `program` is executed for clients.
    ///
    /// # Errors
    /// When the address is taken, or the keys cannot be read.
    pub fn bind(address: SocketAddr, keys: Keys, program: PathBuf) -> Result<Self, AgentError> {
        let own = keys.own()?;
        // It is read again for each client, so a key that is taken out of it is out at once.
        keys.machines()?;
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(AgentError::io(format!("listen at {address}")))?;
        Ok(Self { listener, keys, own, program })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends. Commands that run then go on, and find their input closed.
    ///
    /// # Errors
    /// When there can be no event loop.
    pub fn serve(self) -> Result<Infallible, AgentError> {
        event_loop()?.block_on(async {
            let listener = self.listener.try_clone().and_then(TcpListener::from_std);
            let listener = listener.map_err(AgentError::io("wait for clients"))?;
            Ok(self.accept(listener).await)
        })
    }

    async fn accept(self, listener: TcpListener) -> Infallible {
        let agent = Arc::new(self);
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let permit = room.clone().acquire_owned().await.ok();
            match listener.accept().await {
                Ok((socket, from)) => {
                    let agent = agent.clone();
                    tokio::spawn(async move {
                        if let Err(error) = agent.client(socket, from).await {
                            tracing::warn!("{from}: {error}");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    // Such as too many open files: others end meanwhile.
                    tracing::warn!("accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn client(&self, socket: TcpStream, address: SocketAddr) -> io::Result<()> {
        notice_loss(&socket)?;
        let machines = self.keys.machines().map_err(io::Error::other)?;
        let keys = machines.iter().map(|machine| machine.key).collect();
        let config = slipway_tls::server(&self.own, Some(keys)).map_err(io::Error::other)?;
        let mut connection = timeout(PATIENCE, TlsAcceptor::from(Arc::new(config)).accept(socket)).await??;
        let key = key_of(&connection);
        let found = machines.into_iter().find(|machine| Some(machine.key) == key);
        let name = found.map(|machine| machine.name).ok_or(io::ErrorKind::PermissionDenied)?;
        let peer = Peer { name, address };
        let Some((Kind::Words, words)) = timeout(PATIENCE, frame::read(&mut connection)).await?? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it said no command"));
        };
        match self.command(&words) {
            Ok((mut command, shown)) => {
                tracing::info!("{} ({}): {shown}", peer.name, peer.address);
                attend(command.spawn()?, connection).await
            }
            Err(why) => {
                frame::write(&mut connection, Kind::Errors, format!("slipway agent: {why}\n").as_bytes()).await?;
                frame::write(&mut connection, Kind::Ended, &[NO_COMMAND]).await?;
                connection.shutdown().await
            }
        }
    }

    /// The command of a client's words, and how a log shows it.
    fn command(&self, words: &[u8]) -> Result<(Command, String), String> {
        let words = std::str::from_utf8(words).map_err(|_| "the command is no UTF-8".to_owned())?;
        let words = shell_words::split(words).map_err(|error| format!("read the command: {error}"))?;
        let Some((PROGRAM, arguments)) = words.split_first().map(|(program, rest)| (program.as_str(), rest)) else {
            return Err(format!("it executes `{PROGRAM}` and nothing else"));
        };
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir("/").process_group(0);
        // A machine that sends on to others has agents too, unless its own environment says otherwise.
        if std::env::var_os(RSH).is_none() {
            command.env(RSH, format!("{PROGRAM} agent run --folder {}", self.keys.folder().display()));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The word after the program: arguments may hold what is not for a log.
        Ok((command, format!("{PROGRAM} {} …", arguments.first().map_or("", String::as_str))))
    }
}

/// An event loop in this thread.
pub(crate) fn event_loop() -> Result<tokio::runtime::Runtime, AgentError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(AgentError::io("make an event loop"))
}

/// Has the kernel end a connection whose other end says nothing for a minute, as ssh does (`tcp(7)`).
pub(crate) fn notice_loss(socket: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(20))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(sockopt::set_tcp_user_timeout(socket, 60_000)?)
}

fn key_of(connection: &TlsStream<TcpStream>) -> Option<PublicKey> {
    PublicKey::of(connection.get_ref().1.peer_certificates()?.first()?)
}

/// Joins a program with its client, until it ends or the client is gone. A client that is gone closes its input and output.
async fn attend(mut child: Child, connection: TlsStream<TcpStream>) -> io::Result<()> {
    let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (from, mut to) = tokio::io::split(connection);
    let (answers, mut queue): (Answers, _) = mpsc::channel(4);
    let sending = async {
        while let Some((kind, content)) = queue.recv().await {
            frame::write(&mut to, kind, &content).await?;
        }
        to.shutdown().await
    };
    let running = async move {
        tokio::join!(pass(output, Kind::Output, &answers), pass(errors, Kind::Errors, &answers));
        let status = child.wait().await?;
        // The client is gone when nobody takes it.
        let _ = answers.send((Kind::Ended, vec![code(status)])).await;
        Ok::<_, io::Error>(())
    };
    let serving = async { tokio::try_join!(running, sending).map(drop) };
    tokio::select! {
        served = serving => served,
        lost = feed(from, input) => lost,
    }
}

/// A program's output, as frames.
async fn pass(mut from: impl AsyncRead + Unpin, kind: Kind, to: &Answers) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if to.send((kind, piece[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

/// The client's input, for the program. Returns when the client is gone.
async fn feed(mut from: ReadHalf<TlsStream<TcpStream>>, input: ChildStdin) -> io::Result<()> {
    let mut input = Some(input);
    while let Some((kind, content)) = frame::read(&mut from).await? {
        match kind {
            Kind::Input => {
                if let Some(to) = &mut input
                    && to.write_all(&content).await.is_err()
                {
                    // A program need not read all of its input.
                    input = None;
                }
            }
            Kind::InputEnd => input = None,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame out of place")),
        }
    }
    Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client is gone"))
}

/// The exit code, or 128 and the signal's number.
fn code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

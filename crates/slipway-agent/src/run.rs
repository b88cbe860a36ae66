//! The client: it has a machine's agent execute a command, as ssh would.

use std::convert::Infallible;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::AgentError;
use crate::frame::{self, Kind};
use crate::keys::Keys;
use crate::serve::{event_loop, notice_loss};

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of standard input read at a time.
const PIECE: usize = 64 << 10;

/// Executes a command on a machine, with this process's standard input, output and error, and gives its exit code. The words are
/// joined by spaces, as ssh does; a shell's quotes hold.
///
/// # Errors
/// When the machine is not known or not reached, or the connection ends before the command.
pub fn run(keys: &Keys, name: &str, words: &[String]) -> Result<u8, AgentError> {
    let runtime = event_loop()?;
    let ran = runtime.block_on(execute(keys, name, words));
    // A thread may wait for standard input until the process ends.
    runtime.shutdown_background();
    ran
}

async fn execute(keys: &Keys, name: &str, words: &[String]) -> Result<u8, AgentError> {
    let machine = keys.machine(name)?;
    let own = keys.own()?;
    let config = slipway_tls::client(machine.key, Some(&own))?;
    let lost = |reason: String| AgentError::Unreachable { name: name.to_owned(), reason };
    let connect = async {
        let socket = TcpStream::connect(machine.address).await?;
        notice_loss(&socket)?;
        let server = ServerName::IpAddress(machine.address.ip().into());
        let mut connection = TlsConnector::from(Arc::new(config)).connect(server, socket).await?;
        frame::write(&mut connection, Kind::Words, words.join(" ").as_bytes()).await?;
        Ok::<_, io::Error>(connection)
    };
    let connection = timeout(PATIENCE, connect).await.map_err(|_| lost("it does not answer".to_owned()))?;
    attend(connection.map_err(|error| lost(error.to_string()))?).await.map_err(|error| lost(error.to_string()))
}

async fn attend(connection: TlsStream<TcpStream>) -> io::Result<u8> {
    let (mut from, to) = tokio::io::split(connection);
    let answers = async {
        loop {
            match frame::read(&mut from).await? {
                Some((Kind::Output, content)) => {
                    let mut output = io::stdout().lock();
                    output.write_all(&content).and_then(|()| output.flush())?;
                }
                Some((Kind::Errors, content)) => io::stderr().write_all(&content)?,
                Some((Kind::Ended, content)) if content.len() == 1 => return Ok(content[0]),
                Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame out of place")),
                None => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it ended without an answer")),
            }
        }
    };
    tokio::select! {
        code = answers => code,
        // An agent that takes no more input has its reason in its answers.
        never = feed(to) => match never {},
    }
}

/// Sends standard input, and then waits for ever.
async fn feed(mut to: impl AsyncWrite + Unpin) -> Infallible {
    let (pieces, mut queue) = mpsc::channel(4);
    // Standard input may be a terminal or a pipe that nobody closes: a thread waits for it, and ends with the process.
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut piece) {
            if pieces.blocking_send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let sent = async {
        while let Some(piece) = queue.recv().await {
            frame::write(&mut to, Kind::Input, &piece).await?;
        }
        frame::write(&mut to, Kind::InputEnd, &[]).await?;
        to.flush().await
    };
    let _: io::Result<()> = sent.await;
    std::future::pending().await
}

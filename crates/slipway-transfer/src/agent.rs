//! An end of a transfer inside a node of a lab. A caller outside the node assigns a task to it, and hears its words.
//!
//! Task and words pass over pipes, as [frames](crate::frame). The caller trusts none of the words: each frame is bounded,
//! and so is all that the caller keeps of them.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::message;
use crate::pull::{Pull, pull};
use crate::report::{List, Named, Outcome, Progress, Report};
use crate::send::{Request, send};
use crate::serve::{Server, hold_more_files};
use crate::token::Token;

/// The word after the agent's path that makes a program this end.
pub const OPTION: &str = "--transfer";

/// A task for an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Serve one session at this address, whose port may be 0. Without TLS for data, where the client asks for it and `clear` is true.
    Serve {
        /// The address to listen at.
        address: SocketAddr,
        /// Take data without TLS.
        clear: bool,
    },
    /// Send to a server.
    Send(SocketAddr, Request),
    /// Fetch from a server.
    Fetch(SocketAddr, Pull),
}

#[derive(Serialize, Deserialize)]
struct Assignment {
    token: String,
    task: Task,
}

/// A word of an agent: one in each frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// The server listens at this port.
    Listening(u16),
    /// Progress of a transfer.
    Progress(Progress),
    /// An entry of a list of the report.
    Told(List, Named),
    /// The report without its lists. Nothing follows.
    Report(Box<Report>),
    /// The reason why there is none. Fits "failed to …".
    Failed(String),
}

/// A pipe is no network: the tag finds what another program wrote into it, and hides nothing.
fn key() -> Key {
    Key::new(&[0; 32], 0)
}

/// Assigns a task to the agent that reads `to`. The token goes along.
pub fn assign(to: impl Write, token: &Token, task: Task) -> Result<(), TransferError> {
    let mut writer = Writer::new(to, key());
    say(&mut writer, &Assignment { token: token.text(), task })
}

/// Hears an agent.
pub struct Hearing<R>(Reader<R>);

impl<R: Read> Hearing<R> {
    /// Words come from `from`.
    pub fn new(from: R) -> Self {
        Self(Reader::new(from, key()))
    }

    fn word(&mut self) -> Result<Word, TransferError> {
        let body = self.0.frame().map_err(TransferError::stream)?;
        let mut body = body.ok_or_else(|| TransferError::Lost(io::ErrorKind::UnexpectedEof.into()))?;
        message::take(&mut body).map_err(TransferError::stream)
    }

    /// The port at which the agent listens.
    pub fn port(&mut self) -> Result<u16, TransferError> {
        match self.word()? {
            Word::Listening(port) => Ok(port),
            other => Err(unexpected(other)),
        }
    }

    /// Hears of a transfer to its end. `show` hears of progress.
    pub fn report(&mut self, mut show: impl FnMut(&Progress)) -> Result<Report, TransferError> {
        let mut outcome = Outcome::default();
        loop {
            match self.word()? {
                Word::Progress(progress) => show(&progress),
                Word::Told(list, named) => outcome.told(list, named)?,
                Word::Report(report) => return Ok(report.with(outcome)),
                other => return Err(unexpected(other)),
            }
        }
    }
}

fn unexpected(word: Word) -> TransferError {
    match word {
        Word::Failed(why) => TransferError::Inside(why),
        _ => TransferError::Protocol("its agent says what nobody asked for".to_owned()),
    }
}

fn say<T: Serialize>(writer: &mut Writer<impl Write>, word: &T) -> Result<(), TransferError> {
    message::put(word, writer.body()).map_err(TransferError::stream)?;
    writer.send().map(drop).map_err(TransferError::stream)
}

/// The agent: reads its task from standard input, says its words on standard output, and gives the exit code.
#[must_use]
pub fn main() -> u8 {
    hold_more_files();
    let mut says = Writer::new(io::stdout(), key());
    match hear().and_then(|(token, task)| carry_out(&mut says, &token, task)) {
        Ok(()) => 0,
        Err(error) => {
            // Where nobody listens the exit code remains.
            let _ = say(&mut says, &Word::Failed(error.to_string()));
            1
        }
    }
}

/// The assignment. The agent ends with its caller, whose end of the pipe then closes.
fn hear() -> Result<(Token, Task), TransferError> {
    let mut reader = Reader::new(io::stdin(), key());
    let body = reader.frame().map_err(TransferError::stream)?;
    let mut body = body.ok_or_else(|| TransferError::Protocol("its caller assigned nothing".to_owned()))?;
    let Assignment { token, task } = message::take(&mut body).map_err(TransferError::stream)?;
    let token = Token::parse(&token).ok_or_else(|| TransferError::Protocol("its caller has no token".to_owned()))?;
    std::thread::spawn(|| {
        while matches!(io::stdin().read(&mut [0]), Ok(1)) {}
        std::process::exit(1);
    });
    Ok((token, task))
}

fn carry_out(says: &mut Writer<impl Write>, token: &Token, task: Task) -> Result<(), TransferError> {
    let mut report = match task {
        Task::Serve { address, clear } => {
            let server = Server::bind(address, token, None, clear)?.sending(true);
            let address = server.address().map_err(TransferError::io("see where it listens"))?;
            say(says, &Word::Listening(address.port()))?;
            return server.run(true, |_| {});
        }
        Task::Send(address, request) => send(&request, address, token, |progress| show(says, *progress))?,
        Task::Fetch(address, request) => pull(&request, address, token, |progress| show(says, *progress))?,
    };
    for (list, named) in report.take_lists() {
        say(says, &Word::Told(list, named))?;
    }
    say(says, &Word::Report(Box::new(report)))
}

fn show(says: &mut Writer<impl Write>, progress: Progress) {
    // A caller that is gone ends this process.
    let _ = say(says, &Word::Progress(progress));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[Word]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), key());
        for word in words {
            say(&mut writer, word).expect("a vector takes all");
        }
        writer.into_inner()
    }

    #[test]
    fn an_agent_is_heard_and_not_believed() {
        let failed = said(&[Word::Failed("open /data: no".to_owned())]);
        let error = Hearing::new(failed.as_slice()).port().expect_err("it failed").to_string();
        assert_eq!(error, "open /data: no");
        let port = said(&[Word::Listening(7)]);
        assert_eq!(Hearing::new(port.as_slice()).port().expect("a port"), 7);
        let never = |bytes: &[u8]| Hearing::new(bytes).report(|_| {}).expect_err("no report").to_string();
        assert!(never(&port).contains("nobody asked for"));
        assert!(never(&[]).contains("reach the other end"));
        assert!(never(&[0xff; 100]).contains("too long"));
    }
}

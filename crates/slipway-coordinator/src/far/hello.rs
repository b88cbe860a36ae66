//! The first words of a connection between a worker's machine and the coordinator: a line of JSON each way.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest line in bytes.
const LONGEST: usize = 1024;

/// A connection's purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// It lasts as long as the worker, and brings the worker's last words.
    Life,
    /// It carries the worker's calls.
    Calls,
}

/// The words of a worker's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of its Slipway.
    pub version: String,
    /// The worker's number, from 1.
    pub worker: u32,
    /// The number of the worker's start in this run of the campaign.
    pub start: u64,
    /// Proof of the token for this connection, in hexadecimal digits.
    pub proof: String,
    /// The purpose of the connection.
    pub purpose: Purpose,
}

/// The coordinator's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Welcome {
    /// The connection serves its purpose from now on.
    Welcome,
    /// The coordinator ends it, for this reason.
    Refused(String),
}

/// Reads a hello.
///
/// # Errors
/// Where the line is none.
pub fn parse(line: &[u8]) -> Result<Hello, serde_json::Error> {
    serde_json::from_slice(line)
}

/// Writes a line.
pub(super) async fn say(to: &mut (impl AsyncWrite + Unpin), words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    to.flush().await
}

/// Reads a line, and no byte beyond it: those are somebody else's.
pub(super) async fn hear<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut line = Vec::new();
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(serde_json::from_slice(&line)?),
            _ if line.len() == LONGEST => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_to_its_end_and_no_further() {
        let hello = Hello { version: "1".into(), worker: 3, start: 2, proof: "00".into(), purpose: Purpose::Calls };
        let mut bytes = serde_json::to_vec(&hello).unwrap();
        assert_eq!(parse(&bytes).unwrap(), hello);
        bytes.extend(b"\nGET /");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut rest = &bytes[..];
        assert_eq!(runtime.block_on(hear::<Hello>(&mut rest)).unwrap(), hello);
        assert_eq!(rest, b"GET /");
        let endless = [b'x'; 2 * LONGEST];
        let refused = runtime.block_on(hear::<Hello>(&mut &endless[..])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(runtime.block_on(hear::<Hello>(&mut &b"{\"worker\": -1}\n"[..])).is_err());
    }
}

//! The program that speaks S3 for others, and its protocol.
//!
//! `slipway-s3` runs beside the command that needs it. It alone has the key, threads and TLS: a coordinator has one thread
//! (docs/adr/0027), and programs in nodes are hostile (docs/adr/0048). Its standard input takes lines of JSON: [`Hello`]
//! first, then requests. Its standard output has an answer to each request, in any order: lines of JSON, of which
//! [`Told::Data`] is followed by so many bytes.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use slipway_campaign::model::Bucket;

use super::{Object, ObjectError};
use crate::digest::Digest;

/// The program's file name. It belongs beside `slipway`.
pub const PROGRAM: &str = "slipway-s3";
/// While it takes objects over, the program says so each time that this has passed ([`Told::Working`]).
pub const PULSE: Duration = Duration::from_secs(2);
/// Longest line of the protocol in bytes: the objects of an attempt with a hundred thousand files.
pub const LONGEST: u64 = 16 << 20;

/// A program that speaks S3, and the bucket that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The program's file.
    pub program: PathBuf,
    /// The bucket.
    pub bucket: Bucket,
}

/// The first line of a caller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the caller: both programs come from one build.
    pub version: String,
    /// The bucket.
    pub bucket: Bucket,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The number that its answers have.
    pub id: u64,
    /// The wish.
    pub what: What,
}

/// The wish of a caller.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Look whether the bucket can be read, without a change. Answer: [`Told::Done`].
    Look,
    /// Make sure that the bucket takes objects, and belongs to this campaign. Answer: [`Told::Done`].
    Begin(Owner),
    /// Take objects over from a worker's folder. Answers: [`Told::Working`] for as long as it takes, then [`Told::Done`].
    Adopt {
        /// The worker's folder `out`.
        out: PathBuf,
        /// The objects.
        digests: Vec<Digest>,
    },
    /// Read an object's compressed bytes. Answers: [`Told::Data`], the last without bytes.
    Open(Digest),
    /// Name all objects. Answers: [`Told::Objects`], the last without objects.
    List,
    /// Remove an object. Answer: [`Told::Done`].
    Remove(Digest),
}

/// The campaign that a part of a bucket belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Its name, for people.
    pub campaign: String,
    /// A text that no other campaign's folder has.
    pub id: String,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Number of the request.
    pub id: u64,
    /// The answer.
    pub what: Told,
}

/// The content of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// It is done. Storage grew by so many bytes.
    Done(u64),
    /// It takes longer, and the program lives.
    Working,
    /// So many bytes follow the line.
    Data(usize),
    /// Some objects.
    Objects(Vec<Listed>),
    /// The last answer: the request failed.
    Failed(Fault),
}

/// An object, as it is listed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub digest: Digest,
    /// Compressed size in bytes.
    pub stored: u64,
    /// Seconds from 1970 until it was stored.
    pub adopted: u64,
}

/// The reason why a request failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// [`ObjectError::Missing`]
    Missing(Digest),
    /// [`ObjectError::Gone`]
    Gone(Digest),
    /// A worker's object is not what its name says.
    Content(Digest, String),
    /// [`ObjectError::Service`]
    Service(String),
}

impl Service {
    /// The command that starts the program, with pipes to it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// The first line for the program.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        line(&Hello { version, bucket: self.bucket.clone() })
    }

    /// The error where the program cannot be started.
    #[must_use]
    pub fn unstarted(&self, error: &std::io::Error) -> ObjectError {
        let path = self.program.display();
        ObjectError::Service(format!(
            "execute {path}: {error}\nHint: it belongs beside slipway; `make install` installs both, `cargo build -p slipway-s3` builds it"
        ))
    }

    /// The error where the program ended, or answered nonsense.
    #[must_use]
    pub fn broken(&self, why: &str) -> ObjectError {
        ObjectError::Service(format!("use {}: {PROGRAM} {why}\nHint: the lines above may say why", self.bucket))
    }
}

/// A line of the protocol.
#[must_use]
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Keys are strings and paths are UTF-8, or serde refuses them: such a line is empty, and the other side says so.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

impl From<Fault> for ObjectError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Missing(digest) => Self::Missing(digest),
            Fault::Gone(digest) => Self::Gone(digest),
            Fault::Content(digest, what) => Self::Content { digest, source: std::io::Error::other(what) },
            Fault::Service(what) => Self::Service(what),
        }
    }
}

impl From<Listed> for Object {
    fn from(Listed { digest, stored, adopted }: Listed) -> Self {
        Self { digest, stored, adopted: SystemTime::UNIX_EPOCH + Duration::from_secs(adopted) }
    }
}

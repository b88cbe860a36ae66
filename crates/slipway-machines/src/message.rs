//! Messages between a coordinator and a machine's part: a JSON text a line, each bounded.

use std::io::{self, BufRead, BufWriter, Read as _, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipway_lab::model::{Part, Secret};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::{Order as LabOrder, Schedule};
use slipway_measure::play::{Begin, Line};

use crate::packed::{LONGEST, Packed};

/// The protocol's version. Two that differ do not work together.
pub const VERSION: u32 = 3;
/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;

/// An order of a coordinator to a machine's part.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Says whether a file is there.
    Find {
        /// Its path.
        path: PathBuf,
    },
    /// Looks for an image of a lab.
    Image {
        /// The image's file or folder on the coordinator's machine.
        path: PathBuf,
        /// Its own name, free of links.
        name: String,
        /// Its [identity](slipway_image::identity()).
        identity: String,
    },
    /// Makes its part of a lab. It goes down again unless [`Order::Keep`] follows.
    Make {
        /// The lab, which is the same for all machines.
        lab: Packed,
        /// This machine, and the lab's number.
        part: Part,
        /// Where this machine has each of the lab's images.
        images: Vec<PathBuf>,
        /// The secret of the lab's routers.
        secret: Secret,
    },
    /// Leaves the part that was made standing.
    Keep,
    /// Takes its part of a lab down.
    Down {
        /// The lab's name.
        lab: String,
        /// Its [number](slipway_lab::model::Part::number). Another lab of this name stays.
        number: u64,
        /// Time to wait for another process that holds it, seconds.
        patience: u64,
    },
    /// Puts rules in the place of a running lab's policy.
    Policy {
        /// The lab's name.
        lab: String,
        /// All rules.
        rules: Vec<Rule>,
    },
    /// Carries out its part of an order to a running lab.
    Give {
        /// The lab's name.
        lab: String,
        /// The order.
        order: Box<LabOrder>,
    },
    /// Prepares to play its part of a scenario.
    Play {
        /// The lab's name.
        lab: String,
        /// The events of all machines.
        schedule: Box<Schedule>,
        /// The first line of the log, but for its time.
        begin: Box<Begin>,
        /// True: changes stay when it is over.
        keep: bool,
    },
    /// Has the part that is prepared begin.
    Begin {
        /// The time, on that machine's monotonic clock, nanoseconds.
        at: u64,
    },
    /// Ends the scenario before its time, and takes its changes back.
    Stop,
    /// Asks the time.
    Clock,
    /// Asks for the log of the scenario that was played last.
    Log {
        /// The lab's name.
        lab: String,
    },
}

/// An answer of a machine's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The first line of all.
    Hello {
        /// Its [`VERSION`].
        protocol: u32,
        /// Its program's version.
        version: String,
    },
    /// Where an image is, or is to be put.
    Image {
        /// The image on this machine, once it is there with this identity.
        found: Option<PathBuf>,
        /// The folder that the image is to be sent to, which keeps what came of it.
        place: PathBuf,
    },
    /// So many nodes are ready.
    Ready {
        /// Their number.
        nodes: usize,
    },
    /// The order is carried out.
    Done {
        /// Whether there was anything to do: a lab to take down.
        was_there: bool,
        /// Fast connections that ended with it.
        connections: u64,
        /// Notes on limits that hold differently than one might expect.
        notes: Vec<String>,
    },
    /// It can begin to play.
    Prepared,
    /// The log of its part has a new line.
    Played {
        /// The line.
        line: Box<Line>,
    },
    /// Its monotonic clock.
    Clock {
        /// The time, nanoseconds.
        now: u64,
    },
    /// It is not, and nothing of it stays.
    Failed {
        /// The reason, with its hint.
        message: String,
    },
}

impl Answer {
    /// The order is carried out, and there is nothing to say.
    #[must_use]
    pub fn done() -> Self {
        Self::Done { was_there: true, connections: 0, notes: Vec::new() }
    }
}

/// Writes a message, and has it leave at once.
///
/// # Errors
/// As the writer.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    // Long messages go to many machines at once: none is whole in memory.
    let mut to = BufWriter::with_capacity(PIECE, to);
    serde_json::to_writer(&mut to, message)?;
    to.write_all(b"\n")?;
    to.flush()
}

/// Reads the next message. `None` at the end.
///
/// # Errors
/// As the reader; `InvalidData` for a line that is none, or longer than 256 MiB.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let read = from.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut short"));
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were_sent() {
        let (mut wire, secret) = (Vec::new(), Secret(std::array::from_fn(|i| u8::try_from(i).unwrap() * 7)));
        let lab = slipway_lab::parse("lab.yaml", "nodes: {n: }\n", std::path::Path::new("/")).unwrap();
        let packed = Packed::new(&lab).unwrap();
        let (part, images) = (lab.part.clone(), vec![PathBuf::from("/image")]);
        send(&mut wire, &Order::Make { lab: packed, part, images, secret }).unwrap();
        send(&mut wire, &Order::Keep).unwrap();
        let mut from = wire.as_slice();
        match receive(&mut from).unwrap() {
            Some(Order::Make { lab: read, secret: told, .. }) => assert!(read.lab().unwrap() == lab && told == secret),
            other => panic!("{other:?}"),
        }
        assert!(matches!(receive(&mut from).unwrap(), Some(Order::Keep)));
        assert!(receive::<Order>(&mut from).unwrap().is_none());
    }

    #[test]
    fn a_line_that_is_cut_short_or_no_message_is_an_error() {
        for wire in ["\"keep\"", "\"keep", "no message\n", "{\"make\": {\"secret\": \"zz\"}}\n"] {
            assert!(receive::<Order>(&mut wire.as_bytes()).is_err(), "{wire}");
        }
    }
}

//! Messages between a coordinator and a machine's part: a JSON text a line, each bounded.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufWriter, Read as _, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipway_engine::condition::LinkReport;
use slipway_engine::facts::Check;
use slipway_engine::scenario::Ends;
use slipway_lab::id::NodeId;
use slipway_lab::model::{Part, Secret};
use slipway_lab::policy::Rule;
use slipway_lab::scenario::{Order as LabOrder, Schedule};
use slipway_measure::play::{Begin, Line};
use slipway_verify::{Outcome, Ports, Route, Task};

use crate::changes::Changes;
use crate::packed::{LONGEST, Packed};

/// The protocol's version. Two that differ do not work together.
pub const VERSION: u32 = 6;
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
    /// Says whether no tunnel of this machine has one of these identifiers.
    Vacant {
        /// The first VXLAN network identifier.
        first: u32,
        /// Their count, in a row.
        count: u32,
        /// This machine's address.
        address: Ipv4Addr,
    },
    /// Takes its part of a lab down.
    Down {
        /// The lab's name.
        lab: String,
        /// Its [number](slipway_lab::model::Part::number). Another lab of this name stays.
        number: u64,
        /// Time to wait for another process that holds it, seconds.
        patience: u64,
        /// Notes the lab's other machines until [`Order::Forget`]: nobody else might take their parts down.
        note: bool,
    },
    /// Forgets the note of a lab's other machines.
    Forget {
        /// The lab's name.
        lab: String,
        /// Its number.
        number: u64,
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
        /// The end of the playing.
        ends: Ends,
        /// True: changes stay when it is over.
        keep: bool,
    },
    /// Waits for the end of its part of a scenario, has it go on where its player was killed, and sends its log.
    Follow {
        /// The lab's name.
        lab: String,
        /// The events of all machines.
        schedule: Box<Schedule>,
    },
    /// Has the part that is prepared begin.
    Begin {
        /// The time, on that machine's monotonic clock, nanoseconds.
        at: u64,
    },
    /// Says that the job beside the scenario has ended.
    JobEnded,
    /// Ends the scenario before its time, and takes its changes back.
    Stop,
    /// Asks the time.
    Clock,
    /// Asks the wall clock.
    Date,
    /// Says what the machine lacks for labs.
    Look,
    /// Listens for probes of other machines.
    Listen {
        /// The probes' number.
        number: u64,
    },
    /// Sends probes to other machines.
    Probe {
        /// Their number.
        number: u64,
        /// This machine's address.
        from: Ipv4Addr,
        /// The others'.
        to: Vec<Ipv4Addr>,
    },
    /// Asks for the probes that came.
    Heard,
    /// Asks how the links of its nodes are, and which of these run.
    Links {
        /// The lab's name.
        lab: String,
    },
    /// Puts its part of a lab under conditions and limits until [`Order::Release`], or the coordinator's end.
    Hold {
        /// The lab's name.
        lab: String,
        /// The conditions and limits.
        changes: Box<Changes>,
    },
    /// Takes them back.
    Release,
    /// Resets links and limits to the lab's file, and starts nodes that are stopped or dead.
    Restore {
        /// The lab's name.
        lab: String,
    },
    /// Opens the ends of these paths that are on its machine.
    Paths {
        /// The lab's name.
        lab: String,
        /// The paths.
        routes: Vec<Route>,
    },
    /// Joins these ends with those on other machines.
    Join {
        /// The ports of all paths.
        ports: Vec<Ports>,
    },
    /// Sends and receives over them.
    Measure {
        /// The task, of all machines.
        task: Box<Task>,
        /// When to begin, on that machine's monotonic clock, nanoseconds.
        at: u64,
    },
    /// Asks for the log of the scenario that was played last.
    Log {
        /// The lab's name.
        lab: String,
    },
}

/// A probe that came from another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Packet {
    /// The sender's address.
    pub from: Ipv4Addr,
    /// Its size with the IP header, bytes.
    pub bytes: u16,
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
    /// Lacks of the machine.
    Looked {
        /// All that is not as labs may want it.
        checks: Vec<Check>,
    },
    /// Probes that came, each size and sender once.
    Heard {
        /// The probes.
        packets: Vec<Packet>,
    },
    /// Its monotonic clock, or its wall clock where that was asked.
    Clock {
        /// The time, nanoseconds.
        now: u64,
    },
    /// The links of its nodes.
    Links {
        /// Those that differ from its machine's own.
        report: Box<LinkReport>,
        /// Its nodes that run.
        alive: BTreeSet<NodeId>,
    },
    /// The ports of the ends on its machine.
    Ports {
        /// Path by path.
        ports: Vec<Ports>,
    },
    /// It measures.
    Measuring {
        /// The share that is done.
        share: f64,
    },
    /// It has measured.
    Measured {
        /// Its part.
        outcome: Box<Outcome>,
        /// Its wall clock less its monotonic clock, nanoseconds.
        wall: i64,
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
    use proptest::collection::vec;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn answers_come_back_as_they_were_sent(
            number: u64, text in ".{0,40}", packets in vec((any::<u32>(), any::<u16>()), 0..5), which in 0..6,
        ) {
            let packets = packets.into_iter().map(|(from, bytes)| Packet { from: from.into(), bytes }).collect();
            let answer = match which {
                0 => Answer::Hello { protocol: VERSION, version: text },
                1 => Answer::Done { was_there: number % 2 == 0, connections: number, notes: vec![text] },
                2 => Answer::Heard { packets },
                3 => Answer::Clock { now: number },
                4 => Answer::Image { found: Some(text.clone().into()), place: text.into() },
                _ => Answer::Failed { message: text },
            };
            let mut wire = Vec::new();
            send(&mut wire, &answer).unwrap();
            prop_assert_eq!(wire.iter().position(|&byte| byte == b'\n'), wire.len().checked_sub(1));
            let mut from = wire.as_slice();
            prop_assert_eq!(receive::<Answer>(&mut from).unwrap(), Some(answer));
            prop_assert!(receive::<Answer>(&mut from).unwrap().is_none());
        }

        #[test]
        fn any_bytes_are_messages_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
            let mut from = bytes.as_slice();
            while let Ok(Some(_)) = receive::<Order>(&mut from) {}
            let mut from = bytes.as_slice();
            while let Ok(Some(_)) = receive::<Answer>(&mut from) {}
        }
    }

    #[test]
    fn a_line_that_is_cut_short_or_no_message_is_an_error() {
        for wire in ["\"keep\"", "\"keep", "no message\n", "{\"make\": {\"secret\": \"zz\"}}\n"] {
            assert!(receive::<Order>(&mut wire.as_bytes()).is_err(), "{wire}");
        }
    }
}

//! Messages between a job's process and its parts on other machines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipway_lab::id::NodeId;

use super::node_file::NodeFile;
use crate::exec::{Exit, Program};
use crate::protocol::Hello;

/// The version of all messages but [`Order::Open`] and [`Report::Refused`]. A change of their form takes the next number.
pub(super) const VERSION: u32 = 1;

/// From the job's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// The first message: prepares these nodes.
    Open {
        /// The version of the job's process.
        hello: Hello,
        /// The lab's name.
        lab: String,
        /// The lab's number among all that might meet on these machines.
        number: u64,
        /// Nodes of this machine.
        nodes: Vec<NodeId>,
        /// The node file of a job of PBS.
        #[serde(default)]
        node_file: Option<NodeFile>,
    },
    /// Starts a program. Its output comes as streams 1 and 2.
    Start {
        /// A number that no other program of this part has.
        program: u32,
        /// One of the part's nodes.
        node: NodeId,
        /// The program.
        wanted: Wanted,
        /// Whether stream 0 is its input. It reads nothing else.
        input: bool,
    },
    /// Sends a signal to a program, by numbers.
    Signal {
        /// The program.
        program: u32,
        /// The signal.
        number: i32,
    },
    /// Ends all programs of the job, and what they left behind.
    Kill,
    /// As [`Kill`](Self::Kill). The part then reports its end.
    Finish,
}

/// From a part.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The nodes are ready.
    Opened,
    /// They are not.
    Refused {
        /// The reason, with its hint.
        reason: String,
    },
    /// A program was not started.
    NotStarted {
        /// The program.
        program: u32,
        /// The exit code, as a shell's.
        code: u8,
        /// The reason, with its hint.
        reason: String,
    },
    /// A program ended, and all that it wrote was sent.
    Ended {
        /// The program.
        program: u32,
        /// The end of the program.
        exit: Exit,
    },
    /// Everything ended.
    Finished {
        /// Bytes that each node sent over its networks since the part was opened, in the order of its nodes.
        sent: Vec<u64>,
    },
}

/// A program to execute on another machine, as root of its node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Wanted {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    workdir: Option<PathBuf>,
}

impl Wanted {
    /// The same program. Jobs' words are text.
    pub(super) fn of(program: &Program) -> Self {
        Self {
            argv: program.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            env: program.env.clone(),
            workdir: program.workdir.clone(),
        }
    }

    pub(super) fn program(self) -> Program {
        let Self { argv, env, workdir } = self;
        Program { argv: argv.into_iter().map(Into::into).collect(), env, workdir, user: None }
    }
}

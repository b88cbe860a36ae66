//! A servant: a program beside the lab that uses the machine's RDMA devices, by the machine's own libraries.
//!
//! Standard input is a socket for orders, and the servant ends with it. The first line of standard output says `ready` with a
//! word about the servant, or `failed` with the length of a text that follows. Standard error is the log of the lab's RDMA.

mod library;

use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_name;
use serde::de::DeserializeOwned;

use crate::wire::{WireError, receive};
pub(crate) use library::{Loaded, functions, last};

/// Orders before other work has its turn.
const TURN: usize = 32;

/// A kind of servant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Servant {
    /// The name of its process.
    pub(crate) process: &'static CStr,
    /// The name that the log has.
    pub(crate) name: &'static str,
}

impl Servant {
    /// Lives the servant's life. `begin` takes the program's one argument, and gives what `serve` needs and the word about it.
    pub(crate) fn live<T>(
        self,
        begin: impl FnOnce(&str) -> Result<(T, String), String>,
        serve: impl FnOnce(T) -> Result<(), Errno>,
    ) -> ExitCode {
        // It was executed by a descriptor, so its name is a number. Others of its user may not trace it.
        let _ = set_name(self.process);
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let mut words = std::env::args().skip(1);
        let ready = match (words.next(), words.next()) {
            (Some(word), None) => begin(&word),
            _ => Err("a lab's anchor starts this program; users do not".to_owned()),
        };
        let word = match &ready {
            Ok((_, word)) => format!("ready {word}\n"),
            Err(why) => format!("failed {}\n{why}", why.len()),
        };
        let mut output = std::io::stdout();
        let is_told = output.write_all(word.as_bytes()).and_then(|()| output.flush()).is_ok();
        match ready {
            Ok((servant, _)) if is_told => match serve(servant) {
                Ok(()) => ExitCode::SUCCESS,
                Err(errno) => {
                    self.log(&format!("go on: {errno}"));
                    ExitCode::FAILURE
                }
            },
            _ => ExitCode::FAILURE,
        }
    }

    /// Writes down what failed.
    pub(crate) fn log(self, what: &str) {
        // A full disk is no reason to end connections.
        let _ = writeln!(std::io::stderr(), "{} failed to {what}", self.name);
    }

    /// Carries out orders that have come, as many as have their turn. False where nobody can give any more.
    pub(crate) fn obey<Order: DeserializeOwned>(
        self,
        mut carry_out: impl FnMut(Order, Vec<OwnedFd>) -> Result<(), String>,
    ) -> Result<bool, Errno> {
        for _ in 0..TURN {
            match receive(std::io::stdin().as_fd(), RecvFlags::DONTWAIT) {
                Ok((order, fds)) => {
                    if let Err(why) = carry_out(order, fds) {
                        self.log(&why);
                    }
                }
                Err(WireError::Socket(Errno::AGAIN)) => return Ok(true),
                Err(WireError::Ended) => return Ok(false),
                Err(WireError::Malformed) => self.log("understand an order"),
                Err(WireError::Socket(errno)) => return Err(errno),
            }
        }
        Ok(true)
    }
}

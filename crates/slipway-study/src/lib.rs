//! Studies on labs, as library calls: run a program over nodes, play a scenario, compare networks, and
//! benchmarks of disks and paths.
//!
//! A call takes a plan, which is a value, and gives back a result or a [`StudyError`]. Meanwhile it tells an event sink how far
//! it is ([`Event`]). Nothing here prints, or reads the process's arguments or environment. The `slipway` command is one
//! caller: it makes plans of its arguments, and text of events and results.
//!
//! A caller has one thread, since labs' processes are cloned from it. It names the program that nodes find as their agent
//! ([`Machine::agent`]). It calls [`slipway_sys::process::remember_inherited`] first, so that no lab keeps the descriptors that
//! the caller itself inherited.

pub mod bench;
pub mod campaign;
pub mod check;
pub mod compare;
mod error;
mod event;
mod output;
mod passing;
pub mod play;
mod rounds;
pub mod run;
pub mod script;
mod source;

pub use error::StudyError;
pub use event::{Event, Events};
pub use output::Output;
pub use slipway_engine::machine::Machine;
pub use source::Source;

//! A scenario over several machines.
//!
//! Each machine plays its own part, by its own clock, in a process that outlives its coordinator. The coordinator plans
//! once, sends the schedule to all, compares their clocks, and says when to begin. Then it only listens: a connection that
//! is lost stops nothing. ADR 0070 says why.

pub mod clock;
mod coordinate;
mod late;
mod listen;
mod merge;
pub mod part;
mod seat;
mod split;
mod whole;

pub use coordinate::{play, resume};
pub use whole::Score;

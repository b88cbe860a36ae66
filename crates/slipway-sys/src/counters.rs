//! The kernel's counters of processors and packets: each is a count since the start, so two readings give what happened between.
//!
//! Readers take any text, and leave out the lines that they do not understand.

mod packets;
mod processors;

pub use packets::{Drops, drops};
pub use processors::{Processor, Share, processors, shares};

//! The lab model: what a lab file says, what it means, and what is wrong with it. Pure: no I/O, the same on every machine.

pub mod model;
pub mod units;

//! This machine, for the transfer of data: its settings as values that Slipway applies, verifies and rolls back.
//!
//! Nothing here knows what a lab is.

pub mod setting;

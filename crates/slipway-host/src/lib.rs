//! A machine, for moving data: facts about it, rules for its settings, and the settings as values that Slipway applies, verifies
//! and rolls back.
//!
//! Nothing here knows what a lab is. Data flows one way:
//!
//! ```text
//! facts ──check, with rules──▶ advice ──plan──▶ settings
//! ```

pub mod check;
pub mod facts;
pub mod formula;
pub mod kernel;
pub mod names;
pub mod rules;
pub mod setting;
mod target;

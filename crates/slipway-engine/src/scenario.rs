//! Scenarios, played: events take effect on a running lab when they are due, and a log says when they really did.
//!
//! [`Player`] is the order of things, and knows no lab: it acts through a [`Platform`], which tests replace by one with a
//! clock of their own. [`Stage`] is the platform of a running lab.

mod effects;
mod platform;
mod player;
mod words;

#[cfg(test)]
mod tests;

pub use platform::{Act, Begun, Happening, Platform};
pub use player::{Ends, Outcome, Part, Player};
pub use words::{kind, nodes, what};

//! Scenarios, played: events take effect on a running lab when they are due, and a log says when they really did.
//!
//! [`Player`] is the order of things, and knows no lab: it acts through a [`Platform`], which tests replace by one with a
//! clock of their own. [`Stage`] is the platform of a running lab. The player has one thread and never waits for an
//! act: requests to the anchor are heard when they are answered, and what takes its time goes on in processes beside it.

mod ask;
mod awaiting;
mod beside;
mod door;
mod effects;
mod error;
mod folder;
mod limits;
mod load;
mod perform;
mod platform;
mod player;
mod replaced;
mod stage;
mod watch;
mod wire;
mod words;

#[cfg(test)]
mod tests;

pub use awaiting::Awaiting;
pub use beside::JobFailure;
pub use error::{Account, ActError};
pub use folder::{Claim, Folder, Kept, ScenarioError, Standing, Status};
pub use perform::{Beside, Performance, Restored, play, play_on, play_part, restore};
pub use platform::{Act, Begun, Happening, Platform};
pub use player::{Ends, Outcome, Part, Player};
pub use stage::Stage;
pub use words::{kind, nodes, what};

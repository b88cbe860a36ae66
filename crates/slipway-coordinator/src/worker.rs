//! The worker's side: a folder for each attempt, the program in it, and the results.
//!
//! A worker computes a point's values itself, since the design is a function of the point's number. It writes below its own
//! folder only: `point` is the program's working folder, `out` gets the objects of the results.

mod attempt;
mod call;
mod scene;

pub use attempt::{Ended, Worker, WorkerError};
pub use call::{CallError, work};
pub use scene::{Scene, SceneError};

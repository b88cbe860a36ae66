//! Carries campaigns out: the queue of points, workers, and their results.
//!
//! A [`Folder`] holds a campaign's state and results. Its [`store`] is the queue: which points wait, run, are done or have
//! failed. A [`worker`] runs points and extracts their results.

mod folder;
pub mod store;
pub mod worker;

pub use folder::{Folder, FolderError, Lock};

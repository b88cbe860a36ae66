//! Carries campaigns out: the queue of points, workers, and their results.
//!
//! A [`Folder`] holds a campaign's state and results. Its [`store`] is the queue: which points wait, run, are done or have
//! failed.

mod folder;
pub mod store;

pub use folder::{Folder, FolderError, Lock};

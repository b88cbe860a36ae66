//! Carries campaigns out: the queue of points, workers, and their results.
//!
//! A [`Folder`] holds a campaign's state and results. Its [`store`] is the queue: which points wait, run, are done or have
//! failed. A [`worker`] runs points and extracts their results.

mod asker;
mod coordinator;
mod desk;
mod folder;
mod helper;
mod keeper;
mod pace;
pub mod protocol;
mod search;
mod serve;
pub mod store;
pub mod worker;

pub use coordinator::{Fleet, Progress, Run, RunError, Size, Summary, Time, run};
pub use folder::{Folder, FolderError, Lock};
pub use search::SearchError;

//! Carries campaigns out: the queue of points, workers, and their results.
//!
//! A [`Folder`] holds a campaign's state and results. Its [`store`] is the queue: which points wait, run, are done or have
//! failed. A [`worker`] runs points and extracts their results; it may be [`far`], on another machine.

mod asker;
mod coordinator;
mod desk;
pub mod far;
mod folder;
mod helper;
mod keeper;
mod pace;
pub mod protocol;
mod readable;
mod run;
mod search;
mod serve;
pub mod store;
pub mod worker;

pub use coordinator::run;
pub use folder::{Folder, FolderError, Lock};
pub use run::{Fleet, Progress, Run, RunError, Size, Summary, Time};
pub use search::SearchError;

//! Programs in nodes.
//!
//! A program enters a node in one clone. The caller points its children at the node's PID namespace (`setns(2)`), clones
//! straight into the node's control group, and points itself back: it never enters the node. The child then joins the
//! node's other namespaces, gives up what a default container does not have, and executes. Until then it is shielded from
//! a hostile node. It is not dumpable from its first instruction on, so that nothing in the node may trace it, read its memory,
//! or open its descriptors. And everything that the node could have replaced (`PATH`, `/dev/ptmx`, the working directory) is looked up only once it is confined.
//!
//! The caller must be single-threaded ([`SingleThread`](slipway_sys::clone::SingleThread)), since the child of a threaded process may not allocate before it
//! executes. The alternative, executing `/proc/self/exe` again with a hidden subcommand, costs an exec per program and
//! passes everything as text; the callers here (`slipway exec`, a job's event loop) have no use for threads.

mod beside;
mod child;
mod entry;
mod error;
mod foreground;
mod image;
mod launch;
mod message;
mod program;
pub(crate) mod pump;
mod running;
pub(crate) mod ssh;

pub use beside::Beside;
pub use entry::{Entry, Supervised};
pub use error::ExecError;
pub(crate) use image::PATH;
pub use launch::Launcher;
pub use program::{Program, Stdio, Streams, User};
pub use running::{Child, Exit};

#[cfg(test)]
mod tests;

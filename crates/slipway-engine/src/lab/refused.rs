//! Why a lab does not come up.

use std::io;

use nix::sys::signal::Signal;
use slipway_image::ImageError;
use slipway_lab::Remark;
use slipway_sys::cgroup::CgroupError;

use super::LabError;
use super::tune::TuningError;
use crate::condition::{LinkError, MatrixError};
use crate::protocol;
use crate::remains::DownError;
use crate::state::StateError;

/// Why a lab did not come up. Nothing of it is left, unless [`UpError::Undo`] says so.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The state folder, or the lab is up already.
    #[error(transparent)]
    State(#[from] StateError),
    /// This machine cannot make what the lab file asks for; nothing was tried.
    #[error("make what the lab file asks for: {}", told(.0))]
    Refused(Vec<Remark>),
    /// A profile cannot be turned into kernel settings.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// A matrix of delays cannot be had.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// This machine cannot make the conditions that the lab asks for.
    #[error(transparent)]
    Conditions(#[from] LinkError),
    /// An image cannot be had.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What an earlier crash left under this name could not be removed.
    #[error("remove what an earlier lab of this name left: {0}")]
    Leftover(DownError),
    /// The anchor could not be made.
    #[error("start the lab's anchor: {0}")]
    Anchor(io::Error),
    /// The anchor said why.
    #[error(transparent)]
    Failed(protocol::Error),
    /// A signal came (Ctrl-C, most often).
    #[error("bring the lab up: stopped by {}; what had been made is gone", .0.as_str())]
    Interrupted(Signal),
    /// The lab failed, and so did removing what there was of it.
    #[error("{failure}\nand then to remove what had been made: {undo}\nHint: `slipway down --all` tries again")]
    Undo {
        /// Why it failed.
        failure: Box<UpError>,
        /// What is left.
        undo: DownError,
    },
    /// It came up, and its anchor has ended since.
    #[error(
        "keep lab `{0}` up: it came up and ended again\nHint: a `slipway down` at the same time does that; bring it up again"
    )]
    Ended(String),
    /// It came up but cannot be opened.
    #[error(transparent)]
    Open(#[from] LabError),
    /// Control groups.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

fn told(remarks: &[Remark]) -> String {
    let told = |Remark { place, message, help }: &Remark| format!("{}: {message}\nHint: {help}", place.join("."));
    remarks.iter().map(told).collect::<Vec<_>>().join("\n")
}

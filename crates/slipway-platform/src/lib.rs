//! Platform files: a lab as a lab file, and other emulators' and simulators' platforms as labs. Pure: texts in, texts out.

mod distem;
mod imported;
mod live;
mod lose;
mod names;
mod simgrid;
mod slipway;
mod yaml;

pub use self::distem::{from_distem, to_distem};
pub use self::imported::Platform;
pub use self::live::{LiveInterface, with_live};
pub use self::simgrid::{from_simgrid, to_simgrid};
pub use self::slipway::{ExportError, to_slipway};
use slipway_document::errors::DocumentErrors;

/// A lab in another tool's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub text: String,
    /// Parts that the file cannot express.
    pub lost: Vec<String>,
}

/// A lab is too large for a format that takes a line for each pair of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a route for each pair of {nodes} nodes: that is done up to {most}\nHint: export it in another format")]
pub struct TooLarge {
    /// The lab's.
    pub nodes: usize,
    /// The greatest number that is allowed.
    pub most: usize,
}

/// Reads a platform of SimGrid (XML) or Distem (JSON); which of them is read off the text. `file` is its name, for messages and
/// the lab's; `matrix` the name that a matrix of delays would have beside the lab file.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn import(file: &str, text: &str, matrix: &str) -> Result<Platform, ImportError> {
    if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
        from_simgrid(file, text, matrix)
    } else {
        from_distem(file, text)
    }
}

/// Why a platform file gives no lab.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is wrong.
    #[error("{}", .0.plain())]
    Wrong(DocumentErrors),
    /// The result is no lab.
    #[error(transparent)]
    Lab(#[from] ExportError),
}

//! `OpenStudio`'s analyses (OSA), workflows (OSW) and data points, as campaigns. Pure: no I/O.
//!
//! [`read`] makes a campaign file of an analysis, with the files that belong beside it, and says in words each change that it
//! made. An analysis that cannot be a campaign is refused with all reasons. Names of variables and outputs stay those that
//! users of `OpenStudio` know: `measure.argument` and `measure.output`.

mod algorithm;
mod analysis;
mod distribution;
mod error;
mod imported;
pub mod osw;
mod points;
mod search;
mod variable;
mod yaml;

pub use analysis::read;
pub use error::{ImportError, Note};
pub use imported::{Files, Imported, read_workflow};

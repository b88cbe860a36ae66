//! Models of EnergyPlus and OpenStudio as text, weather files, and queries of results. Pure: no I/O.
//!
//! Models come from elsewhere, so every text is read to its end or refused with a line number.

pub mod idf;
pub mod path;
pub mod place;
pub mod query;
mod reports;
pub mod weather;

/// The Python package that has `EnergyPlus`.
pub const PACKAGE: &str = "pyenergyplus-lbnl==26.1.0";
/// The version of `EnergyPlus` in it, as models name it.
pub const VERSION: &str = "25.2";
/// The Python package that has `OpenStudio`'s SDK. It translates models for that version of `EnergyPlus`.
pub const OPENSTUDIO: &str = "openstudio==3.11.0";

pub use reports::{Report, Reporting, add_reports};

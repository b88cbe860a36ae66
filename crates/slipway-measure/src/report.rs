//! The comparison, or a scenario that was played, as one HTML page: no script, nothing from anywhere else, readable offline, on paper and on a phone.
//!
//! Every text comes from records, which hold what programs in containers said; every text is escaped, and the page's
//! Content-Security-Policy forbids scripts and loading anything, should an escape ever be forgotten.

mod axes;
mod checks;
mod curve;
mod order;
mod palette;
mod scale;
mod scenario;
mod strip;
mod svg;
mod timeline;
mod view;
mod words;

use askama::Template;

pub use timeline::timeline;

use crate::record::Comparison;

/// The page for a comparison.
///
/// # Panics
/// Never: rendering into a string has no way to fail.
#[must_use]
pub fn html(comparison: &Comparison) -> String {
    view::Source::new(comparison).page().render().expect("rendering into a string cannot fail")
}

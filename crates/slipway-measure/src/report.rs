//! The comparison, or a scenario that was played, as one HTML page: no script, nothing from anywhere else, readable offline, on paper and on a phone.
//!
//! Every text comes from records, which have output of programs in containers. The template escapes every text. The
//! page's Content-Security-Policy forbids scripts and loading, in case an escape is missing.

mod axes;
mod bench;
mod campaign;
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

pub use campaign::{Bar, Bars, Campaign, Output, Scatter, Time, campaign};
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

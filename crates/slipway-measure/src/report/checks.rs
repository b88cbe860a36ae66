//! The section of a page that says what was measured of the links beforehand (`templates/checks.html`).

use crate::check::{self, CheckedPath, HEADINGS, Tally};

/// More checks than these are not listed one by one.
const MOST_LISTED: usize = 500;

/// The section.
pub(super) struct Checks {
    pub(super) tally: String,
    pub(super) headings: [&'static str; 7],
    pub(super) rows: Vec<[String; 7]>,
    pub(super) more: usize,
}

impl Checks {
    /// `None` where nothing was measured.
    pub(super) fn of(paths: &[CheckedPath]) -> Option<Self> {
        let all = check::rows(paths).count();
        (all > 0).then(|| Self {
            tally: Tally::of(paths).to_string(),
            headings: HEADINGS,
            rows: check::rows(paths).take(MOST_LISTED).collect(),
            more: all.saturating_sub(MOST_LISTED),
        })
    }
}

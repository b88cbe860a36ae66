//! Priorities of points.

use std::ops::RangeInclusive;

use slipway_campaign::condition::Condition;
use slipway_coordinator::store::{FailureKind, Filter, History as _, Sqlite, Store as _};

use super::{CampaignError, Study, results};

/// Points that get their priority in one change of the queue: workers wait for its end.
const PAGE: usize = 10_000;
/// Greatest priority, and the least one below zero.
pub const MOST: i32 = 1000;

/// The points that are meant: those that meet everything that is said. Without anything, all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Ranges of numbers, where there are any.
    pub points: Vec<RangeInclusive<u64>>,
    /// Conditions on the points' values.
    pub conditions: Vec<Condition>,
    /// With a last failure of this kind.
    pub failure: Option<FailureKind>,
}

impl Wanted {
    fn names(&self, point: u64) -> bool {
        self.points.is_empty() || self.points.iter().any(|range| range.contains(&point))
    }
}

/// Gives points a priority, from `-MOST` to `MOST`: a campaign that runs goes on with the greatest one. Returns how many
/// points got it: those with a result, and those that a search has not chosen yet, do not.
///
/// # Errors
/// Of the queue. Pages of points that have got their priority keep it.
pub fn prioritise(study: &Study, wanted: &Wanted, priority: i32) -> Result<u64, CampaignError> {
    let mut store = results::store(study)?;
    let mut count = 0;
    if wanted.failure.is_some() {
        // Points that failed have rows; the others need no look.
        let filter = Filter { failure: wanted.failure, ..Filter::default() };
        let mut from = 0;
        loop {
            let page = store.points(&filter, from, PAGE)?;
            let Some(last) = page.last() else { return Ok(count) };
            from = last.point + 1;
            let named = page.iter().map(|point| point.point).filter(|point| wanted.names(*point));
            count += set(study, &mut store, wanted, named, priority)?;
        }
    }
    let end = if study.plan.is_search() { store.chosen()? } else { study.plan.len() };
    let all = [0..=u64::MAX];
    let ranges = if wanted.points.is_empty() { &all[..] } else { &wanted.points };
    for range in ranges {
        let mut from = *range.start();
        let end = end.min(range.end().saturating_add(1));
        while from < end {
            let to = end.min(from.saturating_add(PAGE as u64));
            count += set(study, &mut store, wanted, from..to, priority)?;
            from = to;
        }
    }
    Ok(count)
}

/// Gives a priority to those of these points that meet the conditions.
fn set(
    study: &Study,
    store: &mut Sqlite,
    wanted: &Wanted,
    points: impl Iterator<Item = u64>,
    priority: i32,
) -> Result<u64, CampaignError> {
    let mut met = Vec::new();
    for point in points {
        let is_met = wanted.conditions.is_empty()
            || results::values(study, store, point)?
                .is_some_and(|values| wanted.conditions.iter().all(|condition| condition.holds(&values)));
        met.extend(is_met.then_some(point));
    }
    Ok(store.prioritise(&met, priority)?)
}

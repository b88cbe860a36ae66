//! The choice of points for a worker, and their priorities.
//!
//! A point without a priority needs no row: the cursor `next` gives those out, in order. A priority makes a row at or behind
//! the cursor, which the cursor steps over later (`early` counts them). Each step is a look into an index, however many
//! points there are.

use rusqlite::{OptionalExtension as _, Transaction, params};

use super::{CHOSEN, IS_LED, Sqlite};
use crate::store::{Fence, Lease, State, StoreError};

/// The greatest priority below another one, among points that wait.
const LEVEL: &str = "SELECT max(priority) FROM point WHERE state = 'waiting' AND priority < ?1";
/// Points of one priority that are due.
const OF_LEVEL: &str = "SELECT point, attempts, failure IS 'lost-worker' FROM point
     WHERE state = 'waiting' AND priority = ?1 AND due <= ?2 AND point < ?3 ORDER BY due, point LIMIT ?4";
/// Rows from the cursor on.
const EARLY: &str = "SELECT point FROM point WHERE point >= ?1 ORDER BY point";
/// The next time at which a point is due.
pub(super) const DUE: &str = "SELECT min(due) FROM point WHERE state = 'waiting' AND due > ?1";

/// The query of a [`Head`]. No point behind the baseline is given out before the baseline is done.
fn head() -> String {
    format!("SELECT state, CASE WHEN {IS_LED} THEN lead ELSE {CHOSEN} END, next, early, fence FROM campaign")
}

/// The campaign's row, as far as leases need it.
struct Head {
    state: State,
    end: u64,
    next: u64,
    early: u64,
    fence: Fence,
}

/// Points for one worker, while they are chosen.
struct Choice<'a> {
    change: &'a Transaction<'a>,
    now: f64,
    head: Head,
    want: usize,
    leases: Vec<Lease>,
    /// Points among them that had a row.
    waited: usize,
    /// Whether further points would suffer from those that are there.
    is_closed: bool,
}

/// Gives at most `want` points to a worker: those of greater priority first.
pub(super) fn lease(change: &Transaction<'_>, worker: u32, want: usize, now: f64) -> rusqlite::Result<Vec<Lease>> {
    let head = change.prepare_cached(&head())?.query_row([], |row| {
        let (state, end, next) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Head { state, end, next, early: row.get(3)?, fence: row.get(4)? })
    })?;
    if head.state != State::Running {
        return Ok(Vec::new());
    }
    let leases = Vec::with_capacity(want.min(1024));
    let mut choice = Choice { change, now, head, want, leases, waited: 0, is_closed: false };
    choice.fill()?;
    choice.keep(worker)
}

impl Choice<'_> {
    fn fill(&mut self) -> rusqlite::Result<()> {
        // Points without a row have priority 0, and come after those of the same priority that wait after a failure.
        let mut fresh_are_left = true;
        let mut below = i64::MAX;
        while self.room() > 0 {
            let level: Option<i64> = self.change.prepare_cached(LEVEL)?.query_row(params![below], |row| row.get(0))?;
            if fresh_are_left && level.is_none_or(|level| level < 0) {
                fresh_are_left = false;
                self.take_fresh()?;
                continue;
            }
            let Some(level) = level else { break };
            self.take_level(level)?;
            below = level;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        if self.is_closed { 0 } else { self.want.saturating_sub(self.leases.len()) }
    }

    fn take(&mut self, point: u64, attempt: u32) {
        self.head.fence += 1;
        self.leases.push(Lease { point, fence: self.head.fence, attempt });
    }

    fn take_level(&mut self, level: i64) -> rusqlite::Result<()> {
        let mut of_level = self.change.prepare_cached(OF_LEVEL)?;
        let mut rows = of_level.query(params![level, self.now, self.head.end, self.room()])?;
        while let Some(row) = rows.next()? {
            let (point, attempts, is_suspect): (u64, u32, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            // A point that ends its worker goes alone, so that it takes no others with it.
            self.is_closed = is_suspect;
            if is_suspect && !self.leases.is_empty() {
                break;
            }
            self.take(point, attempts + 1);
            self.waited += 1;
        }
        Ok(())
    }

    /// Takes points at the cursor. It steps over rows that priorities made there.
    fn take_fresh(&mut self) -> rusqlite::Result<()> {
        let mut early = self.change.prepare_cached(EARLY)?;
        let mut rows = early.query(params![self.head.next])?;
        let mut row: Option<u64> = None;
        while self.head.next < self.head.end && self.room() > 0 {
            if self.head.early > 0 && row.is_none_or(|row| row < self.head.next) {
                row = rows.next()?.map(|row| row.get(0)).transpose()?;
            }
            if row == Some(self.head.next) {
                self.head.early -= 1;
            } else {
                self.take(self.head.next, 1);
            }
            self.head.next += 1;
        }
        Ok(())
    }

    /// Writes down who has the points.
    fn keep(self, worker: u32) -> rusqlite::Result<Vec<Lease>> {
        let Self { change, now, head, leases, waited, .. } = self;
        let mut put = change.prepare_cached(
            "INSERT INTO point (point, state, attempts, fence, worker, since) VALUES (?1, 'running', ?2, ?3, ?4, ?5)
             ON CONFLICT (point) DO UPDATE SET state = 'running', attempts = ?2, fence = ?3, worker = ?4, since = ?5",
        )?;
        for lease in &leases {
            put.execute(params![lease.point, lease.attempt, lease.fence, worker, now])?;
        }
        // The cursor moves also where it found nothing, so that no row is stepped over twice.
        change
            .prepare_cached(
                "UPDATE campaign SET fence = ?1, next = ?2, early = ?3, waiting = waiting - ?4, running = running + ?5
                 WHERE fence <> ?1 OR next <> ?2",
            )?
            .execute(params![head.fence, head.next, head.early, waited, leases.len()])?;
        Ok(leases)
    }
}

impl Sqlite {
    /// As [`Store::prioritise`](crate::store::Store::prioritise).
    pub(super) fn set_priority(&mut self, points: &[u64], priority: i32) -> Result<u64, StoreError> {
        self.change(|change| {
            let row = format!("SELECT {CHOSEN}, next FROM campaign");
            let (end, next): (u64, u64) = change.query_row(&row, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut state = change.prepare_cached("SELECT state = 'done' FROM point WHERE point = ?1")?;
            let mut set = change.prepare_cached("UPDATE point SET priority = ?2 WHERE point = ?1")?;
            let mut add = change.prepare_cached(
                "INSERT INTO point (point, state, attempts, fence, worker, priority) VALUES (?1, 'waiting', 0, 0, 0, ?2)",
            )?;
            let (mut count, mut added) = (0, 0);
            for &point in points.iter().filter(|point| **point < end) {
                match state.query_row(params![point], |row| row.get(0)).optional()? {
                    Some(true) => continue,
                    Some(false) => drop(set.execute(params![point, priority])?),
                    // Points without a row have priority 0.
                    None if priority == 0 => {}
                    None => {
                        debug_assert!(point >= next, "each point before the cursor has a row");
                        added += add.execute(params![point, priority])?;
                    }
                }
                count += 1;
            }
            change.execute("UPDATE campaign SET early = early + ?1, waiting = waiting + ?1", params![added])?;
            Ok(count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plans of all queries that a lease needs: none looks at more rows than it gives out.
    #[test]
    fn no_lease_scans_the_points() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::create(&folder.path().join("campaign.db"), 10).unwrap();
        for query in [LEVEL, OF_LEVEL, EARLY, DUE, &head()] {
            let mut plan = store.connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let values = vec![0_i64; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            let is_quick = |step: &String| {
                let looks_up = step.starts_with("SEARCH point USING");
                looks_up || step == "SCAN campaign" || step.starts_with("CORRELATED SCALAR SUBQUERY")
            };
            assert!(!steps.is_empty() && steps.iter().all(is_quick), "{query}: {steps:#?}");
        }
    }
}

//! Sums over points and results, for people who watch.

use rusqlite::Row;
use serde::Serialize;

use super::Sqlite;
use crate::store::{FailureKind, StoreError};

/// The share of one worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tally {
    /// Its number.
    pub worker: u32,
    /// Results that it gave.
    pub done: u64,
    /// Seconds of the attempts that gave them.
    pub seconds: f64,
    /// Points that failed at it with their last attempt.
    pub failed: u64,
    /// The point that it has now; the lowest, where it has several.
    pub point: Option<u64>,
}

/// How many points failed in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// The kind of failure.
    pub failure: FailureKind,
    /// Points whose attempts all failed, the last one so.
    pub points: u64,
}

const WORKERS: &str = "
    SELECT worker, sum(done), sum(seconds), sum(failed), min(point) FROM (
        SELECT worker, count(*) AS done, sum(seconds) AS seconds, 0 AS failed, NULL AS point FROM result GROUP BY worker
        UNION ALL
        SELECT worker, 0, 0.0, count(*), NULL FROM point WHERE state = 'failed' GROUP BY worker
        UNION ALL
        SELECT worker, 0, 0.0, 0, min(point) FROM point WHERE state = 'running' GROUP BY worker
    ) GROUP BY worker ORDER BY worker";

impl Sqlite {
    /// All workers that had points, by number. It looks at all results.
    pub fn workers(&self) -> Result<Vec<Tally>, StoreError> {
        self.list(WORKERS, |row| {
            let (done, seconds, failed) = (row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Tally { worker: row.get(0)?, done, seconds, failed, point: row.get(4)? })
        })
    }

    /// Points that failed, by the kind of failure.
    pub fn failure_kinds(&self) -> Result<Vec<Failures>, StoreError> {
        let failures = "SELECT failure, count(*) FROM point WHERE state = 'failed' GROUP BY failure ORDER BY 2 DESC";
        self.list(failures, |row| Ok(Failures { failure: row.get(0)?, points: row.get(1)? }))
    }

    fn list<T>(&self, query: &str, read: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Result<Vec<T>, StoreError> {
        self.read(|connection| connection.prepare_cached(query)?.query_map([], read)?.collect())
    }
}

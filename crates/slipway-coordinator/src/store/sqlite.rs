//! The queue in SQLite.
//!
//! The write-ahead log lets readers go on while the coordinator writes. `synchronous = NORMAL` syncs the log at checkpoints
//! and not at each commit: a crash of the machine may undo the last commits, never a part of one. Points whose result is
//! undone run again, so no result is lost (<https://sqlite.org/pragma.html#pragma_synchronous>).

mod tally;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};

mod history;
mod lease;

use super::{
    Attempt, Counts, FailureKind, Fence, Filter, Lease, Outcome, Point, PointState, Recorded, Row, Rules, Spent, State,
    Stint, Store, StoreError, Usage,
};

/// `PRAGMA application_id`: "Slip", so that `file` and other programs tell the database from others.
const APPLICATION: i32 = 0x536c_6970;
/// `PRAGMA user_version`: of the tables.
const VERSION: i32 = 4;
/// Time to wait for another process's write.
const PATIENCE: Duration = Duration::from_secs(10);
/// Results that tell the present rate.
const LATEST: u32 = 200;

pub use tally::{Failures, Tally};

const TABLES: &str = concat!(include_str!("tables.sql"), include_str!("history.sql"));

/// A campaign's queue in an SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    connection: Connection,
    /// The wall clock's time at which this process's run began, in seconds since 1970.
    began: f64,
}

impl Sqlite {
    /// Makes the database of a campaign with so many points, or opens the one that is there.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] where the file is no database of this version of Slipway, or is damaged.
    pub fn create(path: &Path, points: u64) -> Result<Self, StoreError> {
        let mut store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        store.change(|change| {
            let version: i32 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
            let tables: i64 = change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if version == 0 && tables == 0 {
                change.execute_batch(TABLES)?;
                change.pragma_update(None, "application_id", APPLICATION)?;
                change.pragma_update(None, "user_version", VERSION)?;
                change.execute("INSERT INTO campaign (points) VALUES (?1)", params![points])?;
            }
            Ok(())
        })?;
        store.check()?;
        store.look_through()?;
        Ok(store)
    }

    /// Opens the database of a campaign that was run before. Damage shows when a part is read: looking through all of it
    /// takes seconds where there are a million results.
    ///
    /// # Errors
    /// As [`create`](Self::create), and where there is none.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        store.check()?;
        Ok(store)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let failed = |source| failure(path, source);
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        Ok(Self { path: path.to_owned(), connection, began: 0.0 })
    }

    /// Refuses a database that is not ours.
    fn check(&self) -> Result<(), StoreError> {
        let value = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let found = (value("application_id").map_err(self.failed())?, value("user_version").map_err(self.failed())?);
        if found != (APPLICATION, VERSION) {
            let why = match found {
                (APPLICATION, version) => format!("it has version {version}, and this Slipway reads version {VERSION}"),
                _ => "it is another program's".to_owned(),
            };
            return Err(unfit(&self.path, why));
        }
        Ok(())
    }

    /// Refuses a damaged database.
    fn look_through(&self) -> Result<(), StoreError> {
        let damage: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(self.failed())?;
        if damage == "ok" { Ok(()) } else { Err(unfit(&self.path, damage)) }
    }

    /// Writes a copy of the database beside it, in place of the copy before.
    ///
    /// # Errors
    /// Where the disk is full, for example; the copy before stays then.
    pub fn back_up(&self) -> Result<(), StoreError> {
        let (backup, fresh) = (backup(&self.path), self.path.with_extension("db.new"));
        let _ = std::fs::remove_file(&fresh);
        let text = fresh.to_string_lossy().into_owned();
        self.connection.execute("VACUUM INTO ?1", params![text]).map_err(self.failed())?;
        std::fs::rename(&fresh, backup)
            .map_err(|error| self.failed()(rusqlite::Error::ToSqlConversionFailure(error.into())))
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        |source| failure(&self.path, source)
    }

    /// All of a change, or nothing.
    fn change<T>(&mut self, action: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let run = || {
            let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let outcome = action(&change)?;
            change.commit()?;
            Ok(outcome)
        };
        run().map_err(|source| failure(&self.path, source))
    }

    fn read<T>(&self, action: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        action(&self.connection).map_err(self.failed())
    }

    /// Results that meet a condition.
    fn rows(&self, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<Row>, StoreError> {
        let columns = "seq, point, worker, attempts, seconds, cpu_seconds, peak_bytes, at, record";
        let rows = self.read(|read| {
            let mut rows = read.prepare_cached(&format!("SELECT {columns} FROM result WHERE {condition}"))?;
            let rows = rows.query_map(values, |row| {
                let usage = Usage { seconds: row.get(4)?, cpu_seconds: row.get(5)?, peak_bytes: row.get(6)? };
                let head = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((head, usage, row.get(7)?, row.get::<_, String>(8)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let row = |((seq, point, worker, attempts), usage, at, record): (_, _, _, String)| {
            let record = serde_json::from_str(&record).map_err(|source| StoreError::Record { point, source })?;
            Ok(Row { seq, point, worker, attempts, usage, at, record })
        };
        rows.into_iter().map(row).collect()
    }
}

/// The next step, where the error has one.
pub(super) fn hint(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull};
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => {
            "\nHint: another program holds it; `fuser -v` with its path names that one"
        }
        Some(DiskFull) => "\nHint: make room, then `slipway campaign run` goes on",
        _ => "",
    }
}

fn backup(path: &Path) -> PathBuf {
    path.with_extension("db.backup")
}

fn failure(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => unfit(path, source.to_string()),
        _ => StoreError::Database { path: path.to_owned(), source },
    }
}

fn unfit(path: &Path, why: String) -> StoreError {
    let backup = backup(path);
    let backup = if backup.exists() { backup.display().to_string() } else { "not there".to_owned() };
    StoreError::Unfit { path: path.to_owned(), why, backup }
}

impl Store for Sqlite {
    fn state(&self) -> Result<State, StoreError> {
        self.read(|read| read.query_row("SELECT state FROM campaign", [], |row| row.get(0)))
    }

    fn set_state(&mut self, state: State) -> Result<(), StoreError> {
        self.change(|change| change.execute("UPDATE campaign SET state = ?1", params![state]).map(drop))
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        self.read(|read| {
            let columns = "SELECT points, next + early, waiting, running, done, failed FROM campaign";
            read.query_row(columns, [], |row| {
                let (points, rows): (u64, u64) = (row.get(0)?, row.get(1)?);
                Ok(Counts {
                    points,
                    waiting: points.saturating_sub(rows) + row.get::<_, u64>(2)?,
                    running: row.get(3)?,
                    done: row.get(4)?,
                    failed: row.get(5)?,
                })
            })
        })
    }

    fn extend(&mut self, points: u64) -> Result<(), StoreError> {
        self.change(|change| change.execute("UPDATE campaign SET points = max(points, ?1)", params![points]).map(drop))
    }

    fn lead(&mut self, points: u64) -> Result<(), StoreError> {
        self.change(|change| change.execute("UPDATE campaign SET lead = ?1", params![points]).map(drop))
    }

    fn stopper(&self) -> Result<Option<Point>, StoreError> {
        self.read(|read| {
            let failed =
                format!("SELECT {POINT} FROM point WHERE point < (SELECT lead FROM campaign) AND state = 'failed'");
            read.prepare_cached(&failed)?.query_row([], point).optional()
        })
    }

    fn lease(&mut self, worker: u32, want: usize, now: f64) -> Result<Vec<Lease>, StoreError> {
        self.change(|change| lease::lease(change, worker, want, now))
    }

    fn prioritise(&mut self, points: &[u64], priority: i32) -> Result<u64, StoreError> {
        self.set_priority(points, priority)
    }

    fn due(&self, now: f64) -> Result<Option<f64>, StoreError> {
        self.read(|read| read.prepare_cached(lease::DUE)?.query_row(params![now], |row| row.get(0)))
    }

    fn record(&mut self, attempts: &[Attempt], rules: Rules, now: f64) -> Result<Vec<Recorded>, StoreError> {
        let clock = Clock { began: self.began, now };
        self.change(|change| attempts.iter().map(|attempt| record(change, attempt, rules, clock)).collect())
    }

    fn lost(&mut self, worker: u32, why: &str, rules: Rules, now: f64) -> Result<u64, StoreError> {
        let had = self.read(|read| {
            let mut had = read.prepare_cached(
                "SELECT point, fence, since FROM point WHERE state = 'running' AND worker = ?1 ORDER BY fence",
            )?;
            let had = had.query_map(params![worker], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            had.collect::<rusqlite::Result<Vec<(u64, Fence, f64)>>>()
        })?;
        let Some(&(_, _, since)) = had.first() else { return Ok(0) };
        let clock = Clock { began: self.began, now };
        // The points of a batch ran one after the other: their time is lost once.
        let mut seconds = (now - since).max(0.0);
        self.change(|change| {
            for &(point, fence, _) in &had {
                let message = format!("worker {worker} {why}");
                let outcome = Outcome::Failed { kind: FailureKind::LostWorker, message, manifest: None };
                let usage = Usage { seconds: std::mem::take(&mut seconds), ..Usage::default() };
                record(change, &Attempt { point, fence, worker, outcome, usage }, rules, clock)?;
            }
            Ok(had.len() as u64)
        })
    }

    fn recover(&mut self) -> Result<u64, StoreError> {
        self.change(|change| {
            // The caller's clock starts anew, so each pause ends.
            change.execute("UPDATE point SET due = 0 WHERE state = 'waiting' AND due > 0", [])?;
            change.execute(
                "UPDATE campaign SET lost = lost + coalesce((
                     SELECT sum(max(0, (SELECT elapsed FROM stint ORDER BY stint DESC LIMIT 1) - since))
                     FROM (SELECT min(since) AS since FROM point WHERE state = 'running' GROUP BY worker)), 0)",
                [],
            )?;
            let back = change.execute(
                "UPDATE point SET state = 'waiting', attempts = attempts - 1, due = 0 WHERE state = 'running'",
                [],
            )? as u64;
            change.execute("UPDATE campaign SET running = running - ?1, waiting = waiting + ?1", params![back])?;
            Ok(back)
        })
    }

    fn begin(&mut self, began: f64) -> Result<(), StoreError> {
        self.began = began;
        self.change(|change| change.execute("INSERT INTO stint (began) VALUES (?1)", params![began]).map(drop))
    }

    fn note(&mut self, elapsed: f64, alive: f64, most: u32) -> Result<(), StoreError> {
        self.change(|change| {
            let last =
                "UPDATE stint SET elapsed = ?1, alive = ?2, most = ?3 WHERE stint = (SELECT max(stint) FROM stint)";
            change.prepare_cached(last)?.execute(params![elapsed, alive, most]).map(drop)
        })
    }

    fn stints(&self) -> Result<Vec<Stint>, StoreError> {
        self.read(|read| {
            let mut rows = read.prepare("SELECT began, elapsed, alive, most FROM stint ORDER BY stint")?;
            let rows = rows.query_map([], |row| {
                Ok(Stint { began: row.get(0)?, elapsed: row.get(1)?, alive: row.get(2)?, most: row.get(3)? })
            })?;
            rows.collect()
        })
    }

    fn redo(&mut self, points: &[u64]) -> Result<u64, StoreError> {
        self.change(|change| {
            let mut again = 0;
            for point in points {
                if change.execute("DELETE FROM result WHERE point = ?1", params![point])? == 0 {
                    continue;
                }
                change.execute(
                    "UPDATE point SET state = 'waiting', attempts = 0, due = 0 WHERE point = ?1",
                    params![point],
                )?;
                change.execute("UPDATE campaign SET done = done - 1, waiting = waiting + 1", [])?;
                again += 1;
            }
            Ok(again)
        })
    }

    fn rate(&self) -> Result<Option<f64>, StoreError> {
        self.read(|read| {
            // Of the run that is or was the last: between runs, no result comes. Where the clock was set back, results of
            // the run before are in the future; those of this run are at most a pulse after its last note.
            let latest = "SELECT count(*), min(at), max(at) FROM (SELECT at FROM result,
                 (SELECT began, elapsed FROM stint ORDER BY stint DESC LIMIT 1)
                 WHERE at BETWEEN began AND began + elapsed + 2 ORDER BY seq DESC LIMIT ?1)";
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let (count, first, last): (u32, Option<f64>, Option<f64>) = read.query_row(latest, params![LATEST], row)?;
            let spread = last.zip(first).map_or(0.0, |(last, first)| last - first);
            Ok((count > 1 && spread > 0.0).then(|| f64::from(count - 1) / spread))
        })
    }

    fn retry(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        self.change(|change| {
            let mut again = 0;
            let mut put = change.prepare(
                "UPDATE point SET state = 'waiting', attempts = 0, due = 0
                 WHERE state = 'failed' AND (?1 IS NULL OR failure = ?1) AND (?2 IS NULL OR point = ?2)",
            )?;
            if filter.points.is_empty() {
                again += put.execute(params![filter.failure, None::<u64>])?;
            }
            for point in &filter.points {
                again += put.execute(params![filter.failure, point])?;
            }
            change.execute("UPDATE campaign SET failed = failed - ?1, waiting = waiting + ?1", params![again])?;
            Ok(again as u64)
        })
    }

    fn points(&self, filter: &Filter, from: u64, most: usize) -> Result<Vec<Point>, StoreError> {
        // The state stands in the text, since an index of one state's rows is of no use for a parameter.
        let state = match filter.state {
            Some(PointState::Waiting) => "state = 'waiting'",
            Some(PointState::Running) => "state = 'running'",
            Some(PointState::Done) => "state = 'done'",
            Some(PointState::Failed) => "state = 'failed'",
            None => "true",
        };
        self.read(|read| {
            let mut rows = read.prepare_cached(&format!(
                "SELECT {POINT} FROM point WHERE point >= ?1 AND {state} AND (?2 IS NULL OR failure = ?2)
                 ORDER BY point LIMIT ?3"
            ))?;
            let rows = rows.query_map(params![from, filter.failure, most], point)?;
            let wanted = |point: &Point| filter.points.is_empty() || filter.points.contains(&point.point);
            rows.filter(|row| row.as_ref().map_or(true, wanted)).collect()
        })
    }

    fn failures(&self, most: usize) -> Result<Vec<Point>, StoreError> {
        self.read(|read| {
            let latest = format!("SELECT {POINT} FROM point WHERE failure IS NOT NULL ORDER BY fence DESC LIMIT ?1");
            read.prepare_cached(&latest)?.query_map(params![most], point)?.collect()
        })
    }

    fn kinds(&self) -> Result<Vec<(FailureKind, u64)>, StoreError> {
        self.read(|read| {
            let kinds = "SELECT failure, count(*) FROM point WHERE state = 'failed' GROUP BY failure ORDER BY 2 DESC";
            read.prepare(kinds)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    fn busy(&self) -> Result<u32, StoreError> {
        let busy = "SELECT count(DISTINCT worker) FROM point WHERE state = 'running'";
        self.read(|read| read.query_row(busy, [], |row| row.get(0)))
    }

    fn results(&self, after: u64, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows("seq > ?1 ORDER BY seq LIMIT ?2", params![after, most])
    }

    fn count_results(&self, first: u64, last: u64) -> Result<u64, StoreError> {
        let last = last.min(i64::MAX.unsigned_abs());
        self.read(|read| {
            let count = "SELECT count(*) FROM result WHERE seq BETWEEN ?1 AND ?2";
            read.prepare_cached(count)?.query_row(params![first, last], |row| row.get(0))
        })
    }

    fn result(&self, point: u64) -> Result<Option<Row>, StoreError> {
        Ok(self.rows("point = ?1", params![point])?.pop())
    }

    fn spent(&self) -> Result<Spent, StoreError> {
        self.read(|read| {
            let columns = "SELECT used, lost, alive, fixed FROM campaign, (SELECT coalesce(sum(alive), 0) AS alive,
                 coalesce(sum(most * elapsed), 0) AS fixed FROM stint)";
            read.query_row(columns, [], |row| {
                let (used, lost): (f64, f64) = (row.get(0)?, row.get(1)?);
                Ok(Spent { used, lost, idle: (row.get::<_, f64>(2)? - used - lost).max(0.0), fixed: row.get(3)? })
            })
        })
    }

    fn verify(&self) -> Result<Vec<String>, StoreError> {
        self.look_through()?;
        self.read(|read| {
            let mut faults = Vec::new();
            let mut checks = read.prepare("SELECT fault, count FROM faults WHERE count > 0")?;
            for row in checks.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?)))? {
                let (fault, count) = row?;
                faults.push(format!("{fault}: {count}"));
            }
            Ok(faults)
        })
    }
}

/// Whether points before `lead` lack a result: only those are given out then.
const IS_LED: &str = "lead > (SELECT count(*) FROM point WHERE point < lead AND state = 'done')";
/// The end of the points that may ever be given out: of those that a search has chosen, where there is one.
const CHOSEN: &str = "min(points, coalesce(open, points))";

/// Columns of a [`Point`].
const POINT: &str = "point, state, attempts, worker, failure, message, manifest, priority";

fn point(row: &rusqlite::Row<'_>) -> rusqlite::Result<Point> {
    Ok(Point {
        point: row.get(0)?,
        state: row.get(1)?,
        attempts: row.get(2)?,
        worker: row.get(3)?,
        failure: row.get(4)?,
        message: row.get(5)?,
        manifest: row.get::<_, Option<String>>(6)?.and_then(|digest| digest.parse().ok()),
        priority: row.get(7)?,
    })
}

/// The time of a change: the wall clock's at the begin of the run, and seconds since on a clock that nobody steps.
#[derive(Clone, Copy)]
struct Clock {
    began: f64,
    now: f64,
}

/// Records the end of one attempt.
fn record(change: &Transaction<'_>, attempt: &Attempt, rules: Rules, clock: Clock) -> rusqlite::Result<Recorded> {
    let Attempt { point, fence, worker, outcome, usage } = attempt;
    let attempts: Option<u32> = change
        .prepare_cached(
            "SELECT attempts FROM point WHERE point = ?1 AND fence = ?2 AND worker = ?3 AND state = 'running'",
        )?
        .query_row(params![point, fence, worker], |row| row.get(0))
        .optional()?;
    let Some(attempts) = attempts else { return Ok(Recorded::Stale) };
    let Usage { seconds, cpu_seconds, peak_bytes } = usage;
    match outcome {
        Outcome::Done(record) => {
            let record =
                serde_json::to_string(record).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            change
                .prepare_cached(
                    "INSERT INTO result (point, worker, attempts, seconds, cpu_seconds, peak_bytes, at, record)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    point,
                    worker,
                    attempts,
                    seconds,
                    cpu_seconds,
                    peak_bytes,
                    clock.began + clock.now,
                    record
                ])?;
            change
                .prepare_cached(
                    "UPDATE point SET state = 'done', failure = NULL, message = NULL, manifest = NULL WHERE point = ?1",
                )?
                .execute(params![point])?;
            change
                .prepare_cached("UPDATE campaign SET running = running - 1, done = done + 1, used = used + ?1")?
                .execute(params![seconds])?;
            Ok(Recorded::Done)
        }
        Outcome::Failed { kind, message, manifest } => {
            let again = attempts < rules.most;
            let due = clock.now + rules.pause * f64::from(2_u32.saturating_pow(attempts.saturating_sub(1).min(16)));
            let (state, due) = if again { (PointState::Waiting, due) } else { (PointState::Failed, 0.0) };
            change
                .prepare_cached(
                    "UPDATE point SET state = ?2, due = ?3, failure = ?4, message = ?5, manifest = ?6 WHERE point = ?1",
                )?
                .execute(params![point, state, due, kind, message, manifest.map(|digest| digest.to_string())])?;
            change
                .prepare_cached(
                    "UPDATE campaign SET running = running - 1, waiting = waiting + ?1, failed = failed + 1 - ?1,
                     lost = lost + ?2",
                )?
                .execute(params![again, seconds])?;
            Ok(if again { Recorded::Again } else { Recorded::Failed })
        }
    }
}

/// Enums stand in tables as the words that they have in JSON.
macro_rules! words {
    ($($type:ty),*) => {$(
        impl ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                match serde_json::to_value(self) {
                    Ok(serde_json::Value::String(word)) => Ok(word.into()),
                    other => unreachable!("a word, not {other:?}"),
                }
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                serde_json::from_value(value.as_str()?.into()).map_err(|error| FromSqlError::Other(error.into()))
            }
        }
    )*};
}

words!(State, PointState, FailureKind);

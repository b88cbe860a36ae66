//! The history of a search in SQLite.

use std::ops::Range;

use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_campaign::value::Value;

use super::{CHOSEN, IS_LED, Sqlite};
use crate::store::StoreError;
use crate::store::history::{Batch, History, Learnt, Step};

impl History for Sqlite {
    fn chosen(&self) -> Result<u64, StoreError> {
        self.read(|read| read.query_row(&format!("SELECT {CHOSEN} FROM campaign"), [], |row| row.get(0)))
    }

    fn hold(&mut self, baseline: Option<&[Value]>) -> Result<(), StoreError> {
        self.change(|change| {
            if let Some(values) = baseline {
                let put = "INSERT OR IGNORE INTO chosen (point, coordinates, variables) VALUES (0, '[]', ?1)";
                change.execute(put, params![text(&values)?])?;
            }
            let open = "UPDATE campaign SET open = (SELECT coalesce(max(point) + 1, 0) FROM chosen)";
            change.execute(open, []).map(drop)
        })
    }

    fn batch(&self, number: u64) -> Result<Option<Batch>, StoreError> {
        self.read(|read| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?..row.get(1)?, row.get::<_, Option<String>>(2)?));
            let found = read
                .prepare_cached("SELECT first, first + count, scores FROM batch WHERE batch = ?1")?
                .query_row(params![number], row)
                .optional()?;
            let Some((points, scores)) = found else { return Ok(None) };
            let mut rows =
                read.prepare_cached("SELECT coordinates FROM chosen WHERE point >= ?1 AND point < ?2 ORDER BY point")?;
            let rows = rows.query_map(params![points.start, points.end], |row| row.get::<_, String>(0))?;
            let coordinates = rows.map(|text| parsed(&text?)).collect::<rusqlite::Result<_>>()?;
            let scores = scores.map(|text| parsed(&text)).transpose()?;
            Ok(Some(Batch { points, coordinates, scores }))
        })
    }

    fn choose(&mut self, points: &[(Vec<f64>, Vec<Value>)]) -> Result<Batch, StoreError> {
        self.change(|change| {
            let (open, number): (u64, u64) =
                change.query_row("SELECT open, (SELECT count(*) FROM batch) FROM campaign", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            let mut put =
                change.prepare_cached("INSERT INTO chosen (point, coordinates, variables) VALUES (?1, ?2, ?3)")?;
            for (point, (coordinates, values)) in (open..).zip(points) {
                put.execute(params![point, text(coordinates)?, text(values)?])?;
            }
            let end = open + points.len() as u64;
            change.execute(
                "INSERT INTO batch (batch, first, count) VALUES (?1, ?2, ?3)",
                params![number, open, points.len()],
            )?;
            change.execute("UPDATE campaign SET open = ?1", params![end])?;
            let coordinates = points.iter().map(|(coordinates, _)| coordinates.clone()).collect();
            Ok(Batch { points: open..end, coordinates, scores: None })
        })
    }

    fn pending(&self, points: &Range<u64>) -> Result<u64, StoreError> {
        let ended: u64 = self.read(|read| {
            let ended = "SELECT count(*) FROM point WHERE point >= ?1 AND point < ?2 AND state IN ('done', 'failed')";
            read.prepare_cached(ended)?.query_row(params![points.start, points.end], |row| row.get(0))
        })?;
        Ok((points.end - points.start).saturating_sub(ended))
    }

    fn learn(&mut self, batch: u64, scores: &[Learnt], least: Option<f64>) -> Result<(), StoreError> {
        let failed = scores.iter().filter(|learnt| learnt.failed).count();
        self.change(|change| {
            change
                .execute(
                    "UPDATE batch SET scores = ?2, failed = ?3, least = ?4 WHERE batch = ?1",
                    params![batch, text(&scores)?, failed, least],
                )
                .map(drop)
        })
    }

    fn measure(&mut self, batch: u64, volume: Option<f64>) -> Result<(), StoreError> {
        self.change(|change| {
            change.execute("UPDATE batch SET volume = ?2, told = 1 WHERE batch = ?1", params![batch, volume]).map(drop)
        })
    }

    fn exhaust(&mut self) -> Result<(), StoreError> {
        self.change(|change| change.execute("UPDATE campaign SET points = min(points, open)", []).map(drop))
    }

    fn values(&self, point: u64) -> Result<Option<Vec<Value>>, StoreError> {
        self.read(|read| {
            let mut row = read.prepare_cached("SELECT variables FROM chosen WHERE point = ?1")?;
            let found = row.query_row(params![point], |row| row.get::<_, String>(0)).optional()?;
            found.map(|text| parsed(&text)).transpose()
        })
    }

    fn steps(&self) -> Result<Vec<Step>, StoreError> {
        self.learnt("ORDER BY batch")
    }

    fn step(&self) -> Result<Option<Step>, StoreError> {
        Ok(self.learnt("ORDER BY batch DESC LIMIT 1")?.pop())
    }

    fn ready(&self) -> Result<u64, StoreError> {
        self.read(|read| {
            let ready = format!(
                "SELECT CASE WHEN {IS_LED}
                 THEN lead - (SELECT count(*) FROM point WHERE point < lead AND state <> 'waiting')
                 ELSE waiting + max(0, {CHOSEN} - next - early) END FROM campaign"
            );
            read.prepare_cached(&ready)?.query_row([], |row| row.get(0))
        })
    }
}

impl Sqlite {
    fn learnt(&self, order: &str) -> Result<Vec<Step>, StoreError> {
        self.read(|read| {
            let columns = "SELECT batch, count, failed, least, volume FROM batch WHERE told = 1";
            let mut rows = read.prepare_cached(&format!("{columns} {order}"))?;
            let rows = rows.query_map([], |row| {
                let (batch, points, failed) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Step { batch, points, failed, least: row.get(3)?, volume: row.get(4)? })
            })?;
            rows.collect()
        })
    }
}

fn text(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Columns of the coordinator's own hold what it wrote.
fn parsed<T: DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    let failed = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
    };
    serde_json::from_str(text).map_err(failed)
}

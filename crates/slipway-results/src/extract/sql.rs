//! Queries of SQLite files.
//!
//! The file is hostile, so SQLite gets a copy of its bytes and no path: it then opens no journal and takes no lock. The
//! settings are those of <https://sqlite.org/security.html>.

use std::fs::File;
use std::io::{Cursor, Read};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, MAIN_DB};
use slipway_campaign::value::Value;

use super::{Found, LONGEST, bounded};

/// Largest file in bytes: it is held in memory.
const MOST: u64 = 512 << 20;
/// Longest text or blob in bytes that a query may touch.
const CELL: i32 = 16 << 20;
/// Most values of a series.
const LONGEST_SERIES: usize = 16 << 20;
/// Steps of SQLite's machine between two looks at their number.
const STRIDE: i32 = 1 << 16;
/// Most steps of one query: some seconds. Views in a hostile file could go on for ever.
const STEPS: u64 = 1 << 29;
/// File format (<https://sqlite.org/fileformat.html>): magic, and the versions that say whether there is a WAL.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const VERSIONS: std::ops::Range<usize> = 18..20;

/// A query, and the output that it is for.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) output: usize,
    pub(super) text: String,
    /// Whether all rows are wanted: a time series.
    pub(super) is_series: bool,
}

/// Refuses a query that no database could run.
pub(super) fn check(query: &str) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    match Connection::open_in_memory().map_err(failed)?.prepare(query) {
        Ok(statement) if !statement.readonly() => {
            Err(format!("the query `{query}` changes the database\nHint: write a `select`"))
        }
        Ok(_) => Ok(()),
        // Tables are not known yet; syntax is.
        Err(error) => match error.to_string() {
            what if what.contains("syntax error") || what.contains("incomplete input") => Err(what),
            _ => Ok(()),
        },
    }
}

/// Runs the queries of one file.
pub(super) fn read(file: File, size: u64, queries: &[Query], found: &mut Found<'_>) {
    let mut database = match open(file, size) {
        Ok(database) => database,
        Err(what) => return queries.iter().for_each(|query| found.set(query.output, Err::<Value, _>(&what))),
    };
    for query in queries {
        if query.is_series {
            match column(&mut database, &query.text) {
                Ok(values) => found.set_series(query.output, values),
                Err(what) => found.set(query.output, Err::<Value, _>(what)),
            }
        } else {
            found.set(query.output, first(&mut database, &query.text));
        }
    }
}

fn open(mut file: File, size: u64) -> Result<Connection, String> {
    let mut head = [0; 100];
    let is_database = file.read_exact(&mut head).is_ok() && head.starts_with(MAGIC);
    if !is_database {
        return Err("it is no SQLite database".to_owned());
    }
    if size > MOST {
        return Err(format!("it is larger than {} MiB", MOST >> 20));
    }
    // As in `sqlite3_deserialize`: bytes in memory have no WAL beside them.
    head[VERSIONS].fill(1);
    let database = (|| {
        let mut database = Connection::open_in_memory()?;
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        database.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        database.set_limit(Limit::SQLITE_LIMIT_LENGTH, CELL)?;
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        database.deserialize_read_exact(MAIN_DB, Cursor::new(head).chain(file), length, true)?;
        database.pragma_update(None, "cell_size_check", true)?;
        Ok(database)
    })();
    database.map_err(|error: Error| error.to_string())
}

/// Sets a bound to the steps of the next query.
fn bound(database: &mut Connection) -> Result<(), String> {
    let mut left = STEPS / u64::from(STRIDE.unsigned_abs());
    let bounded_steps = move || {
        left -= 1;
        left == 0
    };
    database.progress_handler(STRIDE, Some(bounded_steps)).map_err(|error| error.to_string())
}

/// The first value of each row, all of them numbers.
fn column(database: &mut Connection, query: &str) -> Result<Vec<f64>, String> {
    bound(database)?;
    let failed = |error: Error| error.to_string();
    let mut statement = database.prepare(query).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut values = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        if values.len() == LONGEST_SERIES {
            return Err(format!("the query selects more than {LONGEST_SERIES} rows"));
        }
        let value = plain(row.get_ref(0).map_err(failed)?)?;
        values.push(value.number().ok_or("the query selects a text among the numbers")?);
    }
    if values.is_empty() { Err("the query selects no row".to_owned()) } else { Ok(values) }
}

/// The first value of the first row.
fn first(database: &mut Connection, query: &str) -> Result<Value, String> {
    bound(database)?;
    let value = database.query_row(query, [], |row| Ok(plain(row.get_ref(0)?)));
    value.map_err(|error| match error {
        Error::QueryReturnedNoRows => "the query selects no row".to_owned(),
        error => error.to_string(),
    })?
}

fn plain(value: ValueRef<'_>) -> Result<Value, String> {
    match value {
        ValueRef::Integer(number) => Ok(Value::Integer(number)),
        ValueRef::Real(number) if number.is_finite() => Ok(Value::Number(number)),
        ValueRef::Real(number) => Err(format!("`{number}` is not a finite number")),
        ValueRef::Text(text) if text.len() > LONGEST => Err(format!("the value has {} bytes", text.len())),
        ValueRef::Text(text) => bounded(std::str::from_utf8(text).map_err(|_| "the value is no UTF-8")?),
        ValueRef::Null => Err("the query selects null".to_owned()),
        ValueRef::Blob(_) => Err("the query selects a blob, not a value".to_owned()),
    }
}

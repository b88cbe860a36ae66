//! Points from a CSV or Parquet file.

use std::path::{Path, PathBuf};

use slipway_campaign::design::Rows;
use slipway_campaign::model::Variable;
use slipway_campaign::value::Value;

use super::tables::{self, TablesError};

/// Most rows: they are in memory, of each worker too.
const MOST: usize = 1_000_000;

/// The reason why a list of points cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file.
    #[error("read the list of points {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: csv::Error,
    },
    /// A Parquet file.
    #[error(transparent)]
    Parquet(#[from] TablesError),
    /// Too many rows.
    #[error("read the list of points {}: it has more than {MOST} rows", .0.display())]
    Long(PathBuf),
}

/// Reads a file with a column for each variable: CSV with a header of names, or Parquet.
pub(super) fn read(path: &Path, variables: &[Variable]) -> Result<Rows, ListError> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
        return Ok(tables::list(path, variables.iter().map(|variable| variable.name.as_str()))?);
    }
    let failed = |source| ListError::File { path: path.to_owned(), source };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(failed)?;
    let columns = reader.headers().map_err(failed)?.iter().map(str::to_owned).collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        if rows.len() == MOST {
            return Err(ListError::Long(path.to_owned()));
        }
        rows.push(record.map_err(failed)?.iter().map(value).collect());
    }
    Ok(Rows { columns, rows })
}

/// The value that a cell is: a whole number, a number, or a text.
fn value(cell: &str) -> Value {
    let number = || cell.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Number);
    let whole = cell.parse().ok().map(Value::Integer);
    let truth = || cell.parse().ok().map(Value::Bool);
    whole.or_else(number).or_else(truth).unwrap_or_else(|| Value::Text(cell.to_owned()))
}

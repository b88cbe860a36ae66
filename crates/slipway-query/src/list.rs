//! Lists of points from Parquet files.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use slipway_campaign::design::Rows;
use slipway_campaign::value::Value;

use crate::error::QueryError;

/// Most rows: they are in memory, of each worker too.
const MOST: usize = 1_000_000;

/// Reads the columns of these names, as far as the file has them.
///
/// # Errors
/// Where the file is no Parquet file, has too many rows, an empty cell, or a value that no variable can have.
pub fn read(path: &Path, names: &[String]) -> Result<Rows, QueryError> {
    let wrong = |what: String| QueryError::List { path: path.to_owned(), what };
    let failed = |error: &dyn std::fmt::Display| wrong(error.to_string());
    let file = File::open(path).map_err(|error| failed(&error))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| failed(&error))?;
    let rows = builder.metadata().file_metadata().num_rows();
    if usize::try_from(rows).map_or(true, |rows| rows > MOST) {
        return Err(wrong(format!("it has more than {MOST} rows")));
    }
    let wanted = builder.schema().fields().iter().enumerate().filter(|(_, field)| names.contains(field.name()));
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted.map(|(at, _)| at));
    let reader = builder.with_projection(mask).build().map_err(|error| failed(&error))?;
    let mut list = Rows::default();
    for batch in reader {
        let batch = batch.map_err(|error| failed(&error))?;
        list.columns = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        let columns = batch
            .columns()
            .iter()
            .zip(&list.columns)
            .map(|(column, name)| values(column).map_err(|what| wrong(format!("column `{name}` {what}"))));
        let mut columns = columns.collect::<Result<Vec<_>, _>>()?.into_iter().map(Vec::into_iter).collect::<Vec<_>>();
        for _ in 0..batch.num_rows() {
            list.rows.push(columns.iter_mut().filter_map(Iterator::next).collect());
        }
    }
    Ok(list)
}

/// The values of a column. The error follows "column `x` ".
fn values(column: &ArrayRef) -> Result<Vec<Value>, String> {
    if column.null_count() > 0 {
        return Err("has empty cells\nHint: give each point a value".to_owned());
    }
    let to = |kind: &DataType| cast(column, kind).map_err(|error| format!("cannot be read: {error}"));
    let in_range = |array: ArrayRef| {
        if array.null_count() > 0 { Err("has a number beyond 64 bits".to_owned()) } else { Ok(array) }
    };
    match column.data_type() {
        DataType::Boolean => Ok(column.as_boolean().values().iter().map(Value::Bool).collect()),
        kind if kind.is_integer() => {
            let whole = in_range(to(&DataType::Int64)?)?;
            Ok(whole.as_primitive::<Int64Type>().values().iter().copied().map(Value::Integer).collect())
        }
        kind if kind.is_floating() || kind.is_decimal() => {
            let numbers = to(&DataType::Float64)?;
            let numbers = numbers.as_primitive::<Float64Type>().values();
            match numbers.iter().find(|number| !number.is_finite()) {
                Some(number) => Err(format!("has the value {number}\nHint: give each point a finite number")),
                None => Ok(numbers.iter().copied().map(Value::Number).collect()),
            }
        }
        kind if kind.is_nested() => Err(format!("has the type {kind}\nHint: write numbers, texts or truth values")),
        _ => {
            let texts = to(&DataType::Utf8)?;
            Ok(texts.as_string::<i32>().iter().map(|text| Value::Text(text.unwrap_or_default().to_owned())).collect())
        }
    }
}

//! Forms of an answer.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SendableRecordBatchStream;
use futures_util::StreamExt as _;
use parquet::arrow::ArrowWriter;
use slipway_document::text::{printable, printable_json};

use crate::error::QueryError;
use crate::part;

/// Most rows of a printed table: its columns are as wide as the widest cell, so all are in memory.
pub const SHOWN: usize = 1000;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A table of [`SHOWN`] rows at most, for a person.
    Table,
    /// One JSON array with an object for each row.
    Json,
    /// CSV with a header.
    Csv,
}

/// Writes all rows. Returns whether some were left out.
///
/// # Errors
/// Of the query, and of the writer.
pub async fn print(mut rows: SendableRecordBatchStream, form: Form, out: &mut dyn Write) -> Result<bool, QueryError> {
    match form {
        Form::Table => return table(rows, out).await,
        Form::Json => {
            let mut writer = arrow::json::WriterBuilder::new()
                .with_explicit_nulls(true)
                .build::<_, arrow::json::writer::JsonArray>(Vec::new());
            while let Some(batch) = rows.next().await {
                writer.write(&batch.map_err(QueryError::Run)?).map_err(unwritable)?;
                drain(writer.get_mut(), out)?;
            }
            writer.finish().map_err(unwritable)?;
            drain(writer.get_mut(), out)?;
            out.write_all(b"\n").map_err(QueryError::Unwritten)?;
        }
        Form::Csv => {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(out);
            writer.write(&RecordBatch::new_empty(rows.schema())).map_err(unwritable)?;
            while let Some(batch) = rows.next().await {
                writer.write(&batch.map_err(QueryError::Run)?).map_err(unwritable)?;
            }
        }
    }
    Ok(false)
}

fn drain(text: &mut Vec<u8>, out: &mut dyn Write) -> Result<(), QueryError> {
    let shown = printable_json(&String::from_utf8_lossy(text));
    text.clear();
    out.write_all(shown.as_bytes()).map_err(QueryError::Unwritten)
}

/// The first rows as a table.
async fn table(mut rows: SendableRecordBatchStream, out: &mut dyn Write) -> Result<bool, QueryError> {
    let (mut batches, mut left, mut more) = (vec![RecordBatch::new_empty(rows.schema())], SHOWN, false);
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(QueryError::Run)?;
        more = batch.num_rows() > left;
        batches.push(batch.slice(0, batch.num_rows().min(left)));
        left -= batch.num_rows().min(left);
        if more {
            break;
        }
    }
    let text = pretty_format_batches(&batches).map_err(unwritable)?.to_string();
    writeln!(out, "{}", printable(&text)).map_err(QueryError::Unwritten)?;
    Ok(more)
}

/// Writes all rows to a new Parquet file. Returns their number.
///
/// # Errors
/// Where the file is there already. A file that is not written to its end is removed.
pub(crate) async fn parquet(rows: SendableRecordBatchStream, path: &Path) -> Result<u64, QueryError> {
    let file = File::create_new(path).map_err(QueryError::io("make", path))?;
    let schema = rows.schema();
    let written = write_parquet(rows, &schema, &file, path).await;
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

async fn write_parquet(
    mut rows: SendableRecordBatchStream,
    schema: &SchemaRef,
    file: &File,
    path: &Path,
) -> Result<u64, QueryError> {
    let failed = |error| QueryError::parquet("write", path)(error);
    let properties = part::properties(schema).build();
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed)?;
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(QueryError::Run)?;
        count += batch.num_rows() as u64;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    file.sync_all().map_err(QueryError::io("write", path))?;
    Ok(count)
}

fn unwritable(error: arrow::error::ArrowError) -> QueryError {
    QueryError::Unwritten(match error {
        arrow::error::ArrowError::IoError(_, error) => error,
        error => io::Error::other(error),
    })
}

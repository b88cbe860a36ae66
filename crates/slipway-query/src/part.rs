//! Parts of a table: Parquet files in a folder, each with the results of a range of the queue.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use crate::error::QueryError;

/// Key of a part's metadata: the digest of the queue's row that its last result came from.
const LAST: &str = "slipway.last";
/// Key of a part's metadata: the number of results that it was made of.
const RESULTS: &str = "slipway.results";
/// Extension of a part that is being written.
const FRESH: &str = "new";

/// A part of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// `seq` of its first result in the queue.
    pub(crate) first: u64,
    /// `seq` of its last result.
    pub(crate) last: u64,
}

/// A part's footer.
#[derive(Debug, Clone)]
pub(crate) struct Footer {
    pub(crate) schema: SchemaRef,
    pub(crate) rows: u64,
    /// Results of the queue that it was made of.
    pub(crate) results: u64,
    /// Digest of the queue's last row.
    pub(crate) last: String,
}

/// The origin of a part in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// First and last `seq`.
    pub(crate) range: (u64, u64),
    /// Results in the range.
    pub(crate) results: u64,
    /// Digest of the last one.
    pub(crate) last: String,
}

/// The files of a table's folder.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Parts without overlap, in the queue's order.
    pub(crate) parts: Vec<Part>,
    /// Files that another part replaced, or that a crash left half written.
    pub(crate) leftovers: Vec<PathBuf>,
}

impl Part {
    fn new(folder: &Path, first: u64, last: u64) -> Self {
        Self { path: folder.join(format!("part-{first:010}-{last:010}.parquet")), first, last }
    }

    /// The part that a file's name says, if it is a part's.
    fn of(path: PathBuf) -> Option<Self> {
        let (first, last) =
            path.file_name()?.to_str()?.strip_prefix("part-")?.strip_suffix(".parquet")?.split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(Self { path, first, last })
    }

    /// Writes a part: whole, or not at all.
    pub(crate) fn write(folder: &Path, origin: &Origin, batch: &RecordBatch) -> Result<Self, QueryError> {
        let part = Self::new(folder, origin.range.0, origin.range.1);
        let fresh = part.path.with_extension(FRESH);
        let file = File::create(&fresh).map_err(QueryError::io("make", &fresh))?;
        write(&file, batch, origin).map_err(QueryError::parquet("write", &fresh))?;
        file.sync_all().map_err(QueryError::io("write", &fresh))?;
        fs::rename(&fresh, &part.path).map_err(QueryError::io("write", &part.path))?;
        Ok(part)
    }

    /// Reads the footer.
    pub(crate) fn footer(&self) -> Result<Footer, ParquetError> {
        let footer = ArrowReaderMetadata::load(&File::open(&self.path)?, ArrowReaderOptions::default())?;
        let file = footer.metadata().file_metadata();
        let pairs = file.key_value_metadata().map(Vec::as_slice).unwrap_or_default();
        let value = |key| pairs.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
        let results = value(RESULTS).and_then(|results| results.parse().ok());
        let Some((last, results)) = value(LAST).zip(results) else {
            return Err(ParquetError::General("it is not a part of a campaign's table".to_owned()));
        };
        Ok(Footer { schema: bare(footer.schema()), rows: u64::try_from(file.num_rows()).unwrap_or(0), results, last })
    }

    /// Reads all rows.
    pub(crate) fn contents(&self) -> Result<RecordBatch, ParquetError> {
        read(&self.path)
    }

    /// Name for messages.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// All rows of a Parquet file.
fn read(path: &Path) -> Result<RecordBatch, ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    let Some(first) = batches.first() else {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
        return Ok(RecordBatch::new_empty(bare(reader.schema())));
    };
    Ok(concat_batches(&first.schema(), &batches)?)
}

/// A schema without the metadata of its file.
fn bare(schema: &SchemaRef) -> SchemaRef {
    std::sync::Arc::new(schema.as_ref().clone().with_metadata(std::collections::HashMap::new()))
}

fn write(file: &File, batch: &RecordBatch, origin: &Origin) -> Result<(), ParquetError> {
    let mut properties = properties(&batch.schema());
    let pair = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let pairs = vec![pair(LAST, origin.last.clone()), pair(RESULTS, origin.results.to_string())];
    properties = properties.set_key_value_metadata(Some(pairs));
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build()))?;
    writer.write(batch)?;
    writer.close()?;
    Ok(())
}

/// How all files of tables and answers are written.
pub(crate) fn properties(schema: &SchemaRef) -> parquet::file::properties::WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    for field in schema.fields().iter().filter(|field| *field.data_type() == DataType::Float64) {
        // Neighbouring values share their high bytes, and few are equal.
        let column = ColumnPath::from(field.name().as_str());
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::BYTE_STREAM_SPLIT);
    }
    properties
}

/// Lists a table's folder, which need not be there.
pub(crate) fn list(folder: &Path) -> Result<Listed, QueryError> {
    let mut listed = Listed::default();
    let mut parts = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listed),
        entries => entries.map_err(QueryError::io("list", folder))?,
    };
    for entry in entries {
        let path = entry.map_err(QueryError::io("list", folder))?.path();
        if path.extension() == Some(OsStr::new(FRESH)) {
            listed.leftovers.push(path);
        } else if let Some(part) = Part::of(path) {
            parts.push(part);
        }
    }
    // Where parts overlap, the longest of those that begin first is the newest: only a table's last part is replaced.
    parts.sort_by_key(|part| (part.first, std::cmp::Reverse(part.last)));
    for part in parts {
        if listed.parts.last().is_none_or(|before| before.last < part.first) {
            listed.parts.push(part);
        } else {
            listed.leftovers.push(part.path);
        }
    }
    Ok(listed)
}

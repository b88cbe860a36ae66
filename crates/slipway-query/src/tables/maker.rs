//! How rows of the queue become parts of a table.

use std::io::Read as _;
use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::errors::ParquetError;
use slipway_campaign::value::Value;
use slipway_coordinator::store::{Row, Sqlite};
use slipway_results::objects::{self, ObjectError, Storage};
use slipway_results::{Digest, series};
use slipway_study::campaign::{Study, results};

use super::Rows;
use crate::batch::{self, Column};
use crate::error::{QueryError, SeriesFault};
use crate::part::Footer;

/// Most results of a part.
const RESULTS: u64 = 10_000;
/// Values of a part of time series. The last series may exceed it.
const VALUES: usize = 1 << 20;
/// Most series of a part.
const SERIES: u64 = 4096;
/// Largest object of a series, in bytes: the longest that workers write has half of it.
const OBJECT: u64 = 256 << 20;

/// The next part of a table.
pub(super) enum Made {
    /// So many results, up to and with this row of the queue.
    Part { results: u64, last: Row, batch: RecordBatch },
    /// The columns became wider, and parts before do not fit any more.
    Wider,
}

/// Makes the parts of one table.
pub(super) trait Maker {
    /// The columns.
    fn schema(&self) -> SchemaRef;

    /// Whether a part that was written before can stay. The first one decides kinds of columns.
    fn accepts(&mut self, footer: &Footer) -> bool;

    /// Whether a part has no room for more results.
    fn is_full(&self, footer: &Footer) -> bool;

    /// Makes a part of the next rows, of which there is one at least.
    fn make(&mut self, rows: &mut Rows<'_>) -> Result<Made, QueryError>;
}

/// The table `results`.
pub(super) struct Results<'a> {
    study: &'a Study,
    columns: Vec<Column>,
    /// The cells of these columns, by their places in a result's row.
    cells: Vec<usize>,
    adopted: bool,
}

impl<'a> Results<'a> {
    pub(super) fn new(study: &'a Study) -> Self {
        let whole = Some(batch::Kind::Integer);
        let number = Some(batch::Kind::Number);
        let point = [Some(Column::new("point", whole))].into_iter();
        let variables = batch::of_variables(study).into_iter().map(Some);
        let outputs = study.campaign.outputs.iter().map(batch::of_output);
        let own = [
            ("seconds", number),
            ("cpu_seconds", number),
            ("peak_bytes", whole),
            ("worker", whole),
            ("attempts", whole),
            ("seed", whole),
        ];
        let baseline = study.campaign.baseline.as_ref().map(|_| ("baseline", Some(batch::Kind::Bool)));
        let own = own.into_iter().chain(baseline).chain([("seq", whole)]);
        let own = own.map(|(name, kind)| Some(Column::new(name, kind)));
        let all = point.chain(variables).chain(outputs).chain(own).enumerate();
        let (cells, columns) = all.filter_map(|(at, column)| Some((at, column?))).unzip();
        Self { study, columns, cells, adopted: false }
    }

    fn cells(&self, store: &Sqlite, row: Row) -> Result<Option<Vec<Option<Value>>>, QueryError> {
        let seq = i64::try_from(row.seq).unwrap_or(i64::MAX);
        let Some(mut all) = results::cells(self.study, store, row)? else { return Ok(None) };
        all.push(Some(Value::Integer(seq)));
        Ok(Some(self.cells.iter().map(|at| all[*at].take()).collect()))
    }
}

impl Maker for Results<'_> {
    fn schema(&self) -> SchemaRef {
        batch::schema(&self.columns)
    }

    fn accepts(&mut self, footer: &Footer) -> bool {
        // A result whose point the design lacked had no row; the design may have it now.
        if footer.rows != footer.results {
            return false;
        }
        let mut columns = self.columns.clone();
        if !self.adopted && batch::adopt(&mut columns, &footer.schema) && batch::hold(&columns, &self.columns) {
            (self.columns, self.adopted) = (columns, true);
        }
        self.adopted && self.schema() == footer.schema
    }

    fn is_full(&self, footer: &Footer) -> bool {
        footer.results >= RESULTS
    }

    fn make(&mut self, rows: &mut Rows<'_>) -> Result<Made, QueryError> {
        let mut cells = Vec::new();
        let (mut last, mut results) = (None, 0);
        while results < RESULTS
            && let Some(row) = rows.next()?
        {
            cells.extend(self.cells(rows.store, row.clone())?);
            last = Some(row);
            results += 1;
        }
        let last = last.ok_or_else(nothing)?;
        if batch::widen(&mut self.columns, &cells) {
            // Parts of the kinds before do not count any more, and the wider kinds hold for all that follow.
            self.adopted = false;
            return Ok(Made::Wider);
        }
        let batch = batch::batch(&self.columns, &cells).map_err(|error| impossible(error.into()))?;
        Ok(Made::Part { results, last, batch })
    }
}

/// The time series of one output.
pub(super) struct Series {
    storage: Box<dyn Storage>,
    index: usize,
    output: String,
}

impl Series {
    pub(super) fn new(storage: Box<dyn Storage>, index: usize, output: &str) -> Self {
        Self { storage, index, output: output.to_owned() }
    }

    /// The series of a result; `None` where it has none.
    pub(super) fn values(&self, row: &Row) -> Result<Option<Vec<f64>>, QueryError> {
        let Some((_, digest)) = row.record.series.iter().find(|(output, _)| *output == self.index) else {
            return Ok(None);
        };
        let failed = |source| QueryError::Series { output: self.output.clone(), point: row.point, source };
        self.read(digest).map(Some).map_err(failed)
    }

    fn read(&self, digest: &Digest) -> Result<Vec<f64>, SeriesFault> {
        let mut content = Vec::new();
        let mut reader = objects::read(self.storage.as_ref(), digest, OBJECT)?;
        reader.read_to_end(&mut content).map_err(ObjectError::reading(digest))?;
        Ok(series::decode(&content)?)
    }
}

/// The columns of each series.
pub(crate) fn series_schema() -> SchemaRef {
    let field = |name, kind| Field::new(name, kind, true);
    let fields = [("point", DataType::Int64), ("step", DataType::Int64), ("value", DataType::Float64)];
    Arc::new(Schema::new(fields.map(|(name, kind)| field(name, kind)).to_vec()))
}

impl Maker for Series {
    fn schema(&self) -> SchemaRef {
        series_schema()
    }

    fn accepts(&mut self, footer: &Footer) -> bool {
        self.schema() == footer.schema
    }

    fn is_full(&self, footer: &Footer) -> bool {
        footer.rows >= VALUES as u64 || footer.results >= SERIES
    }

    fn make(&mut self, rows: &mut Rows<'_>) -> Result<Made, QueryError> {
        let (mut points, mut steps, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last, mut results) = (None, 0);
        while values.len() < VALUES
            && results < SERIES
            && let Some(row) = rows.next()?
        {
            let found = self.values(&row)?.unwrap_or_default();
            let length = i64::try_from(found.len()).unwrap_or(i64::MAX);
            points.extend(std::iter::repeat_n(i64::try_from(row.point).unwrap_or(i64::MAX), found.len()));
            steps.extend(0..length);
            values.extend(found);
            last = Some(row);
            results += 1;
        }
        let last = last.ok_or_else(nothing)?;
        let columns: [arrow::array::ArrayRef; 3] = [
            Arc::new(Int64Array::from(points)),
            Arc::new(Int64Array::from(steps)),
            Arc::new(Float64Array::from(values)),
        ];
        let batch = RecordBatch::try_new(self.schema(), columns.to_vec()).map_err(|error| impossible(error.into()))?;
        Ok(Made::Part { results, last, batch })
    }
}

fn nothing() -> QueryError {
    impossible(ParquetError::General("there is no result".to_owned()))
}

fn impossible(source: ParquetError) -> QueryError {
    QueryError::Parquet { doing: "make a part of", path: "tables".into(), source }
}

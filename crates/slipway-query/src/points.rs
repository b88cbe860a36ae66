//! The table `points`: all points of the design with their states, read from the queue while a query runs.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use slipway_campaign::value::Value;
use slipway_coordinator::store::{Filter, Point, Sqlite, Store as _};
use slipway_study::campaign::{Study, results};

use crate::batch::{self, Column, Kind};
use crate::error::QueryError;

/// Points that are read at once.
const PAGE: u64 = 4096;

/// All points of a campaign.
#[derive(Debug)]
struct Points {
    campaign: PathBuf,
    columns: Vec<Column>,
    schema: SchemaRef,
}

/// The table.
pub(crate) fn table(study: &Study) -> Result<Arc<dyn TableProvider>> {
    let column = |(name, kind)| Column::new(name, Some(kind));
    let own = [
        ("seed", Kind::Integer),
        ("state", Kind::Text),
        ("attempts", Kind::Integer),
        ("worker", Kind::Integer),
        ("failure", Kind::Text),
        ("message", Kind::Text),
    ];
    let columns: Vec<Column> = std::iter::once(column(("point", Kind::Integer)))
        .chain(batch::of_variables(study))
        .chain(own.map(column))
        .collect();
    let schema = batch::schema(&columns);
    let points = Points { campaign: study.folder().to_owned(), columns, schema: schema.clone() };
    Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(points)])?))
}

impl PartitionStream for Points {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let pages = Pages { campaign: self.campaign.clone(), columns: self.columns.clone(), open: None, from: 0 };
        let pages = pages.map(|page| page.map_err(|error| DataFusionError::External(error.into())));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures_util::stream::iter(pages)))
    }
}

/// Batches of points, in order.
struct Pages {
    campaign: PathBuf,
    columns: Vec<Column>,
    open: Option<(Study, Sqlite)>,
    from: u64,
}

impl Iterator for Pages {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.page().transpose()
    }
}

impl Pages {
    fn page(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        if self.open.is_none() {
            let study = Study::open(&self.campaign)?;
            let store = results::store(&study)?;
            self.open = Some((study, store));
        }
        let Some((study, store)) = &self.open else { return Ok(None) };
        let end = study.plan.len().min(self.from.saturating_add(PAGE));
        if self.from >= end {
            return Ok(None);
        }
        // Points without a row in the queue were never given out.
        let most = usize::try_from(end - self.from).unwrap_or(usize::MAX);
        let mut known = store.points(&Filter::default(), self.from, most)?.into_iter().peekable();
        let rows = (self.from..end)
            .map(|point| {
                let values = results::values(study, store, point)?;
                Ok(cells(study, point, values, known.next_if(|row| row.point == point)))
            })
            .collect::<Result<Vec<_>, QueryError>>()?;
        self.from = end;
        let batch = batch::batch(&self.columns, &rows);
        Ok(Some(batch.map_err(|error| QueryError::Run(DataFusionError::from(error)))?))
    }
}

/// A planned point of a search has no `values` yet.
fn cells(study: &Study, point: u64, values: Option<Vec<Value>>, known: Option<Point>) -> Vec<Option<Value>> {
    let whole = |number: u64| Some(Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)));
    let word = |word: serde_json::Result<serde_json::Value>| match word {
        Ok(serde_json::Value::String(word)) => Some(Value::Text(word)),
        _ => None,
    };
    let mut cells = vec![whole(point)];
    match values {
        Some(values) => cells.extend(values.into_iter().map(Some)),
        None => cells.resize(1 + study.campaign.variables.len(), None),
    }
    cells.push(whole(study.plan.seed(point)));
    match known {
        Some(known) => cells.extend([
            word(serde_json::to_value(known.state)),
            whole(known.attempts.into()),
            whole(known.worker.into()),
            known.failure.and_then(|failure| word(serde_json::to_value(failure))),
            known.message.map(Value::Text),
        ]),
        None => cells.extend([Some(Value::Text("waiting".to_owned())), whole(0), None, None, None]),
    }
    cells
}

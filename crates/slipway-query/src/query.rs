//! Queries: `DataFusion` over a campaign's tables.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext, col, lit};

use crate::error::QueryError;
use crate::points;
use crate::tables::{Reading, Table, Tables, series_schema};

/// Memory of sorting, grouping and joining, in bytes. A query that needs more writes to the disk.
pub const MEMORY: usize = 1 << 30;

/// A query that has begun.
pub struct Answer {
    /// The rows.
    pub rows: SendableRecordBatchStream,
    /// Parts that could not be read, and were made again before the query began.
    pub damaged: Vec<String>,
    _reading: Reading,
}

/// Brings tables up to date, and begins a query.
///
/// # Errors
/// Where the statement is no query of these tables, or the tables cannot be made.
pub async fn begin(tables: &Tables, statement: &str) -> std::result::Result<Answer, QueryError> {
    // Making series costs most, and a statement that asks for them names them.
    let names_series = statement.to_lowercase().contains("series");
    let (reading, results, series) = tables.read(names_series)?;
    let context = context(tables).map_err(QueryError::Run)?;
    let damaged = std::iter::once(&results).chain(&series).flat_map(|table| table.damaged.clone()).collect();
    register(&context, tables, &results, &series).map_err(QueryError::Run)?;
    let only_queries = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = context.sql_with_options(statement, only_queries).await;
    let frame = frame.map_err(|error| QueryError::Statement { what: words(&error), hint: hint(tables, &results) })?;
    let rows = frame.execute_stream().await.map_err(QueryError::Run)?;
    Ok(Answer { rows, damaged, _reading: reading })
}

/// `DataFusion`'s words for the fault.
fn words(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    // `SQLOptions::verify_plan` names the kind of statement after this.
    match text.split_once(" not supported: ") {
        Some((_, statement)) => format!("{statement} is not a query, and only queries are answered"),
        None => text,
    }
}

fn context(tables: &Tables) -> Result<SessionContext> {
    let mut config = SessionConfig::new().with_information_schema(true).with_collect_statistics(true);
    // Names of variables are as in the campaign file: `U_wall` is not `u_wall`.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    let spill = DiskManagerMode::Directories(vec![tables.spill().to_owned()]);
    std::fs::create_dir_all(tables.spill())?;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(MEMORY)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(spill))
        .build_arc()?;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}

fn register(context: &SessionContext, tables: &Tables, results: &Table, series: &[Table]) -> Result<()> {
    context.register_table("results", files(&results.files, &results.schema)?)?;
    context.register_table("points", points::table(tables.study())?)?;
    let mut all: Option<DataFrame> = None;
    for ((_, output), table) in tables.series_outputs().zip(series) {
        let name = lit(output.name.as_str()).alias("output");
        let one = context.read_table(files(&table.files, &table.schema)?)?;
        let one = one.select([name, col("point"), col("step"), col("value")])?;
        all = Some(match all {
            Some(before) => before.union(one)?,
            None => one,
        });
    }
    let all = if let Some(all) = all {
        all
    } else {
        let none = context.read_table(Arc::new(EmptyTable::new(series_schema())))?;
        none.select([lit("").alias("output"), col("point"), col("step"), col("value")])?
    };
    context.register_table("series", all.into_view())?;
    Ok(())
}

/// A table of these Parquet files.
fn files(paths: &[PathBuf], schema: &SchemaRef) -> Result<Arc<dyn TableProvider>> {
    if paths.is_empty() {
        return Ok(Arc::new(EmptyTable::new(schema.clone())));
    }
    let url = |path: &PathBuf| {
        let url = url::Url::from_file_path(path);
        let url = url.map_err(|()| DataFusionError::Plan(format!("{} is no absolute path", path.display())))?;
        ListingTableUrl::try_new(url, None)
    };
    let urls = paths.iter().map(url).collect::<Result<Vec<_>>>()?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()));
    let config =
        ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema.clone());
    Ok(Arc::new(ListingTable::try_new(config)?))
}

/// The tables and their columns.
fn hint(tables: &Tables, results: &Table) -> String {
    let names =
        |schema: &SchemaRef| schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let mut hint = format!("tables: results ({})", names(&results.schema));
    if let Ok(points) = points::table(tables.study()) {
        let _ = write!(hint, "; points ({})", names(&points.schema()));
    }
    let outputs: Vec<&str> = tables.series_outputs().map(|(_, output)| output.name.as_str()).collect();
    if !outputs.is_empty() {
        let _ = write!(hint, "; series (output, point, step, value) with outputs {}", outputs.join(", "));
    }
    hint
}

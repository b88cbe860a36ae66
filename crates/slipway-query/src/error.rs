//! Errors of tables and queries.

use std::io;
use std::path::{Path, PathBuf};

use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;
use slipway_coordinator::store::StoreError;
use slipway_results::objects::ObjectError;
use slipway_results::series::SeriesError;
use slipway_study::campaign::CampaignError;

/// The reason why tables cannot be made or asked. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A file operation failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Verb, as in "open".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the action.
        source: io::Error,
    },
    /// The campaign or its queue.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// A time series that the queue names.
    #[error("read the time series `{output}` of point {point}: {source}")]
    Series {
        /// The output.
        output: String,
        /// The point.
        point: u64,
        /// The fault of the object.
        source: SeriesFault,
    },
    /// A Parquet file.
    #[error("{doing} {}: {source}", path.display())]
    Parquet {
        /// Verb, as in "write".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: ParquetError,
    },
    /// A list of points.
    #[error("read the list of points {}: {what}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The fault, and the next step.
        what: String,
    },
    /// The statement cannot be understood, or is not a query.
    #[error("understand the query: {what}\nHint: {hint}")]
    Statement {
        /// `DataFusion`'s words.
        what: String,
        /// The tables and their columns.
        hint: String,
    },
    /// The query failed while it ran.
    #[error("answer the query: {0}")]
    Run(DataFusionError),
    /// Parts of tables cannot be read.
    #[error("read {}\nHint: they are made again: ask once more", .0.join("; "))]
    Damaged(Vec<String>),
    /// The answer cannot be written.
    #[error("write the answer: {0}")]
    Unwritten(io::Error),
}

/// A fault of a time series' object.
#[derive(Debug, thiserror::Error)]
pub enum SeriesFault {
    /// The object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Its content.
    #[error(transparent)]
    Content(#[from] SeriesError),
}

impl QueryError {
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self + use<E> {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source: source.into() }
    }

    pub(crate) fn parquet<E: Into<ParquetError>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self + use<E> {
        let path = path.to_owned();
        move |source| Self::Parquet { doing, path, source: source.into() }
    }

    /// The exit code: 2 where the caller's words are wrong, 1 else.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Statement { .. } | Self::List { .. } => 2,
            _ => 1,
        }
    }
}

impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::Campaign(error.into())
    }
}

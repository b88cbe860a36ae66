//! `slipway campaign query`

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use slipway_study::campaign::CampaignError;
use slipway_study::campaign::tables::{self, TablesError};

use super::Which;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Ask results, points and time series with SQL, also while the campaign runs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Tables:
  results   one row for each result: point, the variables, the outputs, seconds,
            cpu_seconds, peak_bytes, worker, attempts, seed, seq
  points    one row for each point of the design: point, the variables, seed,
            state, attempts, worker, failure, message
  series    one row for each value of a time series: output, point, step (from
            0), value

Names are as in the campaign file, with their capitals. The SQL is DataFusion's:
https://datafusion.apache.org/user-guide/sql. Queries read, and change nothing. Without
--csv, --json or --parquet the answer is a table of 1,000 rows at most.

The tables are Parquet files in the campaign's folder `tables`, for other programs
too. Each query brings them up to date; without them, it makes them again.

Examples:
  slipway campaign query 'select count(*), avg(height) from results'
  slipway campaign query 'select state, count(*) from points group by state'
  slipway campaign query --csv 'select * from results where height > 20' study.yaml
  slipway campaign query \"select step, avg(value) from series
      where output = 'load' group by step order by step\"
  slipway campaign query --parquet warm.parquet \"select r.speed, s.step, s.value
      from series s join results r on r.point = s.point where s.value > 30\"")]
pub(super) struct Args {
    /// SQL query
    sql: String,
    #[command(flatten)]
    which: Which,
    /// Print CSV
    #[arg(long, conflicts_with_all = ["parquet", "json"])]
    csv: bool,
    /// Write a new Parquet file
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let mut program = tables::program().map_err(CampaignError::from)?;
        let form = match (context.global.json, self.csv) {
            (true, _) => "json",
            (_, true) => "csv",
            _ => "table",
        };
        if context.global.json {
            program.arg("--json-errors");
        }
        program.args(["query", "--form", form]);
        if let Some(path) = self.parquet {
            program.arg("--parquet").arg(path);
        }
        // In place of this program, so that Ctrl-C and the exit code are the query's.
        let source = program.arg("--").arg(study.folder()).arg(self.sql).exec();
        Err(CampaignError::from(TablesError::Execute { path: program.get_program().into(), source }).into())
    }
}

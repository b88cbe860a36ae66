//! The command line, which `slipway` writes: nobody else needs to.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::json;
use slipway_document::text::{printable, printable_json};

use crate::error::QueryError;
use crate::output::{self, Form, SHOWN};
use crate::query;
use crate::tables::Tables;

/// Stack of a thread in bytes: `DataFusion` walks trees of expressions by recursion.
const STACK: usize = 32 << 20;

/// Tables of campaigns, and SQL over them. `slipway campaign query` starts this program
#[derive(Debug, Parser)]
#[command(name = "slipway-query", version)]
struct Args {
    /// Version of the program that asks: both come from one build
    #[arg(long, value_name = "VERSION")]
    caller: Option<String>,
    /// Write errors as JSON
    #[arg(long)]
    json_errors: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Answer a query
    Query {
        /// The campaign's folder
        folder: PathBuf,
        /// The SQL statement
        statement: String,
        /// The form of the answer
        #[arg(long, value_enum, default_value = "table")]
        form: Form,
        /// Write a Parquet file instead
        #[arg(long)]
        parquet: Option<PathBuf>,
    },
    /// Bring a campaign's tables up to date
    Update {
        /// The campaign's folder
        folder: PathBuf,
    },
    /// Compare tables with the queue, and list faults as JSON
    Verify {
        /// The campaign's folder
        folder: PathBuf,
    },
    /// Print columns of a Parquet file as JSON: a list of points
    List {
        /// The file
        file: PathBuf,
        /// The columns' names
        names: Vec<String>,
    },
}

/// Runs the program. Returns its exit code.
#[must_use]
pub fn main() -> u8 {
    let args = Args::parse();
    let json_errors = args.json_errors;
    let own = env!("CARGO_PKG_VERSION");
    if let Some(caller) = args.caller.as_deref().filter(|caller| *caller != own) {
        let what = format!(
            "work for slipway {caller}: this slipway-query is of version {own}\nHint: install both programs from one build"
        );
        report(&what, json_errors);
        return 1;
    }
    // A thread of its own, for its larger stack.
    let work = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || run(args.what, json_errors))
        .map_err(QueryError::Unwritten);
    match work.and_then(|work| work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))) {
        Ok(()) => 0,
        // Nobody reads the answer any more.
        Err(QueryError::Unwritten(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            report(&error.to_string(), json_errors);
            error.code()
        }
    }
}

fn run(what: What, json_errors: bool) -> Result<(), QueryError> {
    let mut out = io::BufWriter::new(io::stdout());
    match what {
        What::Query { folder, statement, form, parquet } => {
            let tables = Tables::open(&folder)?;
            let answer = on_runtime(answer(&tables, &statement, form, parquet, &mut out));
            match answer {
                // A query that fails may have met a part that is damaged. Reading all of them tells.
                Err(error @ QueryError::Run(_)) => match tables.remove_damaged()? {
                    damaged if damaged.is_empty() => return Err(error),
                    damaged => return Err(QueryError::Damaged(damaged)),
                },
                answer => answer?,
            }
        }
        What::Update { folder } => {
            for table in Tables::open(&folder)?.update()? {
                table.damaged.iter().for_each(|part| note_damage(part));
            }
        }
        What::Verify { folder } => write_json(&mut out, &Tables::open(&folder)?.verify()?)?,
        What::List { file, names } => {
            tell_damage(&file, json_errors);
            write_json(&mut out, &crate::list::read(&file, &names)?)?;
        }
    }
    out.flush().map_err(QueryError::Unwritten)
}

/// Has a panic end the program as an error does: the reader of the `parquet` crate panics at some damaged headers.
fn tell_damage(list: &Path, json_errors: bool) {
    let what = "it is damaged\nHint: write it again, from where its values come".to_owned();
    let error = QueryError::List { path: list.to_owned(), what };
    std::panic::set_hook(Box::new(move |_| {
        report(&error.to_string(), json_errors);
        std::process::exit(error.code().into())
    }));
}

async fn answer(
    tables: &Tables,
    statement: &str,
    form: Form,
    parquet: Option<PathBuf>,
    out: &mut dyn io::Write,
) -> Result<(), QueryError> {
    let answer = query::begin(tables, statement).await?;
    answer.damaged.iter().for_each(|part| note_damage(part));
    if let Some(path) = parquet {
        let rows = output::parquet(answer.rows, &path).await?;
        let text = format!("wrote {} with {rows} {}\n", path.display(), if rows == 1 { "row" } else { "rows" });
        let json = format!("{}\n", json!({"file": path, "rows": rows}));
        let text = if form == Form::Json { printable_json(&json) } else { printable(&text) };
        return out.write_all(text.as_bytes()).map_err(QueryError::Unwritten);
    }
    if output::print(answer.rows, form, out).await? {
        out.flush().map_err(QueryError::Unwritten)?;
        eprintln!("slipway: there are more than {SHOWN} rows: --csv, --json and --parquet FILE give all");
    }
    Ok(())
}

/// Runs a query on as many threads as there are processors.
fn on_runtime<T>(work: impl Future<Output = Result<T, QueryError>>) -> Result<T, QueryError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK).enable_all().build();
    runtime.map_err(QueryError::Unwritten)?.block_on(work)
}

fn write_json(out: &mut dyn io::Write, value: &impl serde::Serialize) -> Result<(), QueryError> {
    serde_json::to_writer(out, value).map_err(|error| QueryError::Unwritten(error.into()))
}

fn note_damage(part: &str) {
    eprint!("{}", printable(&format!("slipway: a part was damaged, and was made again: {part}\n")));
}

/// Tells an error as `slipway` does.
fn report(account: &str, as_json: bool) {
    let (message, hint) =
        account.split_once("\nHint: ").map_or((account, None), |(message, hint)| (message, Some(hint)));
    if as_json {
        let error = json!({"message": message, "help": hint, "file": null, "line": null, "column": null});
        eprintln!("{}", printable_json(&json!({ "error": error }).to_string()));
    } else {
        eprint!("{}", printable(&format!("slipway: failed to {account}\n")));
    }
}

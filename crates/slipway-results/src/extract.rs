//! Results, read from the files that a point's program wrote.
//!
//! The program is hostile: its files may be missing, cut off, endless, links or FIFOs. Each fault becomes a problem that
//! names output and file, and no read waits or goes on without a bound.

mod columns;
mod document;
mod sql;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use slipway_campaign::model::{Output, Pick};
use slipway_campaign::value::Value;

use crate::beneath;

/// Largest file in bytes that a regular expression or a JSON path is held against.
const TEXT: u64 = 64 << 20;
/// Longest extracted text in bytes.
const LONGEST: usize = 4096;

/// Outputs, ready to be extracted: regular expressions and JSON paths are compiled.
#[derive(Debug)]
pub struct Extractor {
    outputs: Vec<String>,
    /// One for each file, so that each is read once.
    sources: Vec<Source>,
}

/// The results of one attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extracted {
    /// A value for each output, in their order. `None`: a problem, or a series.
    pub values: Vec<Option<Value>>,
    /// Time series, each with the index of its output.
    pub series: Vec<(usize, Vec<f64>)>,
    /// A sentence for each output that could not be read.
    pub problems: Vec<String>,
}

/// An output that says something impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("prepare output `{output}`: {what}")]
pub struct ExtractError {
    /// The output's name.
    pub output: String,
    /// The fault, and the next step.
    pub what: String,
}

/// A file, and the outputs to read from it.
#[derive(Debug)]
struct Source {
    /// `None`: standard output.
    file: Option<PathBuf>,
    size: Vec<usize>,
    document: document::Picks,
    columns: Vec<columns::Column>,
    queries: Vec<sql::Query>,
}

impl Extractor {
    /// Compiles the outputs.
    ///
    /// # Errors
    /// The first output whose regular expression, JSON path or SQL is none.
    pub fn new(outputs: &[Output]) -> Result<Self, ExtractError> {
        let mut sources: Vec<Source> = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            let failed = |what| ExtractError { output: output.name.clone(), what };
            let at = sources.iter().position(|source| source.file == output.file).unwrap_or_else(|| {
                sources.push(Source::of(output.file.clone()));
                sources.len() - 1
            });
            let source = &mut sources[at];
            match &output.pick {
                Pick::Regex(pattern) => source.document.add_regex(index, pattern).map_err(failed)?,
                Pick::JsonPath(path) => source.document.add_path(index, path).map_err(failed)?,
                Pick::Column(name) => source.columns.push(columns::Column::last(index, name)),
                Pick::Series(name) => source.columns.push(columns::Column::series(index, name)),
                Pick::Sql(text) | Pick::SqlSeries(text) => {
                    sql::check(text).map_err(failed)?;
                    let is_series = matches!(output.pick, Pick::SqlSeries(_));
                    source.queries.push(sql::Query { output: index, text: text.clone(), is_series });
                }
                Pick::Size => source.size.push(index),
            }
        }
        Ok(Self { outputs: outputs.iter().map(|output| output.name.clone()).collect(), sources })
    }

    /// Reads all outputs. The program has ended: nothing writes to `folder` any more. `stdout` is a file outside of it.
    #[must_use]
    pub fn extract(&self, folder: &Path, stdout: &Path) -> Extracted {
        let mut found = Found {
            outputs: &self.outputs,
            file: String::new(),
            extracted: Extracted { values: vec![None; self.outputs.len()], ..Extracted::default() },
        };
        for source in &self.sources {
            found.file =
                source.file.as_ref().map_or_else(|| "standard output".to_owned(), |file| file.display().to_string());
            if let Err(error) = source.read(folder, stdout, &mut found) {
                source.indices().for_each(|output| found.set(output, Err(error.to_string())));
            }
        }
        found.extracted
    }
}

impl Source {
    fn of(file: Option<PathBuf>) -> Self {
        Self { file, size: Vec::new(), document: document::Picks::default(), columns: Vec::new(), queries: Vec::new() }
    }

    /// The outputs of this file.
    fn indices(&self) -> impl Iterator<Item = usize> {
        let columns = self.columns.iter().map(|column| column.output);
        let queries = self.queries.iter().map(|query| query.output);
        self.size.iter().copied().chain(self.document.indices()).chain(columns).chain(queries)
    }

    /// Reads the outputs of this file.
    ///
    /// # Errors
    /// A fault of the file that all of its outputs share; none of them is set then.
    fn read(&self, folder: &Path, stdout: &Path, found: &mut Found<'_>) -> io::Result<()> {
        let mut file = if let Some(path) = &self.file {
            beneath::file(beneath::folder(folder)?, path)?
        } else {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            beneath::regular(openat(CWD, stdout, flags, Mode::empty())?)?
        };
        let size = file.metadata()?.len();
        if size == 0 && self.indices().count() > self.size.len() {
            return Err(io::Error::other("it is empty"));
        }
        if !self.document.is_empty() {
            let text = whole(&mut file, TEXT)?;
            self.document.read(&text, found);
            file.rewind()?;
        }
        if !self.columns.is_empty() {
            columns::read(&file, &self.columns, found);
            file.rewind()?;
        }
        if !self.queries.is_empty() {
            sql::read(file, size, &self.queries, found);
        }
        self.size.iter().for_each(|output| found.set(*output, i64::try_from(size).map(Value::Integer)));
        Ok(())
    }
}

/// Results so far.
struct Found<'a> {
    outputs: &'a [String],
    /// The file that is being read, for messages.
    file: String,
    extracted: Extracted,
}

impl Found<'_> {
    fn set(&mut self, output: usize, value: Result<Value, impl ToString>) {
        match value {
            Ok(value) => self.extracted.values[output] = Some(value),
            Err(what) => {
                let what = what.to_string();
                self.extracted.problems.push(format!("output `{}`: {}: {what}", self.outputs[output], self.file));
            }
        }
    }

    fn set_series(&mut self, output: usize, values: Vec<f64>) {
        self.extracted.series.push((output, values));
    }
}

/// A whole file.
fn whole(file: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} MiB", most >> 20)));
    }
    Ok(content)
}

/// The value that a text stands for: a whole number, a number or the text itself.
fn value(text: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the value is no UTF-8".to_owned())?.trim();
    if let Ok(number) = text.parse() {
        return Ok(Value::Integer(number));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Value::Number(number)),
        Ok(_) => Err(format!("`{}` is not a finite number", shown(text))),
        Err(_) => bounded(text),
    }
}

/// A text of bounded length.
fn bounded(text: &str) -> Result<Value, String> {
    match text.len() {
        0 => Err("the value is empty".to_owned()),
        length if length > LONGEST => Err(format!("the value has {length} bytes, more than {LONGEST}")),
        _ => Ok(Value::Text(text.to_owned())),
    }
}

/// The beginning of a hostile text, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

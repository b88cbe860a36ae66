//! Columns of a CSV file, read in one pass.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};

use csv::{ByteRecord, ReaderBuilder};
use slipway_campaign::value::Value;

use super::{Found, shown, value};

/// Most values of one series: thirty years of minutes.
const LONGEST: usize = 16 << 20;
/// Longest row in bytes: it is held in memory.
const ROW: usize = 4 << 20;
/// Column names that a message lists.
const SHOWN: usize = 8;

/// A column to read. Empty cells do not count: programs leave them where a column has fewer values than another one.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) output: usize,
    name: String,
    series: bool,
}

impl Column {
    pub(super) fn last(output: usize, name: &str) -> Self {
        Self { output, name: name.trim().to_owned(), series: false }
    }

    pub(super) fn series(output: usize, name: &str) -> Self {
        Self { output, name: name.trim().to_owned(), series: true }
    }
}

/// Reads the columns of one file.
pub(super) fn read(file: &File, columns: &[Column], found: &mut Found<'_>) {
    let left = Cell::new(ROW);
    let mut reader = ReaderBuilder::new().from_reader(Bounded { file, left: &left });
    let header = match reader.byte_headers() {
        Ok(header) => header.clone(),
        Err(error) => return columns.iter().for_each(|column| found.set(column.output, Err(&error))),
    };
    let mut wanted = Vec::new();
    for column in columns {
        match header.iter().position(|name| name.trim_ascii() == column.name.as_bytes()) {
            Some(at) => wanted.push(Cells { column, at, last: Vec::new(), series: Ok(Vec::new()) }),
            None => found.set(column.output, Err(no_column(&column.name, &header))),
        }
    }
    let mut row = ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return wanted.iter().for_each(|cells| found.set(cells.column.output, Err(&error))),
        }
        left.set(ROW);
        let line = row.position().map_or(0, csv::Position::line);
        for cells in &mut wanted {
            cells.add(&row, line);
        }
    }
    for cells in wanted {
        cells.finish(found);
    }
}

/// A file of which one row may only have so many bytes.
struct Bounded<'a> {
    file: &'a File,
    left: &'a Cell<usize>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        let left = self.left.get().checked_sub(count);
        self.left.set(left.ok_or_else(|| io::Error::other(format!("a row has more than {} MiB", ROW >> 20)))?);
        Ok(count)
    }
}

/// Cells of a column so far.
struct Cells<'a> {
    column: &'a Column,
    at: usize,
    last: Vec<u8>,
    series: Result<Vec<f64>, String>,
}

impl Cells<'_> {
    fn add(&mut self, row: &ByteRecord, line: u64) {
        let cell = row.get(self.at).unwrap_or_default().trim_ascii();
        if cell.is_empty() {
            return;
        }
        if !self.column.series {
            self.last.clear();
            self.last.extend_from_slice(cell);
        } else if let Ok(series) = &mut self.series {
            match std::str::from_utf8(cell).ok().and_then(|text| text.parse().ok()) {
                _ if series.len() == LONGEST => self.series = Err(format!("it has more than {LONGEST} values")),
                Some(number) if f64::is_finite(number) => series.push(number),
                _ => {
                    let text = shown(&String::from_utf8_lossy(cell));
                    self.series = Err(format!("line {line}: `{text}` is not a finite number"));
                }
            }
        }
    }

    fn finish(self, found: &mut Found<'_>) {
        let none = || format!("the column `{}` has no values", self.column.name);
        let output = self.column.output;
        if !self.column.series {
            let value = if self.last.is_empty() { Err(none()) } else { value(&self.last) };
            return found.set(output, value);
        }
        match self.series {
            Ok(series) if series.is_empty() => found.set(output, Err(none())),
            Ok(series) => found.set_series(output, series),
            Err(what) => found.set(output, Err::<Value, _>(what)),
        }
    }
}

fn no_column(name: &str, header: &ByteRecord) -> String {
    let mut names: Vec<String> =
        header.iter().take(SHOWN).map(|name| format!("`{}`", shown(String::from_utf8_lossy(name).trim()))).collect();
    if header.len() > SHOWN {
        names.push(format!("{} more", header.len() - SHOWN));
    }
    format!("it has no column `{name}`, but {}", names.join(", "))
}

//! The tables of a campaign, brought up to date from its queue and its stored series.

mod maker;
mod verify;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

use arrow::datatypes::SchemaRef;
use slipway_campaign::model::{Output, Pick};
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Row, Sqlite, Store as _};
use slipway_results::Digest;
use slipway_study::campaign::{CampaignError, Study, results, storage};

use crate::error::QueryError;
use crate::part::{self, Footer, Origin, Part};
use maker::{Made, Maker, Results, Series};

pub(crate) use maker::series_schema;
pub use verify::Fault;

/// Most threads that write parts: each has one in memory, of some 50 MB.
const WRITERS: usize = 8;

/// A campaign's tables, in the folder `tables` of its folder.
#[derive(Debug)]
pub struct Tables {
    study: Study,
    folder: PathBuf,
    spill: PathBuf,
}

/// A table as it is now.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Parts that could not be read and were made again, with the reason.
    pub damaged: Vec<String>,
}

/// No part is removed while this lives.
#[derive(Debug)]
pub(crate) struct Reading(#[expect(dead_code, reason = "the lock lasts as long as the descriptor")] File);

/// One process changes tables at a time.
struct Writing<'a> {
    tables: &'a Tables,
    store: Sqlite,
    _lock: File,
}

impl Tables {
    /// The tables of a campaign that has run.
    ///
    /// # Errors
    /// Where there is no campaign in the folder, or its folder of tables cannot be made.
    pub fn open(path: &Path) -> Result<Self, QueryError> {
        let study = Study::open(path)?;
        let folder = Folder::open(path).map_err(CampaignError::from)?.tables();
        fs::create_dir_all(&folder).map_err(QueryError::io("make", &folder))?;
        let spill = folder.join("spill");
        Ok(Self { study, folder, spill })
    }

    /// The campaign.
    #[must_use]
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// The folder for what a query cannot hold in memory.
    pub(crate) fn spill(&self) -> &Path {
        &self.spill
    }

    /// Outputs that are time series.
    pub(crate) fn series_outputs(&self) -> impl Iterator<Item = (usize, &Output)> {
        let all = self.study.campaign.outputs.iter().enumerate();
        all.filter(|(_, output)| matches!(output.pick, Pick::Series(_)))
    }

    /// Brings all tables up to date.
    ///
    /// # Errors
    /// Where queue, series or tables cannot be read or written.
    pub fn update(&self) -> Result<Vec<Table>, QueryError> {
        let writing = self.write()?;
        let series = self.series_outputs().map(|(index, output)| writing.series(index, output));
        std::iter::once(writing.results()).chain(series).collect()
    }

    /// Brings tables up to date, and keeps their files until the guard is dropped. Series are made where they are asked for.
    pub(crate) fn read(&self, series: bool) -> Result<(Reading, Table, Vec<Table>), QueryError> {
        let writing = self.write()?;
        let results = writing.results()?;
        let all = if series {
            self.series_outputs().map(|(index, output)| writing.series(index, output)).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let lock = self.lock_file("readers")?;
        lock.lock_shared().map_err(QueryError::io("lock", &self.folder))?;
        Ok((Reading(lock), results, all))
    }

    fn write(&self) -> Result<Writing<'_>, QueryError> {
        let lock = self.lock_file("lock")?;
        lock.lock().map_err(QueryError::io("lock", &self.folder))?;
        Ok(Writing { tables: self, store: results::store(&self.study)?, _lock: lock })
    }

    fn lock_file(&self, name: &str) -> Result<File, QueryError> {
        let path = self.folder.join(name);
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        open.map_err(QueryError::io("open", &path))
    }

    fn results_folder(&self) -> PathBuf {
        self.folder.join("results")
    }

    /// The folder of a series, by the names that other programs take for a column `output`.
    fn series_folder(&self, output: &str) -> PathBuf {
        self.folder.join("series").join(format!("output={output}"))
    }
}

impl Writing<'_> {
    fn results(&self) -> Result<Table, QueryError> {
        let mut maker = Results::new(&self.tables.study);
        self.bring(&self.tables.results_folder(), &mut maker)
    }

    fn series(&self, index: usize, output: &Output) -> Result<Table, QueryError> {
        let mut maker = self.series_maker(index, output)?;
        self.bring(&self.tables.series_folder(&output.name), &mut maker)
    }

    fn series_maker(&self, index: usize, output: &Output) -> Result<Series, QueryError> {
        Ok(Series::new(storage::open(&self.tables.study)?, index, &output.name))
    }

    /// Brings one table up to date.
    fn bring(&self, folder: &Path, maker: &mut dyn Maker) -> Result<Table, QueryError> {
        fs::create_dir_all(folder).map_err(QueryError::io("make", folder))?;
        self.sweep(folder)?;
        let mut damaged = Vec::new();
        loop {
            let parts = self.usable(folder, maker, &mut damaged)?;
            if self.fill(folder, maker, &parts)? {
                sync(folder)?;
                self.sweep(folder)?;
                let parts = part::list(folder)?.parts;
                let files = parts.into_iter().map(|part| part.path).collect();
                return Ok(Table { schema: maker.schema(), files, damaged });
            }
            // A later value needs a wider column, so that all parts are made again.
            let parts: Vec<PathBuf> = part::list(folder)?.parts.into_iter().map(|part| part.path).collect();
            self.remove(folder, &parts)?;
        }
    }

    /// The parts that agree with the queue. The others are removed; those that are damaged are named.
    fn usable(&self, folder: &Path, maker: &mut dyn Maker, damaged: &mut Vec<String>) -> Result<Vec<Part>, QueryError> {
        let mut parts = Vec::new();
        let mut wrong = Vec::new();
        for part in part::list(folder)?.parts {
            match part.footer() {
                Ok(footer) if maker.accepts(&footer) => parts.push((part, footer)),
                Ok(_) => wrong.push(part.path),
                Err(error) => {
                    damaged.push(format!("{}: {error}", part.shown()));
                    wrong.push(part.path);
                }
            }
        }
        // A crash of the machine may undo the queue's last results, and others take their numbers.
        while let Some((part, footer)) = parts.last()
            && self.row(part.last)?.is_none_or(|row| stamp(&row) != footer.last)
        {
            wrong.extend(parts.pop().map(|(part, _)| part.path));
        }
        self.drop_incomplete(&mut parts, &mut wrong)?;
        // New results go into the last part as long as there is room. Its file stays until the new one has replaced it.
        if let Some((part, footer)) = parts.last()
            && !maker.is_full(footer)
            && !self.store.results(part.last, 1)?.is_empty()
        {
            parts.pop();
        }
        if !wrong.is_empty() {
            self.remove(folder, &wrong)?;
        }
        Ok(parts.into_iter().map(|(part, _)| part).collect())
    }

    /// Takes out the parts with results that the queue has dropped. Nothing but dropped results makes its own count smaller.
    fn drop_incomplete(&self, parts: &mut Vec<(Part, Footer)>, wrong: &mut Vec<PathBuf>) -> Result<(), QueryError> {
        let newer = self.store.count_results(parts.last().map_or(0, |(part, _)| part.last) + 1, u64::MAX)?;
        let in_parts: u64 = parts.iter().map(|(_, footer)| footer.results).sum();
        if in_parts + newer == self.store.counts()?.done {
            return Ok(());
        }
        for (part, footer) in std::mem::take(parts) {
            if self.store.count_results(part.first, part.last)? == footer.results {
                parts.push((part, footer));
            } else {
                wrong.push(part.path);
            }
        }
        Ok(())
    }

    /// Makes parts for the results that no part has, each written by a thread while the next is made. Returns `false` where a
    /// column became wider.
    fn fill(&self, folder: &Path, maker: &mut dyn Maker, parts: &[Part]) -> Result<bool, QueryError> {
        let most = std::thread::available_parallelism().map_or(1, usize::from).min(WRITERS);
        std::thread::scope(|scope| {
            let mut writers = Writers { most, threads: VecDeque::new() };
            let mut from = 1;
            let ends = parts.iter().map(|part| (part.first, part.last));
            for (first, last) in ends.chain([(u64::MAX, u64::MAX)]) {
                while from < first {
                    let mut rows = Rows::new(&self.store, from, first - 1);
                    if rows.peek()?.is_none() {
                        break;
                    }
                    match maker.make(&mut rows)? {
                        Made::Wider => return writers.join().map(|()| false),
                        Made::Part { results, last, batch } => {
                            let origin = Origin { range: (from, last.seq), results, last: stamp(&last) };
                            from = last.seq + 1;
                            writers.wait_for_one()?;
                            let write = move || Part::write(folder, &origin, &batch).map(drop);
                            writers.threads.push_back(scope.spawn(write));
                        }
                    }
                }
                from = last.saturating_add(1);
            }
            writers.join().map(|()| true)
        })
    }

    /// The queue's row of this number.
    fn row(&self, seq: u64) -> Result<Option<Row>, QueryError> {
        Ok(self.store.results(seq - 1, 1)?.pop().filter(|row| row.seq == seq))
    }

    /// Removes files that nobody needs, unless a query may read them now.
    fn sweep(&self, folder: &Path) -> Result<(), QueryError> {
        let readers = self.tables.lock_file("readers")?;
        if readers.try_lock().is_err() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&self.tables.spill);
        part::list(folder)?.leftovers.iter().try_for_each(|path| remove(path))
    }

    /// Removes parts, after the end of queries that may read them. Leftovers go too: nothing may come in a part's place that
    /// begins where it did.
    pub(super) fn remove(&self, folder: &Path, parts: &[PathBuf]) -> Result<(), QueryError> {
        let readers = self.tables.lock_file("readers")?;
        readers.lock().map_err(QueryError::io("lock", &self.tables.folder))?;
        part::list(folder)?.leftovers.iter().chain(parts).try_for_each(|path| remove(path))
    }
}

/// Threads that write parts.
struct Writers<'scope> {
    most: usize,
    threads: VecDeque<ScopedJoinHandle<'scope, Result<(), QueryError>>>,
}

impl Writers<'_> {
    /// Waits until there is room for one more.
    fn wait_for_one(&mut self) -> Result<(), QueryError> {
        if self.threads.len() < self.most { Ok(()) } else { self.threads.pop_front().map_or(Ok(()), end) }
    }

    fn join(self) -> Result<(), QueryError> {
        self.threads.into_iter().try_for_each(end)
    }
}

fn end(thread: ScopedJoinHandle<'_, Result<(), QueryError>>) -> Result<(), QueryError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Results of the queue, page by page, up to `end`.
struct Rows<'a> {
    store: &'a Sqlite,
    after: u64,
    end: u64,
    page: std::vec::IntoIter<Row>,
}

impl<'a> Rows<'a> {
    /// Results that are read at once.
    const PAGE: usize = 1000;

    /// Results from `first` to `end`, both included.
    fn new(store: &'a Sqlite, first: u64, end: u64) -> Self {
        Self { store, after: first - 1, end, page: Vec::new().into_iter() }
    }

    /// `seq` of the next row.
    fn peek(&mut self) -> Result<Option<u64>, QueryError> {
        if self.page.as_slice().is_empty() {
            let mut page = self.store.results(self.after, Self::PAGE)?;
            page.retain(|row| row.seq <= self.end);
            self.page = page.into_iter();
        }
        Ok(self.page.as_slice().first().map(|row| row.seq))
    }

    fn next(&mut self) -> Result<Option<Row>, QueryError> {
        self.peek()?;
        let row = self.page.next();
        if let Some(row) = &row {
            self.after = row.seq;
        }
        Ok(row)
    }
}

/// The digest of a row of the queue.
fn stamp(row: &Row) -> String {
    let usage = row.usage;
    let numbers = (row.seq, row.point, row.worker, row.attempts, usage.seconds, usage.cpu_seconds, usage.peak_bytes);
    // Neither numbers nor records fail to become text: their keys are strings, and their floats are written as null.
    let text = serde_json::to_vec(&(numbers, &row.record)).unwrap_or_default();
    Digest::of(&text).to_string()
}

fn remove(path: &Path) -> Result<(), QueryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(QueryError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn sync(folder: &Path) -> Result<(), QueryError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(QueryError::io("write", folder))
}

//! Tables, compared with the queue.

use std::path::Path;

use serde::Serialize;
use slipway_coordinator::store::Store as _;

use super::maker::{Made, Maker, Results};
use super::{Rows, Tables, Writing, stamp};
use crate::error::QueryError;
use crate::part::{self, Part};

/// A contradiction between a table and the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The file.
    pub file: String,
    /// The fault, in a sentence.
    pub what: String,
}

impl Tables {
    /// Compares every part that there is with the queue and the stored series, value by value. Later results are no fault,
    /// and neither are parts that the next query makes again because the queue has changed.
    ///
    /// # Errors
    /// Where queue or series cannot be read.
    pub fn verify(&self) -> Result<Vec<Fault>, QueryError> {
        let writing = self.write()?;
        let mut faults = Vec::new();
        writing.compare(&self.results_folder(), &mut Results::new(&self.study), &mut faults)?;
        for (index, output) in self.series_outputs() {
            let mut maker = writing.series_maker(index, output)?;
            writing.compare(&self.series_folder(&output.name), &mut maker, &mut faults)?;
        }
        Ok(faults)
    }

    /// Removes the parts that cannot be read to their ends, and names them.
    pub(crate) fn remove_damaged(&self) -> Result<Vec<String>, QueryError> {
        let writing = self.write()?;
        let mut folders = vec![self.results_folder()];
        folders.extend(self.series_outputs().map(|(_, output)| self.series_folder(&output.name)));
        let mut named = Vec::new();
        for folder in folders {
            for part in part::list(&folder)?.parts {
                if let Err(error) = part.contents() {
                    named.push(format!("{}: {error}", part.shown()));
                    writing.remove(&folder, &[part.path])?;
                }
            }
        }
        Ok(named)
    }
}

impl Writing<'_> {
    fn compare(&self, folder: &Path, maker: &mut dyn Maker, faults: &mut Vec<Fault>) -> Result<(), QueryError> {
        for part in part::list(folder)?.parts {
            if let Some(what) = self.difference(&part, maker)? {
                faults.push(Fault { file: part.shown(), what });
            }
        }
        Ok(())
    }

    /// How a part differs from the queue's rows.
    fn difference(&self, part: &Part, maker: &mut dyn Maker) -> Result<Option<String>, QueryError> {
        let read = part.footer().and_then(|footer| Ok((part.contents()?, footer)));
        let (batch, footer) = match read {
            Ok(read) => read,
            Err(error) => return Ok(Some(format!("it cannot be read: {error}"))),
        };
        // The queue has changed since, and the next query makes the part again.
        let is_old = self.row(part.last)?.is_none_or(|row| stamp(&row) != footer.last)
            || self.store.count_results(part.first, part.last)? != footer.results
            || !maker.accepts(&footer);
        if is_old {
            return Ok(None);
        }
        let mut rows = Rows::new(&self.store, part.first, part.last);
        let same = match maker.make(&mut rows) {
            Ok(Made::Part { last, batch: expected, .. }) => {
                last.seq == part.last && expected.columns() == batch.columns()
            }
            Ok(Made::Wider) => false,
            Err(error @ QueryError::Series { .. }) => return Ok(Some(format!("it cannot be compared: {error}"))),
            Err(error) => return Err(error),
        };
        Ok((!same).then(|| "its values are not those of the queue".to_owned()))
    }
}

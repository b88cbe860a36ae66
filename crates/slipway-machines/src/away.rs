//! Parts of labs on machines that nobody could reach when the lab went down: noted here, and taken down later.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_engine::rsh::Rsh;
use slipway_lab::model::{Lab, Machine};
use tempfile::NamedTempFile;

use crate::ask::order;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// The folder below the state root.
const FOLDER: &str = ".away";

/// The notes, a file for each lab's name.
#[derive(Debug)]
pub struct Away {
    folder: PathBuf,
}

/// Parts that a lab left behind.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    /// [`Part::number`](slipway_lab::model::Part::number): a later lab of the same name is none of its business.
    number: u64,
    machines: Vec<Machine>,
}

/// The outcome of taking a lab's parts down.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A part was there, and is gone.
    pub was_there: bool,
    /// Machines that still have a part, or may have one.
    pub failed: Vec<MachineError>,
}

impl Away {
    /// The notes below a state root.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { folder: root.join(FOLDER) }
    }

    /// Labs of which machines may still have a part, in order.
    ///
    /// # Errors
    /// As `readdir(3)`.
    pub fn labs(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            // A name of a temporary file begins with a dot.
            names.extend(name.to_str().filter(|name| !name.starts_with('.')).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a lab of this name has left parts somewhere.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Takes the parts down that a lab has on these machines, and those that were noted of it before. Machines that cannot be
    /// reached are noted. A machine of a batch job is not: its part ends with the job.
    ///
    /// # Errors
    /// When the note cannot be read or written. The parts that could be reached are gone then.
    pub fn down(
        &self,
        rsh: &Rsh,
        name: &str,
        lab: Option<(&Lab, &[&Machine])>,
        patience: Duration,
    ) -> io::Result<Outcome> {
        let mut all = self.read(name)?;
        if let Some((lab, machines)) = lab {
            all.push(Left { number: lab.part.number, machines: machines.iter().copied().cloned().collect() });
        }
        let (mut outcome, mut still) = (Outcome::default(), Vec::new());
        for Left { number, machines } in all {
            let down = Order::Down { lab: name.to_owned(), number, patience: patience.as_secs() };
            let asked = order(rsh, &machines.iter().collect::<Vec<_>>(), "take the lab down", &down);
            let mut left = Vec::new();
            for (machine, answer) in machines.into_iter().zip(asked) {
                match answer {
                    Ok(answer) => outcome.was_there |= matches!(answer, Answer::Done { was_there: true, .. }),
                    Err(error) => {
                        outcome.failed.push(error);
                        left.extend(Some(machine).filter(|machine| machine.job.is_none()));
                    }
                }
            }
            if !left.is_empty() {
                still.push(Left { number, machines: left });
            }
        }
        self.write(name, &still)?;
        Ok(outcome)
    }

    fn read(&self, name: &str) -> io::Result<Vec<Left>> {
        match fs::read(self.folder.join(name)) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, left: &[Left]) -> io::Result<()> {
        let path = self.folder.join(name);
        if left.is_empty() {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // The last one to leave closes the door; others' notes keep it.
            let _ = fs::remove_dir(&self.folder);
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let mut file = NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(left)?)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }
}

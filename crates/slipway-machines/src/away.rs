//! Parts of labs on machines that nobody could reach when the lab went down: noted here, and taken down later.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_engine::rsh::Rsh;
use slipway_lab::model::{Lab, Machine};
use tempfile::NamedTempFile;

use crate::ask::{all, each, others};
use crate::channel::Channel;
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

/// The outcome of taking a lab's parts down on other machines.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Machines that keep a note until all is down, each with the lab's number.
    noted: Vec<(u64, Channel)>,
    /// A part was there, and is gone.
    pub was_there: bool,
    /// Machines that still have a part, or may have one.
    pub failed: Vec<MachineError>,
}

impl Outcome {
    /// Has the other machines forget their notes: the part on this machine is down too.
    ///
    /// # Errors
    /// Of machines that do not answer any more. A note that stays is found to be old by the next `down --all` there.
    pub fn forget(&mut self, lab: &str) -> Result<(), MachineError> {
        let forget = |(number, mut channel): (u64, Channel)| {
            channel.have_done("end the lab", &Order::Forget { lab: lab.to_owned(), number }, &mut |_| ())
        };
        all(each(std::mem::take(&mut self.noted), forget)).map(drop)
    }
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
            let down = |machine: &Machine| {
                let patience = patience.as_secs();
                // A part in a batch job ends with the job.
                let order = Order::Down { lab: name.to_owned(), number, patience, note: machine.job.is_none() };
                let mut channel = Channel::open(rsh, machine)?;
                channel.have_done("take the lab down", &order, &mut |_| ()).map(|answer| (channel, answer))
            };
            let asked = each(machines.iter().collect(), down);
            let mut left = Vec::new();
            for (machine, answer) in machines.into_iter().zip(asked) {
                match answer {
                    Ok((channel, answer)) => {
                        outcome.was_there |= matches!(answer, Answer::Done { was_there: true, .. });
                        outcome.noted.push((number, channel));
                    }
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

    /// Notes a lab's other machines, before its part here goes down at the word of one of them. Should that one be killed,
    /// `down --all` here takes down what is left.
    pub(crate) fn note(&self, lab: &Lab) -> io::Result<()> {
        let mut all = self.read(&lab.name)?;
        let number = lab.part.number;
        let others = others(&lab.machines, lab.part.machine);
        let machines: Vec<Machine> = others.into_iter().filter(|machine| machine.job.is_none()).cloned().collect();
        if !machines.is_empty() && all.iter().all(|left| left.number != number) {
            all.push(Left { number, machines });
            self.write(&lab.name, &all)?;
        }
        Ok(())
    }

    /// Forgets what was noted of a lab of this number.
    pub(crate) fn forget(&self, name: &str, number: u64) -> io::Result<()> {
        let mut all = self.read(name)?;
        all.retain(|left| left.number != number);
        self.write(name, &all)
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

//! The node file of a job within a job of PBS: it names nodes in the place of machines.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_lab::model::{Job, Lab};

/// Where nodes see the folder that holds the service's.
pub(super) const IN_NODES: &str = "/run/slipway";
/// The variable that names the file (`qsub(1)`).
const VARIABLE: &str = "PBS_NODEFILE";

/// A node file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeFile {
    /// The number of the job's process, by which files of several jobs differ.
    job: u32,
    /// A line for each slot, with its node's name.
    text: String,
}

impl NodeFile {
    /// The file of a job. `None` where this process is in no job of PBS, or the user chose another file.
    pub(super) fn of(lab: &Lab, job: &Job) -> Option<Self> {
        std::env::var_os(VARIABLE).filter(|_| !job.env.contains_key(VARIABLE))?;
        let nodes = job.nodes.iter().map(|&node| &lab.nodes[node]);
        let lines = |slots: u32, name: &str| format!("{name}\n").repeat(slots.try_into().unwrap_or(usize::MAX));
        Some(Self { job: std::process::id(), text: nodes.map(|node| lines(node.slots, &node.name)).collect() })
    }

    /// The variable that names it to programs.
    pub(super) fn variable(&self) -> (String, String) {
        (VARIABLE.to_owned(), Path::new(IN_NODES).join(self.name()).display().to_string())
    }

    /// Writes it where this machine's nodes see it: in `folder`, their `/run/slipway`.
    pub(super) fn write(&self, folder: &Path) -> io::Result<Written> {
        let path = folder.join(self.name());
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&path)?;
        file.write_all(self.text.as_bytes())?;
        Ok(Written(path))
    }

    fn name(&self) -> String {
        format!("nodes-{}", self.job)
    }
}

/// A node file on disk. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Written(PathBuf);

impl Written {
    /// Removes it. One that is gone is as well, and the end of the lab removes the rest.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.remove();
    }
}

//! Coordinators that the server started.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::Serialize;
use slipway_coordinator::Folder;
use utoipa::ToSchema;

use super::Id;
use crate::error::ApiError;

/// Bytes of a coordinator's last words.
const WORDS: u64 = 4096;

/// A start by this server.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Start {
    /// The exit code; `null` while it runs, -1 after a signal.
    pub(crate) end: Option<i32>,
    /// Its last words on standard error.
    pub(crate) words: String,
}

/// Last starts, by campaign.
#[derive(Debug)]
pub(crate) struct Starts {
    program: PathBuf,
    last: Arc<Mutex<HashMap<Id, Start>>>,
}

impl Starts {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, last: Arc::default() }
    }

    pub(crate) fn last(&self, id: &Id) -> Option<Start> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) fn forget(&self, id: &Id) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Starts a coordinator. A second one for the same folder ends by itself, as the folder has a lock.
    pub(crate) fn start(&self, id: &Id, folder: &Folder, workers: Option<u32>) -> Result<(), ApiError> {
        let log = folder.path().join("start.log");
        // A file of its own: the coordinator before may have the old one open.
        let _ = fs::remove_file(&log);
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "--color", "never", "campaign", "run"]);
        if let Some(workers) = workers {
            command.args(["--workers", &workers.to_string()]);
        }
        // A group of its own: Ctrl-C ends the server, and campaigns go on.
        command.arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut child = command.stderr(File::create_new(&log)?).spawn()?;
        let (last, id, root) = (self.last.clone(), id.clone(), folder.path().to_owned());
        let note = move |end| {
            let start = Start { end, words: if end.is_some() { words(&log, &root) } else { String::new() } };
            last.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), start);
        };
        note(None);
        thread::spawn(move || note(Some(child.wait().ok().and_then(|status| status.code()).unwrap_or(-1))));
        Ok(())
    }
}

/// The end of a coordinator's log, without paths of this machine.
fn words(log: &Path, root: &Path) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(WORDS)))?;
        let mut bytes = Vec::new();
        file.take(WORDS).read_to_end(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    slipway_document::text::printable(&text.replace(&*root.to_string_lossy(), "the campaign's folder"))
}

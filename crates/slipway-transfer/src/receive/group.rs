//! Whole files take their names in groups: the disk has the content of all by then, at the price of one wait.
//!
//! While one group waits for the disk, the next one gathers. So groups grow with the disk's delay, by themselves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit};

use super::files::{Files, Trouble};
use super::incoming::{Incoming, Part};
use crate::message::Answer;

/// Files of a group, about, at most.
const MOST: usize = 4096;
/// From this many files on, one `syncfs` is cheaper than an `fsync` each.
const MANY: usize = 8;

/// A file of which nothing more comes.
pub(super) struct Whole {
    pub(super) incoming: Arc<Incoming>,
    /// Its bytes, which are to take their name; `None` where the destination has it already.
    pub(super) part: Option<Arc<Part>>,
}

/// The files that wait for their names.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Whole>,
    closed: bool,
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds files. Waits while there are as many as this process may hold open, and forgets them once the session is over.
    pub(super) fn add(&self, mut files: Vec<Whole>) {
        if files.is_empty() {
            return;
        }
        let most = most();
        let state = self.changed.wait_while(self.state(), |state| state.files.len() >= most && !state.closed);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.files.append(&mut files);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// No more come.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// The next group; `None` when there are no more.
    fn next(&self) -> Option<Vec<Whole>> {
        let state = self.changed.wait_while(self.state(), |state| state.files.is_empty() && !state.closed);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let files = std::mem::take(&mut state.files);
        self.changed.notify_all();
        (!files.is_empty()).then_some(files)
    }

    /// Gives groups their names, until there are no more. The disk has their content first, where
    /// the sender asked for that.
    pub(super) fn run(&self, files: &Files) {
        while let Some(group) = self.next() {
            let at_once = !files.sync || to_disk_at_once(&group, files);
            let mut settled = Vec::with_capacity(group.len());
            let mut over = None;
            for whole in group {
                match place(&whole, files, at_once) {
                    Ok(()) => settled.push(whole.incoming.id),
                    Err(Trouble::File(error)) => files.fail(&whole.incoming, &error),
                    Err(Trouble::Session(why)) => {
                        over = Some(why);
                        break;
                    }
                }
            }
            files.settle(settled);
            if let Some(why) = over {
                let _ = files.answers.send(Answer::Refused(why));
                self.close();
                return;
            }
        }
    }
}

/// Files that this process may hold open in a group.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    (limit.unwrap_or(usize::MAX) / 8).clamp(1, MOST)
}

/// Has the disk take the content of a large group. False where each file has to see to it.
fn to_disk_at_once(group: &[Whole], files: &Files) -> bool {
    let many = group.iter().filter(|whole| whole.part.is_some()).count() >= MANY;
    // An error may be another program's: each file shows then whether it is its own.
    many && files.tree.sync().is_ok()
}

fn place(whole: &Whole, files: &Files, on_disk: bool) -> Result<(), Trouble> {
    let Some(part) = &whole.part else { return Ok(()) };
    if !on_disk {
        part.file.sync_all()?;
    }
    match part.unnamed {
        Some(_) => files.tree.name(&part.file, &whole.incoming.path)?,
        None => files.tree.finish(&whole.incoming.path)?,
    }
    Ok(())
}

//! The folder of campaigns.

mod start;
mod upload;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use slipway_campaign::model::Design;
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Counts, Sqlite, State, Store as _};
use slipway_study::campaign::ledger::{self, Run};
use slipway_study::campaign::{CampaignError, InputError, Study};

use crate::error::ApiError;
use start::Starts;

pub(crate) use start::Start;
pub use upload::try_archive;
pub(crate) use upload::{Brought, names};

/// Name of a campaign in its folder, and in addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Id(String);

impl TryFrom<String> for Id {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_id = (1..=128).contains(&text.len())
            && text.bytes().all(is_plain)
            && text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if is_id { Ok(Self(text)) } else { Err("a campaign's name is of letters, digits, `-`, `_` and `.`") }
    }
}

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// All campaigns.
#[derive(Debug)]
pub(crate) struct Shelf {
    root: PathBuf,
    items: Mutex<HashMap<Id, Arc<Item>>>,
    starts: Starts,
}

/// A campaign.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) study: Study,
    pub(crate) folder: Folder,
    store: Mutex<Sqlite>,
    /// Device and inode of the queue, and inode of the setup: another campaign may take the folder, and an extension writes
    /// the setup anew.
    stamp: (u64, u64, u64),
}

impl Item {
    pub(crate) fn store(&self) -> MutexGuard<'_, Sqlite> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Progress of a campaign.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) word: &'static str,
    pub(crate) counts: Counts,
    pub(crate) runs: Vec<Run>,
    pub(crate) is_running: bool,
    pub(crate) start: Option<Start>,
}

impl Shelf {
    pub(crate) fn new(root: PathBuf, program: PathBuf) -> Self {
        Self { root, items: Mutex::default(), starts: Starts::new(program) }
    }

    fn items(&self) -> MutexGuard<'_, HashMap<Id, Arc<Item>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of all campaigns, the latest change first.
    pub(crate) fn ids(&self) -> io::Result<Vec<Id>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            // The entry's own kind: a symbolic link is no campaign.
            let is_folder = entry.file_type()?.is_dir() && entry.path().join("setup.json").is_file();
            let name = entry.file_name().into_string().ok().and_then(|name| Id::try_from(name).ok());
            if let (true, Some(id)) = (is_folder, name)
                && let Ok(database) = fs::metadata(entry.path().join("campaign.db"))
            {
                found.push((std::cmp::Reverse(database.mtime()), id));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// The folder of projects and analyses of `OpenStudio`.
    pub(crate) fn openstudio(&self) -> PathBuf {
        self.root.join(".openstudio")
    }

    fn path(&self, id: &Id) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// A campaign. It blocks.
    pub(crate) fn item(&self, id: &Id) -> Result<Arc<Item>, ApiError> {
        let missing = || ApiError::missing("there is no such campaign");
        let path = self.path(id);
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|kind| kind.is_dir());
        let database = fs::symlink_metadata(path.join("campaign.db")).ok().filter(|kind| is_folder && kind.is_file());
        let Some(database) = database else {
            self.items().remove(id);
            return Err(missing());
        };
        let setup = fs::symlink_metadata(path.join("setup.json"))?;
        let stamp = (database.dev(), database.ino(), setup.ino());
        if let Some(item) = self.items().get(id).filter(|item| item.stamp == stamp) {
            return Ok(item.clone());
        }
        let study = Study::open(&path)?;
        let folder = Folder::open(&path)?;
        let store = Mutex::new(Sqlite::open(&folder.store())?);
        let item = Arc::new(Item { study, folder, store, stamp });
        self.items().insert(id.clone(), item.clone());
        Ok(item)
    }

    /// Progress of a campaign.
    pub(crate) fn look(&self, id: &Id, item: &Item) -> Result<Look, ApiError> {
        let (state, counts) = {
            let store = item.store();
            (store.state()?, store.counts()?)
        };
        let start = self.starts.last(id);
        let is_running = item.folder.is_running()? || start.as_ref().is_some_and(|start| start.end.is_none());
        let runs = ledger::read(&item.folder)?;
        let word = match (state, is_running, counts.waiting + counts.running) {
            (State::Cancelled, ..) => "cancelled",
            (_, false, 0) => "ended",
            (State::Paused, ..) => "paused",
            (State::Running, true, _) => "running",
            (State::Running, false, _) if runs.is_empty() => "new",
            (State::Running, false, _) => "interrupted",
        };
        Ok(Look { word, counts, runs, is_running, start })
    }

    /// Starts a campaign, or goes on with it: by `slipway campaign run`, which outlives the server.
    pub(crate) fn start(&self, id: &Id, workers: Option<u32>) -> Result<(), ApiError> {
        let item = self.item(id)?;
        let look = self.look(id, &item)?;
        match look.word {
            "cancelled" => {
                return Err(ApiError::conflict("start a campaign that is cancelled\nHint: resume it first"));
            }
            "ended" => return Err(ApiError::conflict("start a campaign that has ended: no point waits")),
            _ if look.is_running => return Err(ApiError::conflict("start a campaign that runs")),
            _ => {}
        }
        self.starts.start(id, &item.folder, workers)
    }

    /// Makes a campaign of a file's text and the files that it brings, and returns its name: `id`, or the file's. Without a
    /// text, the file is `campaign.yaml` among the files.
    pub(crate) fn add(&self, id: Option<Id>, files: &Brought<'_>, text: Option<String>) -> Result<Id, ApiError> {
        let name = "campaign.yaml";
        // Made beside its place and moved there as a whole, apart from the queue, whose name the file has.
        let room = upload::Room::new(&self.root)?;
        room.fill(files)?;
        let text = text.map_or_else(|| room.text(name), Ok)?;
        let campaign =
            slipway_campaign::parse(name, &text, Path::new("/campaign")).map_err(|errors| ApiError::file(&errors))?;
        let list = match &campaign.design {
            Design::List { source } => Some(source.clone()),
            _ => None,
        };
        let sources = campaign.inputs.iter().filter_map(|input| input.source.path().map(Path::to_owned)).chain(list);
        upload::only_own(&campaign, sources)?;
        let id = id.map_or_else(|| Id::try_from(campaign.name).map_err(ApiError::bad), Ok)?;
        let place = self.path(&id);
        let taken =
            || ApiError::conflict("there is a campaign of this name\nHint: give the file another `campaign:` name");
        if place.symlink_metadata().is_ok() {
            return Err(taken());
        }
        fs::create_dir(&place).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => ApiError::internal(&error),
        })?;
        let made = room.keep(&place).map_err(ApiError::from).and_then(|sources| {
            let study = Study::new(name.to_owned(), text, sources.clone())?;
            study.check().map_err(|error| unfit(error, &sources))?;
            Ok(study.place(place.clone())?)
        });
        match made {
            Ok(_) => Ok(id),
            Err(error) => {
                // Best effort: the error is told already.
                let _ = fs::remove_dir_all(&place);
                Err(error)
            }
        }
    }

    /// Deletes a campaign with all results.
    pub(crate) fn delete(&self, id: &Id) -> Result<(), ApiError> {
        let item = self.item(id)?;
        if self.look(id, &item)?.is_running {
            return Err(ApiError::conflict("delete a campaign that runs\nHint: cancel it first"));
        }
        let _lock = item.folder.lock()?;
        self.items().remove(id);
        self.starts.forget(id);
        // Under another name first, so that nobody finds a half of it.
        let gone = self.root.join(format!(".gone-{}", crate::tokens::secret()));
        fs::rename(self.path(id), &gone)?;
        Ok(fs::remove_dir_all(&gone)?)
    }
}

/// Tells why a campaign whose files are in `sources` cannot run, without the paths of this machine.
fn unfit(error: CampaignError, sources: &Path) -> ApiError {
    match error {
        CampaignError::Input(InputError::Engine(error)) => {
            let text = error.to_string().replace(&format!("{}/", sources.display()), "");
            ApiError::bad(&slipway_document::text::printable(&text))
        }
        _ => ApiError::bad("find an input: the archive lacks a file that `inputs` names"),
    }
}

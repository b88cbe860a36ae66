//! Storage of a campaign's objects: its folder, or a bucket.

use std::io;

use slipway_coordinator::Folder;
use slipway_results::objects::service::{Owner, PROGRAM, Service};
use slipway_results::objects::{Directory, Remote, Storage};

use super::{CampaignError, Study};
use crate::StudyError;

/// The file that tells this campaign's folder from all others, in a bucket.
const ID: &str = "storage-id";
/// The kernel makes a new one for each read: `random(4)`.
const FRESH: &str = "/proc/sys/kernel/random/uuid";

/// Opens a campaign's storage for reading.
///
/// # Errors
/// Where the campaign has no folder, or its storage cannot be used. A bucket that cannot be used says so when it is read.
pub fn open(study: &Study) -> Result<Box<dyn Storage>, CampaignError> {
    Ok(match service(study)? {
        Some(service) => Box::new(Remote::new(service)),
        None => Box::new(Directory::open(&Folder::open(study.folder())?.objects())?),
    })
}

/// Opens a campaign's storage for changes. A bucket takes objects, and no other campaign has this part of it.
///
/// # Errors
/// As [`open`], and where a bucket cannot be used.
pub fn begin(study: &Study) -> Result<Box<dyn Storage>, CampaignError> {
    let Some(service) = service(study)? else { return open(study) };
    let remote = Remote::new(service);
    remote.begin(Owner { campaign: study.campaign.name.clone(), id: id(study)? })?;
    Ok(Box::new(remote))
}

/// Looks whether a bucket can be read, without a change.
///
/// # Errors
/// Where the bucket cannot be used.
pub(super) fn check(study: &Study) -> Result<(), CampaignError> {
    let Some(service) = service(study)? else { return Ok(()) };
    Ok(Remote::new(service).look()?)
}

/// The program for a campaign's bucket; `None` where results are in its folder.
pub(super) fn service(study: &Study) -> Result<Option<Service>, CampaignError> {
    let Some(bucket) = study.campaign.storage.bucket.clone() else { return Ok(None) };
    let own = slipway_sys::exe::path().map_err(StudyError::io("find this program's own file"))?;
    Ok(Some(Service { program: own.with_file_name(PROGRAM), bucket }))
}

/// A text that no other campaign's folder has. It stays the same for this one, also where the folder is moved.
fn id(study: &Study) -> Result<String, CampaignError> {
    let path = study.folder().join(ID);
    let make = || -> io::Result<String> {
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            id => return id,
        }
        let id = std::fs::read_to_string(FRESH)?.trim().to_owned();
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, &id)?;
        std::fs::rename(&fresh, &path)?;
        Ok(id)
    };
    Ok(make().map_err(StudyError::io(format!("write {}", path.display())))?)
}

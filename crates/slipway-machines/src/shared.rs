//! Folders that all machines of a lab share, such as homes on NFS: whether they are the same folder.

use std::collections::BTreeSet;
use std::path::Path;

use slipway_lab::model::Lab;
use tempfile::NamedTempFile;

use crate::ask::{all, each};
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order};

/// Beginning of the name of a file that is there for the check only.
const MARK: &str = ".slipway-shared-";

/// Puts a file into each folder that the lab says is shared, and looks for it on all machines. Numbers of file systems tell
/// less: two clients of NFS or of a FUSE file system have different ones.
pub(crate) fn check(lab: &Lab, channels: &mut [Channel]) -> Result<(), MachineError> {
    let mounts = lab.nodes.iter().flat_map(|node| &node.mounts);
    let shared: BTreeSet<&Path> = mounts.filter(|mount| mount.shared).map(|mount| mount.source.as_path()).collect();
    for folder in shared {
        let mark = tempfile::Builder::new().prefix(MARK).tempfile_in(folder).and_then(|mark| {
            // Another client of the file system may look before this one has written by itself.
            mark.as_file().sync_all()?;
            Ok(mark)
        });
        let mark: NamedTempFile =
            mark.map_err(|source| MachineError::Unshareable { folder: folder.to_owned(), source })?;
        let found = all(each(channels.iter_mut().collect(), |channel: &mut Channel| {
            let order = Order::Find { path: mark.path().to_owned() };
            match channel.have_done("look at a shared folder", &order, &mut |_| ())? {
                Answer::Done { was_there: true, .. } => Ok(None),
                _ => Ok(Some(channel.machine.clone())),
            }
        }))?;
        let lacking: Vec<String> = found.into_iter().flatten().collect();
        if !lacking.is_empty() {
            return Err(MachineError::NotShared { folder: folder.to_owned(), machines: lacking.join(", ") });
        }
    }
    Ok(())
}

/// Whether this machine has such a file, for the coordinator.
pub(crate) fn find(path: &Path) -> Answer {
    Answer::Done { was_there: path.exists(), connections: 0, notes: Vec::new() }
}

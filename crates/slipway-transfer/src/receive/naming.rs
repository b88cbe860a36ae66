//! Whole files take their names in groups: the disk has the content of all by then, at the price of one wait.
//!
//! While one group waits for the disk, the next one gathers. So groups grow with the disk's delay, by themselves. A group
//! takes its names while the disk works for the next one.

use std::sync::mpsc::{Receiver, sync_channel};

use super::files::{Files, Trouble};
use super::group::Whole;

/// From this many files on, one `syncfs` is cheaper than an `fsync` each.
const MANY: usize = 8;

/// A group that the disk has seen to.
struct Ready {
    files: Vec<Whole>,
    /// The disk has the content of all; else each file has to see to it.
    on_disk: bool,
}

/// Gives groups their names, until there are no more. The disk has their content first, where
/// the sender asked for that.
pub(super) fn run(files: &Files<'_>) {
    // One group waits for the disk, and one takes its names: with more, too many files would be open.
    let (to_name, ready) = sync_channel(0);
    std::thread::scope(|scope| {
        scope.spawn(move || name(files, &ready));
        while let Some(group) = files.group.next() {
            let on_disk = !files.sync || to_disk_at_once(&group, files);
            if to_name.send(Ready { files: group, on_disk }).is_err() {
                return;
            }
        }
        drop(to_name);
    });
}

/// Names groups, until there are no more or the session cannot go on.
fn name(files: &Files<'_>, ready: &Receiver<Ready>) {
    while let Ok(Ready { files: group, on_disk }) = ready.recv() {
        let mut settled = Vec::with_capacity(group.len());
        let mut over = None;
        for whole in group {
            match place(&whole, files, on_disk) {
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
            files.refuse(why);
            files.group.close();
            return;
        }
    }
}

/// Has the disk take the content of a large group. False where each file has to see to it.
fn to_disk_at_once(group: &[Whole], files: &Files<'_>) -> bool {
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

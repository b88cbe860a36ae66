//! Finds the parts of a lab that this machine cannot make, before anything is made: for `up`, and for a dry run.

mod program;
mod sysctl;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

use slipway_lab::Remark;
use slipway_lab::model::{Image, Lab, Node};
use slipway_sys::cgroup::CgroupError;

use super::refused::UpError;
use super::tune::{lay, tunings};
use crate::anchor::room;
use crate::cgroup::without_disk;
use crate::condition::{Links, read_matrices};
use crate::facts;
use crate::network::keeps_addresses;
use crate::node::user::make_net;
use crate::tuning::Tunings;
use crate::verbs;
use program::Found;
use slipway_image::{Rootfs, Store, folder};

/// Looks for what [`up`](super::up()) would refuse before it makes anything, and warns of limits beyond this machine.
///
/// # Errors
/// As [`up`](super::up()): [`UpError::Refused`] has everything that is wrong with images, mounts, limits, kernel settings and
/// programs at once.
pub fn check(store: &Store, lab: &Lab) -> Result<(), UpError> {
    prepare(store, lab).map(drop)
}

/// A lab that this machine can make.
pub(super) struct Prepared {
    /// The lab, with the settings that profiles give its hosts and nodes here.
    pub(super) lab: Lab,
    pub(super) tunings: Tunings,
    pub(super) links: Links,
}

/// The same, for `up`, which goes on from what was found.
pub(super) fn prepare(store: &Store, lab: &Lab) -> Result<Prepared, UpError> {
    let tunings = tunings(lab)?;
    let tuned = lay(lab, &tunings);
    let links = look(store, &tuned)?;
    Ok(Prepared { lab: tuned, tunings, links })
}

fn look(store: &Store, lab: &Lab) -> Result<Links, UpError> {
    let mut remarks = Remarks::default();
    images(store, lab, &mut remarks);
    for node in here(lab) {
        mounts(lab, node, &mut remarks);
        limits(lab, node, &mut remarks);
        command(lab, node, &mut remarks);
    }
    rights(lab, &mut remarks);
    rdma(lab, &mut remarks);
    for (message, help) in room::lacking(lab) {
        remarks.add(&["nodes"], message, help);
    }
    sysctl::check(lab, &mut remarks);
    warn(lab);
    if !remarks.0.is_empty() {
        return Err(UpError::Refused(remarks.0));
    }
    let links = Links::new(read_matrices(lab)?);
    links.check(lab)?;
    Ok(links)
}

/// The nodes of this machine's part.
fn here(lab: &Lab) -> impl Iterator<Item = &Node> {
    lab.nodes.iter().filter(|node| lab.is_here(node.host))
}

#[derive(Debug, Default)]
struct Remarks(Vec<Remark>);

impl Remarks {
    fn add(&mut self, place: &[&str], message: impl Into<String>, help: impl Into<String>) {
        let place = place.iter().map(|key| (*key).to_owned()).collect();
        self.0.push(Remark { place, message: message.into(), help: help.into() });
    }

    /// `error` may have a hint behind it.
    fn error(&mut self, place: &[&str], error: &impl Display, otherwise: &str) {
        let account = error.to_string().replace(". Hint: ", "\nHint: ");
        let (message, help) = account.split_once("\nHint: ").unwrap_or((&account, otherwise));
        self.add(place, message, help);
    }

    /// An image and its libibverbs.
    fn device(&mut self, image: &Image, outcome: Result<(), String>) {
        if let Err(reason) = outcome {
            let help = "install a build of the plug-in for it, take another image, or leave `rdma` out";
            self.add(&["images", &image.name], format!("give it an RDMA device: {reason}"), help);
        }
    }
}

fn images(store: &Store, lab: &Lab, remarks: &mut Remarks) {
    for image in &lab.images {
        if let Err(error) = store.check(image) {
            let otherwise =
                "an image is `host`, a folder, a tar archive (also gzip or zstd), or an OCI or docker image";
            remarks.error(&["images", &image.name, "path"], &error, otherwise);
        }
    }
}

fn mounts(lab: &Lab, node: &Node, remarks: &mut Remarks) {
    let root = folder(&lab.images[node.image]);
    for (index, mount) in node.mounts.iter().enumerate() {
        let index = index.to_string();
        let (source, target) = (mount.source.display(), mount.target.display());
        let is_folder = match std::fs::metadata(&mount.source) {
            Ok(found) => found.is_dir(),
            Err(error) => {
                let help = "check the path: it is on this machine, and relative to the lab file";
                remarks.add(
                    &["nodes", &node.name, "mounts", &index, "source"],
                    format!("mount {source}: {error}"),
                    help,
                );
                continue;
            }
        };
        // Within another mount, or on a file system that is the node's own, the target is made as it has to be.
        let fresh = ["/run", "/tmp", "/scratch"].map(Path::new);
        let others = node.mounts.iter().filter(|other| *other != mount).map(|other| other.target.as_path());
        let covered = fresh.into_iter().chain(others).any(|above| mount.target.starts_with(above));
        let Some(root) = root.as_ref().filter(|_| !covered) else { continue };
        let (message, help) = match (is_folder, program::look(root, &mount.target)) {
            (true, Found::File | Found::Program) => {
                (format!("mount folder {source} on {target}, which is a file in the image"), "choose another target")
            }
            (false, Found::Folder) => (
                format!("mount file {source} on {target}, which is a folder in the image"),
                "write the file's whole path as the target",
            ),
            _ => continue,
        };
        remarks.add(&["nodes", &node.name, "mounts", &index, "target"], message, help);
    }
}

fn limits(lab: &Lab, node: &Node, remarks: &mut Remarks) {
    let outcome = without_disk(&node.limits).and_then(|limits| limits.check());
    let Err(error) = outcome else { return };
    let CgroupError::BadLimit { limit, .. } = &error else { return };
    let otherwise = "write a limit that this machine can keep";
    let host = &lab.hosts[node.host];
    let of_host = *limit == "cpuset" && host.cpus == node.limits.cpuset;
    let place = if of_host { ["hosts", &host.name, "cpus"] } else { ["nodes", &node.name, *limit] };
    remarks.error(&place, &error, otherwise);
}

fn command(lab: &Lab, node: &Node, remarks: &mut Remarks) {
    let (Some(command), Some(root)) = (&node.command, folder(&lab.images[node.image])) else { return };
    let Some(name) = command.first() else { return };
    let (message, help) = match program::find(&root, node, name) {
        Found::Nothing if name.contains('/') => (
            format!("start {name}: the node has no such file"),
            "programs come from the node's image and its mounts; its /tmp and /run are empty at first",
        ),
        Found::Nothing => (
            format!("start {name}: it is in no folder of the node's PATH"),
            "write the program's whole path, or install it in the image",
        ),
        Found::Folder => (format!("start {name}: it is a folder"), "write the path of a program"),
        Found::File => (format!("start {name}: the file cannot be executed"), "make it executable: `chmod +x`"),
        Found::Program | Found::Unknown => return,
    };
    remarks.add(&["nodes", &node.name, "command"], message, help);
}

/// Looks whether nodes can be held here whose programs may change their own network.
fn rights(lab: &Lab, remarks: &mut Remarks) {
    let mut those = here(lab).filter(|node| node.rules_its_network()).peekable();
    if those.peek().is_none() {
        return;
    }
    let problem = if keeps_addresses() {
        let why = |error| format!("no user namespace can be made for it: {error}");
        let help = "user namespaces are what keeps it to its own network: `sysctl user.max_user_namespaces`";
        make_net().err().map(|error| (why(error), help))
    } else {
        Some((
            "the kernel is older than 5.18: its bridges cannot hold such a node to its own address".to_owned(),
            "boot a newer kernel, or leave `capabilities` out",
        ))
    };
    for node in those {
        if let Some((message, help)) = &problem {
            remarks.add(&["nodes", &node.name, "capabilities"], message.clone(), *help);
        }
    }
}

/// Looks whether images of nodes with an RDMA device can use it, as far as they are folders.
fn rdma(lab: &Lab, remarks: &mut Remarks) {
    for image in with_device(lab).map(|image| &lab.images[image]) {
        if let Some(root) = folder(image) {
            remarks.device(image, verbs::check(&[root]));
        }
    }
}

/// The same for images of layers, which are there once they are unpacked.
pub(super) fn unpacked(lab: &Lab, images: &[Rootfs]) -> Result<(), UpError> {
    let mut remarks = Remarks::default();
    for index in with_device(lab) {
        let (image, root) = (&lab.images[index], &images[index]);
        if folder(image).is_none() {
            remarks.device(image, verbs::check(&root.lowers));
        }
    }
    if remarks.0.is_empty() { Ok(()) } else { Err(UpError::Refused(remarks.0)) }
}

/// Images of nodes with an RDMA device.
fn with_device(lab: &Lab) -> impl Iterator<Item = usize> {
    let nodes = here(lab).filter(|node| node.networks(lab).any(|network| network.bypasses.rdma));
    nodes.map(|node| node.image).collect::<BTreeSet<_>>().into_iter()
}

/// Limits that nodes never feel, since the machine has less.
fn warn(lab: &Lab) {
    let memory = facts::memory();
    let processors = std::thread::available_parallelism().map_or(usize::MAX, std::num::NonZero::get);
    // Once for a group.
    let mut told = BTreeSet::new();
    for node in here(lab) {
        let Ok(limits) = without_disk(&node.limits) else { continue };
        if let (Some(asked), true) = (node.limits.memory, memory > 0)
            && asked.0 > memory
        {
            #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
            let has = memory as f64 / f64::from(1 << 30);
            told.insert((&node.group, format!("may use {asked} of memory, and this machine has {has:.1}GiB")));
        }
        #[expect(clippy::cast_precision_loss, reason = "no machine has as many")]
        if let Some(cores) = limits.cpu.filter(|cores| *cores > processors as f64) {
            let count = if processors == 1 { "processor" } else { "processors" };
            told.insert((&node.group, format!("may use {cores} cores, and this machine has {processors} {count}")));
        }
    }
    for (group, what) in told {
        tracing::warn!("node {group} {what}: the limit is never felt");
    }
}

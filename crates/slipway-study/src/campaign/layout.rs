//! A worker's node: its place in the lab, its folders, and its limits.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use slipway_campaign::model::{Campaign, ENGINES, PYTHON};
use slipway_coordinator::Folder;
use slipway_python::Environment;
use slipway_results::Digest;

/// Folder of the worker's socket in its node.
pub(super) const CALL: &str = "/campaign/call";
/// Folder of inputs in a worker's node.
pub(super) const INPUTS: &str = "/campaign/inputs";
/// Folder in a worker's node that the worker may write to.
pub(super) const WORK: &str = "/campaign/work";
/// Folder for objects of results, in a worker's node on another machine.
pub(super) const OUT: &str = "/campaign/out";
/// Folder of points there: on the machine's own disk, which is faster than one that machines share.
pub(super) const SCRATCH: &str = "/scratch/work";
/// The file in [`WORK`] with a worker's reason to end.
pub(super) const WORDS: &str = "error";
/// The program of a worker in its node.
pub(super) const AGENT: &str = "/run/slipway/agent";

/// Characters of a campaign's name in its lab's name, which has 32 at most.
const NAME: usize = 16;
/// The same where a worker's number follows.
const SHORT: usize = 9;
/// Digits of the folder's digest in there.
const DIGITS: usize = 6;

/// The lab of a campaign's workers. Campaigns of one name in two folders have labs of their own.
pub(super) fn lab_name(campaign: &Campaign, folder: &Path) -> String {
    let name: String = campaign.name.chars().take(NAME).collect();
    format!("campaign-{name}-{}", digits(folder))
}

/// The lab of one worker on another machine.
pub(super) fn far_lab_name(campaign: &Campaign, folder: &Path, worker: u32) -> String {
    let name: String = campaign.name.chars().take(SHORT).collect();
    format!("campaign-{name}-{}-w{worker}", digits(folder))
}

fn digits(folder: &Path) -> String {
    // Another path to the same folder gives the same name. A folder that is not there yet has no lab.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let digest = Digest::of(folder.as_os_str().as_bytes()).to_string();
    digest[..DIGITS].to_owned()
}

/// A mount of a lab file. `target`: with `:ro` where the node may not write.
pub(super) fn mount(source: &Path, target: &str) -> Value {
    json!(format!("{}:{target}", source.display()))
}

/// The mounts that all workers have.
pub(super) fn shared(folder: &Folder, environment: Option<&Environment>) -> Vec<Value> {
    let mut mounts = vec![mount(&folder.inputs(), &format!("{INPUTS}:ro"))];
    if let Some(environment) = environment {
        mounts.push(mount(&folder.engine(), &format!("{ENGINES}:ro")));
        mounts.push(mount(environment.folder(), &format!("{PYTHON}:ro")));
    }
    mounts
}

/// The lab file of workers' nodes, each with its mounts.
pub(super) fn lab(name: &str, campaign: &Campaign, all: impl Iterator<Item = (String, Vec<Value>)>) -> Value {
    let workers = &campaign.workers;
    let mut nodes = Map::new();
    for (node, mounts) in all {
        let mut settings = json!({
            "image": if workers.image == "host" { "host" } else { "campaign" },
            "cpu": format!("{} cores", workers.cpus.0),
            "mounts": mounts,
        });
        if let Some(memory) = workers.memory {
            settings["memory"] = json!(format!("{}B", memory.0));
        }
        nodes.insert(node, settings);
    }
    let mut lab = json!({"lab": name, "nodes": nodes});
    if workers.image != "host" {
        lab["images"] = json!({"campaign": workers.image});
    }
    if workers.network {
        lab["hosts"] = json!("machine");
        lab["networks"] = json!({"net": "host"});
    } else {
        lab["networks"] = json!({});
    }
    lab
}

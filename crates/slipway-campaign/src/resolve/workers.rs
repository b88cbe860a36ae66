//! The workers.

use std::net::SocketAddr;
use std::path::Path;

use slipway_document::errors::Report;
use slipway_document::units::{Cores, Seconds};

use super::positive;
use crate::file::{Place as Word, WorkerSettings, Workers as Written};
use crate::model::{Place, Slurm, Workers};

/// Most workers of a campaign: as many nodes as a lab has at most.
const MOST_WORKERS: u32 = 10_000;
/// Longest name of a partition, in characters.
const LONGEST: usize = 64;

pub(super) fn workers(written: Option<&Written>, base_dir: &Path, report: &mut Report) -> Workers {
    let none = WorkerSettings::default();
    let (settings, most) = match written {
        None => (&none, None),
        Some(Written::Most(most)) => (&none, Some(most)),
        Some(Written::Settings(settings)) => (settings.as_ref(), settings.max.as_ref()),
    };
    if let Some(most) = most.filter(|most| !(1..=MOST_WORKERS).contains(&most.value)) {
        report.add(
            most.at,
            format!("a campaign cannot have {} workers", most.value),
            format!("write 1 to {MOST_WORKERS}"),
        );
    }
    if let Some(cpus) = settings.cpus.as_ref().filter(|cpus| cpus.value.0 <= 0.0) {
        report.add(cpus.at, "a worker without processor", "write for example `1 core` or `50%`");
    }
    let image = match &settings.image {
        None => "host".to_owned(),
        Some(image) if image.value == "host" => image.value.clone(),
        Some(image) => base_dir.join(&image.value).display().to_string(),
    };
    positive(settings.idle.as_ref(), "a worker that ends before it begins", report);
    Workers {
        place: place(settings, most.is_some(), report),
        most: most.map(|most| most.value),
        cpus: settings.cpus.as_ref().map_or(Cores(1.0), |cpus| cpus.value),
        memory: settings.memory.as_ref().map(|memory| memory.value),
        image,
        network: settings.network.unwrap_or(false),
        idle: settings.idle.as_ref().map_or(Seconds(10.0), |idle| idle.value),
    }
}

/// The machines of workers. `has_most`: the file says how many workers there may be.
fn place(settings: &WorkerSettings, has_most: bool, report: &mut Report) -> Place {
    let WorkerSettings { on, partition, time, listen, .. } = settings;
    if on.as_ref().map(|on| on.value) != Some(Word::Slurm) {
        let of_slurm = [
            partition.as_ref().map(|partition| partition.at),
            time.as_ref().map(|time| time.at),
            listen.as_ref().map(|listen| listen.at),
        ];
        if let Some(at) = of_slurm.into_iter().flatten().next() {
            report.add(at, "only workers on Slurm have this", "write `on: slurm` beside it, or leave it out");
        }
        return Place::Here;
    }
    if let Some(on) = on.as_ref().filter(|_| !has_most) {
        report.add(on.at, "nothing bounds the number of jobs", "write `max:` and the most workers at once");
    }
    let is_name =
        |name: &str| name.len() <= LONGEST && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.,".contains(c));
    if let Some(partition) = partition.as_ref().filter(|name| name.value.is_empty() || !is_name(&name.value)) {
        report.add(partition.at, "no partition has this name", "write letters, digits, `-`, `_` and `.`");
    }
    positive(time.as_ref(), "a job that ends before it begins", report);
    let listen = listen.as_ref().and_then(|listen| {
        let address = listen.value.parse::<SocketAddr>().ok();
        if address.is_none() {
            report.add(listen.at, "this is no address with a port", "write for example `0.0.0.0:7070` or `[::]:7070`");
        }
        address
    });
    let partition = partition.as_ref().map(|partition| partition.value.clone());
    Place::Slurm(Slurm { partition, time: time.as_ref().map(|time| time.value), listen })
}

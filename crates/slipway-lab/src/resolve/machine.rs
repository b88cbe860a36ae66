//! The machines that a lab is made on, and the virtual hosts on each.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use slipway_document::errors::{Report, Span};
use slipway_document::names::check;
use slipway_document::units::Seconds;

use super::room::{Placed, Room};
use crate::file::{File, Hosts as Written, Machine as Entry};
use crate::id::{List, MachineId};
use crate::model::{Host, Machine};
use crate::names;

/// Source 3's cluster and Distem's record have less.
const MOST_MACHINES: usize = 1000;
/// Parts tell each other four times in that time that they are there.
const SHORTEST_SILENCE: Seconds = Seconds(1.0);

/// The machines that the file names, or those that somebody outside of it chose.
pub(super) fn machines(file: &File, chosen: Option<&[Machine]>, report: &mut Report) -> List<MachineId, Machine> {
    if let Some(chosen) = chosen {
        let most = chosen.len().min(MOST_MACHINES);
        if most < chosen.len() {
            let message = format!("a lab cannot have {} machines", chosen.len());
            report.add(Span::default(), message, format!("choose {MOST_MACHINES} machines at most"));
        }
        return chosen[..most].to_vec().into();
    }
    let mut addresses = BTreeMap::<Ipv4Addr, &str>::new();
    let mut machines = Vec::new();
    for entry in &file.machines.0 {
        names::check_host(&entry.name, report);
        let (address, settings) = match &entry.value {
            Some(Entry::Address(address)) => (address, None),
            Some(Entry::Settings(settings)) => (&settings.address, Some(settings)),
            None => {
                let message = format!("machine `{}` has no address", entry.name.value);
                report.add(entry.name.at, message, "write the address at which the others reach it");
                continue;
            }
        };
        let ip = address.value.0;
        if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            let help = "write the address of one of its interfaces";
            report.add(address.at, format!("{ip} cannot be a machine's address"), help);
        }
        if let Some(other) = addresses.insert(ip, &entry.name.value) {
            let message = format!("machines `{other}` and `{}` have one address", entry.name.value);
            report.add(address.at, message, "name each machine once, with an address of its own");
        }
        let ssh = settings.and_then(|settings| settings.ssh.as_ref());
        let cores = settings.and_then(|settings| settings.cores.as_ref());
        let memory = settings.and_then(|settings| settings.memory.as_ref());
        if let Some(cores) = cores.filter(|cores| !(1..=65535).contains(&cores.value)) {
            report.add(cores.at, format!("a machine cannot offer {} cores", cores.value), "write 1 to 65535");
        }
        if let Some(memory) = memory.filter(|memory| memory.value.0 == 0) {
            report.add(memory.at, "a machine that offers no memory", "write for example `memory: 64GiB`");
        }
        // ssh takes a word that begins with a dash for an option.
        if let Some(ssh) = ssh.filter(|ssh| !is_destination(&ssh.value)) {
            report.add(ssh.at, format!("`{}` is no destination for ssh", ssh.value), "write HOST or USER@HOST");
        }
        let labels = settings.map_or(&[][..], |settings| &settings.labels);
        for label in labels {
            check(label, report);
        }
        let labels = labels.iter().map(|label| label.value.clone()).collect();
        let name = entry.name.value.clone();
        let ssh = ssh.map_or_else(|| name.clone(), |ssh| ssh.value.clone());
        let (cores, memory) = (cores.map(|cores| cores.value), memory.map(|memory| memory.value));
        machines.push(Machine { name, address: ip, ssh, cores, memory, labels, job: None });
    }
    if machines.len() > MOST_MACHINES {
        let at = file.machines.0[MOST_MACHINES].name.at;
        let message = format!("a lab cannot have {} machines", machines.len());
        report.add(at, message, format!("name {MOST_MACHINES} machines at most"));
        machines.truncate(MOST_MACHINES);
    }
    machines.into()
}

/// The time after which a part without a word from the others ends itself.
pub(super) fn orphaned_after(file: &File, report: &mut Report) -> Option<Seconds> {
    let written = file.orphaned_after.as_ref()?;
    if written.value.0 < SHORTEST_SILENCE.0 {
        let message = format!("no machine can be given up after {}", written.value);
        report.add(written.at, message, format!("write {SHORTEST_SILENCE} or more, such as `10min`"));
    }
    Some(written.value)
}

/// Whether ssh takes a text for a destination, and for nothing else.
fn is_destination(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@:[]%".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
}

/// Puts virtual hosts on machines: where the file says, and all others in turn. Where machines say what they offer, those
/// others wait until their nodes are known.
pub(super) fn place(
    file: &File,
    machines: &List<MachineId, Machine>,
    at: Span,
    hosts: &mut [Host],
    report: &mut Report,
) -> Placed {
    let written = file.hosts.as_ref().map(|hosts| &hosts.value);
    let entries = if let Some(Written::Settings(entries)) = written { entries.0.as_slice() } else { &[] };
    let mut asked = entries.iter().map(|entry| entry.value.machine.as_ref());
    let mut turn = (0..machines.len()).cycle();
    // Without `hosts` each machine is one.
    let waits = written.is_some() && Room::of(machines).iter().any(Room::is_known);
    let mut placed = Vec::new();
    for host in hosts.iter_mut() {
        let name = asked.next().flatten();
        let found = name.and_then(|name| machines.position(|machine| machine.name == name.value));
        if let Some(name) = name.filter(|_| found.is_none()) {
            let known: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
            let help = if known.is_empty() {
                "name it under `machines`, with its address".to_owned()
            } else {
                format!("it has: {}", known.join(", "))
            };
            report.add(name.at, format!("the lab has no machine `{}`", name.value), help);
        }
        let known = found.or_else(|| if waits { None } else { turn.next().map(MachineId) });
        host.machine = known.unwrap_or_default();
        placed.push(known);
    }
    if matches!(written, Some(Written::Machine(_))) && !machines.is_empty() {
        let help = "leave `hosts` out for one host on each machine, or leave `machines` out";
        report.add(at, "`hosts: machine` is for a lab on this machine alone", help);
    }
    placed.into()
}

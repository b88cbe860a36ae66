//! Virtual hosts and the underlay that joins them.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::address::{Claim, Pool};
use super::room::Placed;
use super::{TuneChoice, machine, program};
use crate::file::{File, Hosts as Written, Tune, TuneSettings};
use crate::id::{HostId, List, MachineId};
use crate::model::{Host, Machine, Profile, Underlay};
use crate::names;
use crate::written::CpuList;

/// More would be more than a machine has use for: a host costs a namespace and a link for each network.
const MOST_HOSTS: u32 = 1000;

/// Bytes that the tunnels between machines add to a packet: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
pub(super) const TRUNK_OVERHEAD: u32 = 50;

/// The hosts of a lab.
pub(super) struct Hosts<'f> {
    pub(super) list: List<HostId, Host>,
    /// The processors of each.
    pub(super) cpus: List<HostId, Option<&'f CpuList>>,
    pub(super) machine: bool,
    pub(super) underlay: Option<Underlay>,
    /// Where the file speaks of hosts.
    pub(super) at: Span,
    /// The machines of hosts that are known before nodes are placed.
    pub(super) placed: Placed,
}

impl Hosts<'_> {
    /// Has every host tuned as somebody outside of the file decides.
    pub(super) fn choose(&mut self, choice: TuneChoice) {
        // The machine's own network is not a lab's to tune.
        if self.machine {
            return;
        }
        for host in &mut self.list {
            match choice {
                TuneChoice::File => {}
                TuneChoice::None => (host.profile, host.tune) = (None, BTreeMap::new()),
                TuneChoice::Profile(word) if host.profile.is_some_and(|profile| profile.word == word) => {}
                TuneChoice::Profile(word) => {
                    let path = host.profile.unwrap_or(Profile { word, rtt: None, rate: None });
                    (host.profile, host.tune) = (Some(Profile { word, ..path }), BTreeMap::new());
                }
            }
        }
    }
}

pub(super) fn hosts<'f>(file: &'f File, machines: &List<MachineId, Machine>, report: &mut Report) -> Hosts<'f> {
    let at = file.hosts.as_ref().map_or_else(Span::default, |hosts| hosts.at);
    let mut machine = false;
    let mut list = match file.hosts.as_ref().map(|hosts| &hosts.value) {
        None if machines.is_empty() => numbered(1),
        None => machines.iter().map(|machine| host(machine.name.clone())).collect(),
        Some(Written::Machine(_)) => {
            machine = true;
            numbered(1)
        }
        Some(Written::Count(count)) if (1..=MOST_HOSTS).contains(count) => numbered(*count),
        Some(Written::Count(count)) => {
            report.add(at, format!("a lab cannot have {count} hosts"), format!("write 1 to {MOST_HOSTS}"));
            numbered(1)
        }
        Some(Written::Names(names)) => {
            let mut seen = HashSet::new();
            for name in names {
                if !seen.insert(&name.value) {
                    let message = format!("host `{}` is here twice", name.value);
                    report.add(name.at, message, "give every host a name of its own");
                }
            }
            names.iter().map(|name| named(name, report)).collect()
        }
        Some(Written::Settings(entries)) => entries.0.iter().map(|entry| named(&entry.name, report)).collect(),
    };
    if list.is_empty() || list.len() > MOST_HOSTS as usize {
        let message = format!("a lab cannot have {} hosts", list.len());
        report.add(at, message, format!("name 1 to {MOST_HOSTS} hosts"));
        list = numbered(1);
    }
    let mut cpus = vec![None; list.len()];
    if let Some(Written::Settings(entries)) = file.hosts.as_ref().map(|hosts| &hosts.value) {
        for (i, (cpus, entry)) in cpus.iter_mut().zip(&entries.0).enumerate() {
            *cpus = entry.value.cpus.as_ref().map(|cpus| &cpus.0);
            list[i].cpus = cpus.map(|cpus| cpus.text.clone());
            (list[i].profile, list[i].tune) = tune(entry.value.tune.as_ref(), report);
        }
    }
    let placed = machine::place(file, machines, at, &mut list, report);
    let underlay = underlay(file, machines, &mut list, report);
    Hosts { list: list.into(), cpus: cpus.into(), machine, underlay, at, placed }
}

fn numbered(count: u32) -> Vec<Host> {
    (1..=count).map(|i| host(format!("host{i}"))).collect()
}

fn named(name: &Spanned<String>, report: &mut Report) -> Host {
    names::check_host(name, report);
    host(name.value.clone())
}

fn host(name: String) -> Host {
    Host {
        name,
        machine: MachineId::default(),
        ipv4: None,
        ipv6: None,
        cpus: None,
        tune: BTreeMap::new(),
        profile: None,
    }
}

/// The profile of a host, and the settings that it has by name.
fn tune(written: Option<&Tune>, report: &mut Report) -> (Option<Profile>, BTreeMap<String, String>) {
    let settings = match written {
        None => return (None, BTreeMap::new()),
        Some(Tune::Profile(word)) => {
            return (Some(Profile { word: word.value, rtt: None, rate: None }), BTreeMap::new());
        }
        Some(Tune::Settings(settings)) => settings,
    };
    let TuneSettings { profile, rtt, rate, named } = settings;
    let path = [
        ("rtt", rtt.as_ref().map(|rtt| (rtt.at, rtt.value.0 > 0.0)), "80ms"),
        ("rate", rate.as_ref().map(|rate| (rate.at, rate.value.0 > 0)), "10gbit"),
    ];
    for (key, written, example) in path {
        let Some((at, is_positive)) = written else { continue };
        if profile.is_none() {
            report.add(
                at,
                format!("`{key}` is for a profile, and there is none"),
                "add `profile: dtn`, or leave it out",
            );
        } else if !is_positive {
            report.add(at, format!("a path's {key} cannot be 0"), format!("write `{key}: {example}`, or leave it out"));
        }
    }
    let profile = profile.as_ref().map(|word| Profile {
        word: word.value,
        rtt: rtt.as_ref().map(|rtt| rtt.value),
        rate: rate.as_ref().map(|rate| rate.value),
    });
    (profile, program::tune(named, report))
}

/// Joins two hosts or more: gives each its address.
fn underlay(
    file: &File,
    machines: &List<MachineId, Machine>,
    hosts: &mut [Host],
    report: &mut Report,
) -> Option<Underlay> {
    if hosts.len() < 2 {
        if let Some(written) = file.underlay.as_ref().filter(|_| report.is_empty()) {
            let help = "leave it out, or write `hosts: 2`";
            report.add(written.at, "an underlay joins two hosts or more, and this lab has one", help);
        }
        return None;
    }
    let written = file.underlay.as_ref().map(|underlay| &underlay.value);
    let ipv4 = written.and_then(|underlay| underlay.ipv4.as_ref());
    let ipv6 = written.and_then(|underlay| underlay.ipv6.as_ref());
    let mtu = written.and_then(|underlay| underlay.mtu.as_ref());
    if let Some(mtu) = mtu.filter(|mtu| !(1280..=65535).contains(&mtu.value)) {
        let help = "write 1280 (the least for IPv6, RFC 8200) to 65535";
        report.add(mtu.at, format!("an underlay's mtu cannot be {}", mtu.value), help);
    }
    let default = default_underlay();
    let trunk = if machines.len() > 1 { TRUNK_OVERHEAD } else { 0 };
    let underlay = Underlay {
        mtu: mtu.map_or(default.mtu - trunk, |mtu| mtu.value),
        ipv4: ipv4.map_or(default.ipv4, |net| net.value.0),
        ipv6: ipv6.map_or(default.ipv6, |net| net.value.0),
    };
    let everyone = || [Claim { who: "the hosts", count: hosts.len(), first: None }];
    let at = |net: Option<Span>| net.or(file.underlay.as_ref().map(|underlay| underlay.at)).unwrap_or_default();
    let v4 = Pool::v4(underlay.ipv4).assign(&everyone(), at(ipv4.map(|net| net.at)), report);
    let v6 = Pool::v6(underlay.ipv6).assign(&everyone(), at(ipv6.map(|net| net.at)), report);
    for ((host, v4), v6) in hosts.iter_mut().zip(v4).zip(v6) {
        host.ipv4 = Some(super::address::to_v4(v4));
        host.ipv6 = Some(Ipv6Addr::from_bits(v6));
    }
    Some(underlay)
}

/// The underlay about which nothing is written.
#[must_use]
pub fn default_underlay() -> Underlay {
    Underlay {
        mtu: 1500,
        ipv4: Ipv4Net::new_assert(Ipv4Addr::new(10, 63, 0, 0), 16),
        ipv6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd53, 0x6c69, 0x70ff, 0, 0, 0, 0, 0), 64),
    }
}

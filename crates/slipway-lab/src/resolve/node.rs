//! Nodes: groups and what they may be, then each group's nodes with their names and interfaces.

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;

use slipway_document::de::{Entry, Spanned};
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;

use super::address::{Claim, Pool, to_v4};
use super::host::Hosts;
use super::mac::Macs;
use super::network::{Networks, Places};
use super::program;
use crate::change::Keys;
use crate::condition::{Conditions, Limits};
use crate::file::{DeviceCaps, File, Membership, Memberships, Node as Written};
use crate::id::{HostId, List, NetworkId};
use crate::model::{self, Capability, DriverKind, Interface, Network, Node};
use crate::names;

/// The most nodes of a lab on one machine, and of a lab on several. Distem's record is 40,000 on 168 machines.
const MOST_ON_ONE: usize = 10_000;
const MOST_ON_ALL: usize = 50_000;

/// A key below `nodes`, with its names turned into ids.
pub(super) struct Group<'f> {
    pub(super) name: &'f Spanned<String>,
    pub(super) spec: &'f Written,
    pub(super) count: usize,
    /// The host that it names.
    pub(super) host: Option<HostId>,
    pub(super) members: Vec<Member<'f>>,
}

/// A group's place on a network.
pub(super) struct Member<'f> {
    network: NetworkId,
    /// The addresses it asks for.
    asked: Option<&'f Membership>,
    conditions: Conditions,
    at: Span,
}

impl Group<'_> {
    /// The name of the node with number `i`, from 0.
    fn node_name(&self, i: usize) -> String {
        if self.spec.count.is_some() { format!("{}{}", self.name.value, i + 1) } else { self.name.value.clone() }
    }
}

pub(super) fn groups<'f>(file: &'f File, networks: &Networks, hosts: &Hosts, report: &mut Report) -> Vec<Group<'f>> {
    let entries = &file.nodes.0;
    if entries.is_empty() && report.is_empty() {
        report.add(Span::default(), "the lab has no nodes", "write `nodes:` and below it a name, such as `n1:`");
    }
    let most = MOST_ON_ALL.min(MOST_ON_ONE * file.machines.0.len().max(1));
    let mut total = 0usize;
    let mut groups = Vec::new();
    for entry in entries {
        let group = group(entry, networks, hosts, report);
        total += group.count;
        if total > most {
            let at = group.spec.count.as_ref().map_or(group.name.at, |count| count.at);
            report.add(at, format!("{total} nodes are more than a lab can have"), format!("stay within {most}"));
            break;
        }
        groups.push(group);
    }
    groups
}

fn group<'f>(entry: &'f Entry<Written>, networks: &Networks, hosts: &Hosts, report: &mut Report) -> Group<'f> {
    let Entry { name, value: spec, .. } = entry;
    check_name(name, spec, report);
    let count = spec.count.as_ref().map_or(1, |count| {
        if count.value == 0 {
            report.add(count.at, "a group of no nodes", "write 1 or more, or take the group out");
        }
        count.value.max(1) as usize
    });
    let host = spec.host.as_ref().and_then(|wanted| {
        let found = hosts.list.position(|host| host.name == wanted.value);
        if found.is_none() {
            let known: Vec<_> = hosts.list.iter().map(|host| &host.name).collect();
            report.add(wanted.at, "there is no such host", suggest(&wanted.value, &known));
        }
        found
    });
    let members = members(entry, networks, report);
    check_limits(spec, report);
    if let Some(caps) = &spec.rdma
        && !members.iter().any(|member| networks.list[member.network].bypasses.rdma)
    {
        let help = "write `rdma: true` on one of its networks, or leave these caps out";
        report.add(caps.at, "the node has no RDMA device", help);
    }
    check_together(spec, count, &members, networks, report);
    Group { name, spec, count, host, members }
}

/// The caps of an RDMA device as the model has them.
fn device_caps(caps: &DeviceCaps) -> model::DeviceCaps {
    model::DeviceCaps { queue_pairs: caps.queue_pairs, regions: caps.regions }
}

fn check_name(name: &Spanned<String>, spec: &Written, report: &mut Report) {
    let Some(group) = &spec.group else { return names::check_host(name, report) };
    names::check_host(group, report);
    if let Some(count) = &spec.count {
        report.add(count.at, "nodes with `count` are a group already", "leave `group` or `count` out");
    }
    // With a number behind it, a group's name may be as long as one that `count` makes.
    let number = name.value.strip_prefix(&group.value);
    if !number.is_some_and(|number| number.len() <= 5 && number.bytes().all(|byte| byte.is_ascii_digit())) {
        names::check_host(name, report);
    }
}

fn members<'f>(entry: &'f Entry<Written>, networks: &Networks, report: &mut Report) -> Vec<Member<'f>> {
    let Some(written) = &entry.value.networks else {
        let conditions = networks.conditions_at(NetworkId(0), None, report);
        return vec![Member { network: NetworkId(0), asked: None, conditions, at: entry.name.at }];
    };
    let asked: Vec<(&Spanned<String>, Option<&Membership>)> = match &written.value {
        Memberships::Names(names) => names.iter().map(|name| (name, None)).collect(),
        Memberships::Settings(entries) => entries.0.iter().map(|entry| (&entry.name, Some(&entry.value))).collect(),
    };
    if asked.is_empty() && !report.touches(entry.name.whole) {
        report.add(written.at, "a node on no network", "name one, or leave `networks` out for the lab's first");
    }
    let mut members: Vec<Member> = Vec::new();
    for (name, asked) in asked {
        let Some(network) = networks.list.position(|network| network.name == name.value) else {
            let known: Vec<_> = networks.list.iter().map(|network| &network.name).collect();
            report.add(name.at, "there is no such network", suggest(&name.value, &known));
            continue;
        };
        if members.iter().any(|member| member.network == network) {
            let message = format!("network `{}` is here twice", name.value);
            report.add(name.at, message, "name each network once; a node has one interface on it");
            continue;
        }
        let written = asked.and_then(|asked| asked.conditions.as_ref());
        let conditions = networks.conditions_at(network, written, report);
        members.push(Member { network, asked, conditions, at: name.at });
    }
    members
}

fn check_limits(spec: &Written, report: &mut Report) {
    let limits = spec.limits();
    let disk = spec.disk.as_ref();
    for problem in limits.change.apply(&Limits::default()).problems() {
        let at = limits.place(problem.key).unwrap_or_default();
        report.add(at, problem.message, problem.help);
    }
    if let Some(disk) = disk.filter(|disk| disk.value.is_empty() && !report.touches(disk.whole)) {
        let help = "write for example `disk: {write: 20MB/s}`, or leave `disk` out";
        report.add(disk.at, "a disk about which nothing is said", help);
    }
    if let Some(slots) = spec.slots.as_ref().filter(|slots| !(1..=65535).contains(&slots.value)) {
        report.add(slots.at, format!("a node cannot have {} slots", slots.value), "write 1 to 65535");
    }
}

/// Checks keys of a node that exclude each other.
fn check_together(spec: &Written, count: usize, members: &[Member], networks: &Networks, report: &mut Report) {
    let on_host = members.iter().find(|member| networks.list[member.network].driver == DriverKind::Host);
    if let Some(member) = on_host.filter(|_| members.len() > 1) {
        let name = &networks.list[member.network].name;
        let message = format!("a node on network `{name}` (driver host) cannot be on others too");
        report.add(member.at, message, "it has its host's interfaces and none of its own: name this network only");
    } else if let Some(setting) =
        spec.sysctls.0.iter().find(|entry| on_host.is_some() && entry.name.value.starts_with("net."))
    {
        let help = "name a network with another driver, such as bridge, or take the setting out";
        report.add(setting.name.at, "on driver host this would be the host's setting", help);
    } else if let Some(gateway) = spec.gateway.as_ref().filter(|gateway| gateway.value && members.len() < 2) {
        let help = "name two networks or more in its `networks`, or leave `gateway` out";
        report.add(gateway.at, "a gateway between fewer than two networks", help);
    }
    check_capabilities(spec, members, networks, report);
    for member in members {
        let asked = member.asked;
        if let Some(mac) = asked.and_then(|asked| asked.mac.as_ref()).filter(|_| count > 1) {
            report.add(mac.at, "one Ethernet address for a group", "leave it out, or write the nodes one by one");
        }
        let has_ipv6 = networks.list[member.network].ipv6.is_some();
        if let Some(ipv6) = asked.and_then(|asked| asked.ipv6.as_ref()).filter(|_| !has_ipv6) {
            report.add(ipv6.at, "the network has no IPv6", "leave it out, or give the network an `ipv6` subnet");
        }
    }
}

/// Rights over a node's own network, which it must have, with a port of its host's at which the node can be held.
fn check_capabilities(spec: &Written, members: &[Member], networks: &Networks, report: &mut Report) {
    let Some((first, more)) = spec.capabilities.as_deref().and_then(<[_]>::split_first) else { return };
    let all = || std::iter::once(first).chain(more);
    let twice = |(at, one): &(usize, &Spanned<Capability>)| all().take(*at).any(|other| other.value == one.value);
    for (_, one) in all().enumerate().filter(twice) {
        report.add(one.at, format!("{} is here twice", one.value), "name each capability once");
    }
    if all().all(|one| one.value != Capability::NetAdmin) {
        let help = "write `[NET_ADMIN, SYS_ADMIN]`, or leave `capabilities` out";
        report.add(first.at, format!("{} alone gives a node nothing", first.value), help);
    }
    let has_port = |driver| matches!(driver, DriverKind::Bridge | DriverKind::Vxlan);
    let Some(network) = members.iter().map(|member| &networks.list[member.network]).find(|of| !has_port(of.driver))
    else {
        return;
    };
    let why = match network.driver {
        DriverKind::Host => "on driver host the network is its host's",
        _ => "its host has no port there that holds a node to its own address and conditions",
    };
    let help = match networks.replaced {
        Some(driver) => format!("leave driver {driver} out, or take `capabilities` out of the file"),
        None => "take driver bridge, vxlan or fast, or leave `capabilities` out".to_owned(),
    };
    let (name, driver) = (&network.name, network.word());
    report.add(first.at, format!("{} on network `{name}` (driver {driver}): {why}", first.value), help);
}

pub(super) fn nodes(
    lab: &str,
    groups: &[Group],
    images: &[usize],
    networks: &Networks,
    report: &mut Report,
) -> Vec<Node> {
    check_names(groups, report);
    let mut addresses = Addresses::assign(groups, networks, report);
    let mut macs = asked_macs(groups, report);
    let mut nodes = Vec::new();
    for (group, image) in groups.iter().zip(images) {
        let template = template(group, *image, report);
        for i in 0..group.count {
            let name = group.node_name(i);
            let interface = |(eth, member): (usize, &Member)| {
                let (ipv4, ipv6) = addresses.next(member.network);
                let asked = member.asked.and_then(|asked| asked.mac.as_ref()).filter(|_| group.count == 1);
                let derive = || macs.derive(lab, &networks.list[member.network].name, &name);
                let mac = asked.map_or_else(derive, |mac| mac.value.0.0);
                Interface {
                    name: format!("eth{eth}"),
                    network: member.network,
                    ipv4: to_v4(ipv4),
                    ipv6: ipv6.map(Ipv6Addr::from_bits),
                    mac,
                    conditions: member.conditions.clone(),
                }
            };
            let interfaces = group.members.iter().enumerate().map(interface).collect();
            nodes.push(Node { name, interfaces, ..template.clone() });
        }
    }
    nodes
}

/// Settings that all nodes of a group share.
fn template(group: &Group, image: usize, report: &mut Report) -> Node {
    let spec = group.spec;
    Node {
        name: String::new(),
        group: spec.group.as_ref().unwrap_or(group.name).value.clone(),
        host: HostId(0),
        image,
        interfaces: Vec::new(),
        routes: Vec::new(),
        gateway: spec.gateway.as_ref().is_some_and(|gateway| gateway.value),
        routing: spec.routes.as_ref().map(|routes| routes.value).unwrap_or_default(),
        capabilities: spec.capabilities.iter().flatten().map(|one| one.value).collect(),
        limits: spec.limits().change.apply(&Limits::default()),
        mounts: Vec::new(),
        env: program::env(&spec.env, report),
        sysctls: program::sysctls(&spec.sysctls, report),
        command: spec.command.as_ref().and_then(|command| program::words(command, report)),
        slots: spec.slots.as_ref().map_or(1, |slots| slots.value),
        sshd: spec.sshd.unwrap_or(false),
        read_only: spec.read_only.unwrap_or(false),
        rdma: spec.rdma.as_ref().map(|caps| device_caps(&caps.value)).unwrap_or_default(),
    }
}

/// No two nodes have a name in common, and no node has another group's.
fn check_names(groups: &[Group], report: &mut Report) {
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (g, group) in groups.iter().enumerate() {
        taken.insert(group.name.value.clone(), g);
    }
    for (g, group) in groups.iter().enumerate().filter(|(_, group)| group.spec.count.is_some()) {
        for i in 0..group.count {
            let name = group.node_name(i);
            if taken.insert(name.clone(), g).is_some_and(|other| other != g) {
                let message =
                    format!("`{}` with count {} makes `{name}`, which is there already", group.name.value, group.count);
                report.add(group.name.at, message, "rename one of them, for example with a `-` at the end");
                break;
            }
        }
    }
    let nodes: HashSet<String> = groups.iter().flat_map(|group| (0..group.count).map(|i| group.node_name(i))).collect();
    for group in groups {
        let other = group.spec.group.as_ref().filter(|other| other.value != group.name.value);
        if let Some(other) = other.filter(|other| nodes.contains(&other.value)) {
            let message = format!("`{}` is a node, and a group cannot have its name", other.value);
            report.add(other.at, message, "choose another name for the group");
        }
    }
}

/// Explicit Ethernet addresses come before derived ones.
fn asked_macs(groups: &[Group], report: &mut Report) -> Macs {
    let mut macs = Macs::default();
    let members = groups.iter().filter(|group| group.count == 1).flat_map(|group| &group.members);
    for mac in members.filter_map(|member| member.asked?.mac.as_ref()) {
        if !macs.take(mac.value.0.0) {
            report.add(
                mac.at,
                "this Ethernet address is already another interface's",
                "write another, or leave it out",
            );
        }
    }
    macs
}

/// Every network's addresses, in the order in which nodes come to take them.
struct Addresses(List<NetworkId, (std::vec::IntoIter<u128>, Option<std::vec::IntoIter<u128>>)>);

impl Addresses {
    fn assign(groups: &[Group], networks: &Networks, report: &mut Report) -> Self {
        let mut members: List<NetworkId, Vec<(&Group, &Member)>> = vec![Vec::new(); networks.list.len()].into();
        for group in groups {
            for member in &group.members {
                members[member.network].push((group, member));
            }
        }
        let parts = networks.list.iter().zip(&networks.places).zip(members);
        let assign = |((network, places), members): ((&Network, &Places), Vec<_>)| {
            // Where the network itself is in doubt, so is what does not fit it.
            let mut aside = Report::default();
            let report = if report.touches(places.whole) { &mut aside } else { &mut *report };
            let v4 = claims(&members, |asked| {
                let ipv4 = asked.ipv4.as_ref()?;
                Some((ipv4.value.0.to_bits().into(), ipv4.at))
            });
            let v6 = claims(&members, |asked| {
                let ipv6 = asked.ipv6.as_ref()?;
                Some((ipv6.value.0.to_bits(), ipv6.at))
            });
            let v4 = Pool::v4(network.ipv4).assign(&v4, places.ipv4, report).into_iter();
            let v6 = network.ipv6.map(|net| Pool::v6(net).assign(&v6, places.ipv6, report).into_iter());
            (v4, v6)
        };
        Self(parts.map(assign).collect())
    }

    fn next(&mut self, network: NetworkId) -> (u128, Option<u128>) {
        let (v4, v6) = &mut self.0[network];
        (v4.next().unwrap_or_default(), v6.as_mut().map(|v6| v6.next().unwrap_or_default()))
    }
}

fn claims<'f>(members: &[(&'f Group<'f>, &Member)], first: fn(&Membership) -> Option<(u128, Span)>) -> Vec<Claim<'f>> {
    let claim = |(group, member): &(&'f Group, &Member)| Claim {
        who: &group.name.value,
        count: group.count,
        first: member.asked.and_then(first),
    };
    members.iter().map(claim).collect()
}

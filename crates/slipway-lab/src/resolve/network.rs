//! Networks: what each driver takes, subnets that stay apart, identifiers that are unique.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::names;

use super::condition;
use super::host::Hosts;
use crate::condition::Conditions;
use crate::file::{Conditions as WrittenConditions, File, Ipv6Choice, Network as Written, NetworkSettings};
use crate::id::{List, NetworkId};
use crate::model::{DriverKind, DriverWord, Network, TcpBypass};

/// Each is a namespace's worth of devices on every host, and all pairs of subnets are compared.
const MOST_NETWORKS: usize = 1024;
/// Default subnets are 10.64.0.0/16 to 10.254.0.0/16; 10.255.0.0/16 is the underlay's.
const DEFAULT_SUBNETS: usize = 191;

/// The network of a lab that names none.
pub const DEFAULT: &str = "net";

/// Outer IPv4, UDP and VXLAN headers and the inner Ethernet header (RFC 7348, 4.3), in bytes.
const VXLAN_OVERHEAD: u32 = 50;

/// The networks of a lab, and where each was written.
pub(super) struct Networks {
    pub(super) list: List<NetworkId, Network>,
    pub(super) places: Vec<Places>,
    /// Conditions of each network's interfaces, unless a node says more.
    pub(super) conditions: List<NetworkId, Conditions>,
    /// The driver that was decided on outside of the file.
    pub(super) replaced: Option<DriverWord>,
}

/// Where the parts of a network are written; the name's place for what is not.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) ipv4: Span,
    pub(super) ipv6: Span,
    pub(super) rdma_peers: Vec<Span>,
    pub(super) whole: Span,
}

pub(super) fn networks(file: &File, hosts: &Hosts, driver: Option<DriverWord>, report: &mut Report) -> Networks {
    let entries = &file.networks.0;
    // Those beyond are read all the same, or every node on them would be another error.
    if let Some(beyond) = entries.get(MOST_NETWORKS) {
        let message = format!("{} networks are more than a lab can have", entries.len());
        report.add(beyond.name.at, message, format!("declare at most {MOST_NETWORKS}"));
    } else if let Some(beyond) = entries.iter().skip(DEFAULT_SUBNETS).find(|entry| !has_ipv4(&entry.value)) {
        let message = format!("no subnet is left for network number {DEFAULT_SUBNETS} and beyond");
        let help = "write `ipv4:` for it; 10.64.0.0/16 to 10.254.0.0/16 are given to the networks before";
        report.add(beyond.name.at, message, help);
    }
    let mut networks = Networks { list: List::new(), places: Vec::new(), conditions: List::new(), replaced: driver };
    if entries.is_empty() {
        let name = Spanned { value: DEFAULT.to_owned(), at: hosts.at, whole: hosts.at };
        networks.add(&name, NetworkSettings::default(), hosts, report);
    }
    for entry in entries {
        names::check(&entry.name, report);
        let settings = match &entry.value {
            Written::Driver(driver) => NetworkSettings { driver: Some(driver.clone()), ..Default::default() },
            Written::Settings(settings) => (**settings).clone(),
        };
        networks.add(&entry.name, settings, hosts, report);
    }
    number_vxlans(entries.iter().map(|entry| &entry.value), &mut networks.list, report);
    keep_apart(&networks, hosts, report);
    networks
}

impl Networks {
    /// Conditions of a member's interface.
    pub(super) fn conditions_at(
        &self,
        network: NetworkId,
        written: Option<&Spanned<WrittenConditions>>,
        report: &mut Report,
    ) -> Conditions {
        let Some(written) = written else { return self.conditions[network].clone() };
        let Network { driver, name, .. } = &self.list[network];
        if *driver == DriverKind::Host {
            condition::refuse_on_host(name, self.replaced, written.at, report);
        }
        condition::over(written, &self.conditions[network], report)
    }

    fn add(&mut self, name: &Spanned<String>, mut settings: NetworkSettings, hosts: &Hosts, report: &mut Report) {
        let word = self.replaced.or(settings.driver.as_ref().map(|driver| driver.value)).unwrap_or(DriverWord::Bridge);
        let driver_at = settings.driver.as_ref().map_or(name.at, |driver| driver.at);
        let driver = word.driver(hosts.underlay.is_some());
        if self.replaced.is_some() {
            leave_aside(&mut settings, word, driver);
        }
        if let Some(conditions) = settings.conditions.as_ref().filter(|_| driver == DriverKind::Host) {
            condition::refuse_on_host(&name.value, self.replaced, conditions.at, report);
        }
        let none = Conditions::default();
        let conditions = settings.conditions.as_ref().map(|written| condition::over(written, &none, report));
        self.conditions.push(conditions.unwrap_or_default());
        check_settings(&settings, word, driver_at, hosts, report);
        let number = self.list.len();
        let ipv6 = match settings.ipv6.as_ref().map(|choice| &choice.value) {
            None | Some(Ipv6Choice::Has(true)) => Some(default_ipv6(number)),
            Some(Ipv6Choice::Has(false)) => None,
            Some(Ipv6Choice::Subnet(net)) => Some(net.0),
        };
        check_mtu(&settings, driver, driver_at, ipv6.is_some(), hosts, report);
        self.places.push(Places {
            ipv4: settings.ipv4.as_ref().map_or(name.at, |net| net.at),
            ipv6: settings.ipv6.as_ref().map_or(name.at, |net| net.at),
            rdma_peers: settings.rdma_peers.iter().flatten().map(|net| net.at).collect(),
            whole: name.whole,
        });
        let rdma = settings.rdma.is_some_and(|choice| choice.value);
        self.list.push(Network {
            name: name.value.clone(),
            driver,
            bypasses: word.bypasses(
                TcpBypass {
                    io_uring: settings.io_uring.map(|choice| choice.value).unwrap_or_default(),
                    // Programs of RDMA agree by TCP, and write to a peer that has closed already: a pair would end them (SIGPIPE).
                    exact: settings.exact.map_or(rdma, |choice| choice.value),
                },
                rdma,
            ),
            ipv4: settings.ipv4.map_or_else(|| default_ipv4(number), |net| net.value.0),
            ipv6,
            mtu: settings.mtu.map(|mtu| mtu.value),
            offloads: settings.offloads.unwrap_or(true),
            parent: settings.parent.map(|parent| parent.value),
            vni: settings.vni.map(|vni| vni.value),
            macvlan_mode: settings.macvlan_mode.map(|mode| mode.value).unwrap_or_default(),
            rdma_peers: settings.rdma_peers.into_iter().flatten().map(|net| net.value.0).collect(),
        });
    }
}

fn has_ipv4(written: &Written) -> bool {
    matches!(written, Written::Settings(settings) if settings.ipv4.is_some())
}

/// The subnet of a lab's network that has none written, by its number from 0.
#[must_use]
pub fn default_ipv4(number: usize) -> Ipv4Net {
    let second = u8::try_from(64 + number % DEFAULT_SUBNETS).unwrap_or(u8::MAX);
    Ipv4Net::new_assert(Ipv4Addr::new(10, second, 0, 0), 16)
}

/// The IPv6 subnet of a network without one in the file, by the network's number.
#[must_use]
pub fn default_ipv6(number: usize) -> Ipv6Net {
    let third = 0x7000 + u16::try_from(number % MOST_NETWORKS).unwrap_or_default();
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd53, 0x6c69, third, 0, 0, 0, 0, 0), 64)
}

fn has_parent(word: DriverWord) -> bool {
    matches!(word, DriverWord::Macvlan | DriverWord::Sriov)
}

/// Drops keys that only the replaced driver understood.
fn leave_aside(settings: &mut NetworkSettings, word: DriverWord, driver: DriverKind) {
    settings.parent.take_if(|_| !has_parent(word));
    settings.macvlan_mode.take_if(|_| driver != DriverKind::Macvlan);
    settings.vni.take_if(|_| driver != DriverKind::Vxlan);
    settings.io_uring.take_if(|_| word != DriverWord::Fast);
    settings.exact.take_if(|_| word != DriverWord::Fast);
    settings.rdma.take_if(|_| word != DriverWord::Fast);
    settings.rdma_peers.take_if(|_| word != DriverWord::Fast);
}

fn check_settings(settings: &NetworkSettings, word: DriverWord, driver_at: Span, hosts: &Hosts, report: &mut Report) {
    use DriverWord::{Bridge, Fast, Macvlan, Ovs, Sriov, Vxlan};
    let mut only_for = |at: Span, key: &str, driver: &str| {
        report.add(at, format!("`{key}` has no meaning here"), format!("leave it out; it is for driver {driver}"));
    };
    if let Some(parent) = settings.parent.as_ref().filter(|_| !has_parent(word)) {
        only_for(parent.at, "parent", "macvlan or sriov");
    }
    if let Some(mode) = settings.macvlan_mode.as_ref().filter(|_| word != Macvlan) {
        only_for(mode.at, "macvlan_mode", "macvlan");
    }
    if let Some(vni) = settings.vni.as_ref().filter(|_| word.driver(hosts.underlay.is_some()) != DriverKind::Vxlan) {
        only_for(vni.at, "vni", if word == Fast { "fast on several hosts" } else { "vxlan" });
    }
    if let Some(choice) = settings.io_uring.as_ref().filter(|_| word != Fast) {
        only_for(choice.at, "io_uring", "fast");
    }
    if let Some(choice) = settings.exact.as_ref().filter(|_| word != Fast) {
        only_for(choice.at, "exact", "fast");
    }
    if let Some(choice) = settings.rdma.as_ref().filter(|choice| choice.value && word != Fast) {
        let help = "write `driver: fast` for this network, whose supervisor the device needs, or leave `rdma` out";
        report.add(choice.at, format!("driver {word} has no RDMA device"), help);
    }
    let has_rdma = settings.rdma.as_ref().is_some_and(|choice| choice.value);
    if let (false, Some(first)) = (has_rdma, settings.rdma_peers.iter().flatten().next()) {
        report.add(
            first.at,
            "`rdma_peers` has no meaning without RDMA",
            "write `rdma: true` beside it, or leave it out",
        );
    }
    if let Some(parent) = &settings.parent {
        // IFNAMSIZ is 16 with the closing zero; dev_valid_name() in net/core/dev.c.
        let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        let name = parent.value.as_str();
        if name.is_empty() || name.len() > 15 || name.contains(bad) || matches!(name, "." | "..") {
            report.add(
                parent.at,
                "this is no name of an interface",
                "write a name such as `eth0` (`ip link` lists them)",
            );
        }
    }
    if hosts.machine && matches!(word, Bridge | Ovs | Vxlan) {
        let help = "take driver host, macvlan or sriov, or leave `hosts: machine` out";
        report.add(driver_at, format!("driver {word} would change this machine's own network"), help);
    }
    if hosts.machine && word == Fast {
        let help = "leave `hosts: machine` out, or take driver host, which is this machine's own network already";
        report.add(
            driver_at,
            "driver fast has a bridge beneath it, which would change this machine's own network",
            help,
        );
    }
    if settings.parent.is_none() && (word == Sriov || word == Macvlan && hosts.machine) {
        let help = "add `parent:` with the name of this machine's interface";
        report.add(driver_at, format!("driver {word} needs a parent interface here"), help);
    }
}

fn check_mtu(
    settings: &NetworkSettings,
    driver: DriverKind,
    driver_at: Span,
    ipv6: bool,
    hosts: &Hosts,
    report: &mut Report,
) {
    let underlay = hosts.underlay.as_ref().map_or(1500, |underlay| underlay.mtu);
    let carried = underlay.saturating_sub(VXLAN_OVERHEAD);
    let vxlan = driver == DriverKind::Vxlan;
    match &settings.mtu {
        Some(mtu) if !(68..=65535).contains(&mtu.value) => {
            report.add(mtu.at, format!("an mtu cannot be {}", mtu.value), "write 68 (RFC 791) to 65535 bytes");
        }
        Some(mtu) if ipv6 && mtu.value < 1280 => {
            let help = "write 1280 or more (RFC 8200), or `ipv6: false`";
            report.add(mtu.at, format!("IPv6 does not work with an mtu of {}", mtu.value), help);
        }
        Some(mtu) if vxlan && mtu.value > carried => {
            let message = format!("vxlan over an underlay of {underlay} bytes cannot carry {}", mtu.value);
            report.add(mtu.at, message, format!("write at most {carried}, or raise the underlay's mtu"));
        }
        None if vxlan && ipv6 && carried < 1280 => {
            let message = format!("vxlan over an underlay of {underlay} bytes leaves {carried}, too little for IPv6");
            report.add(driver_at, message, "raise the underlay's mtu to 1330 or more, or write `ipv6: false`");
        }
        _ => {}
    }
}

/// Every vxlan network has an identifier of its own: what is written, else the first free one from 1.
fn number_vxlans<'f>(written: impl Iterator<Item = &'f Written>, networks: &mut [Network], report: &mut Report) {
    let mut taken: HashMap<u32, String> = HashMap::new();
    for (network, written) in networks.iter().zip(written) {
        let Written::Settings(settings) = written else { continue };
        let (Some(_), Some(vni)) = (network.vni, &settings.vni) else { continue };
        if !(1..1 << 24).contains(&vni.value) {
            report.add(vni.at, format!("a vni cannot be {}", vni.value), "write 1 to 16777215 (24 bits, RFC 7348)");
        } else if let Some(other) = taken.insert(vni.value, network.name.clone()) {
            let message = format!("vni {} is already `{other}`'s", vni.value);
            report.add(vni.at, message, "write another, or leave it out to be given one");
        }
    }
    let mut free = (1..1 << 24).filter(|vni| !taken.contains_key(vni));
    for network in networks.iter_mut().filter(|network| network.driver == DriverKind::Vxlan) {
        network.vni = network.vni.or_else(|| free.next());
    }
}

/// No two subnets share an address, and none is a special one.
fn keep_apart(networks: &Networks, hosts: &Hosts, report: &mut Report) {
    let mut subnets: Vec<(IpNet, &str, Span)> = Vec::new();
    if let Some(underlay) = &hosts.underlay {
        subnets.push((underlay.ipv4.into(), "the underlay", hosts.at));
        subnets.push((underlay.ipv6.into(), "the underlay", hosts.at));
    }
    for (number, (network, places)) in networks.list.iter().zip(&networks.places).enumerate() {
        if number >= DEFAULT_SUBNETS && network.ipv4 == default_ipv4(number) {
            // It has none, which is reported.
            continue;
        }
        subnets.push((network.ipv4.into(), &network.name, places.ipv4));
        subnets.extend(network.ipv6.map(|net| (net.into(), network.name.as_str(), places.ipv6)));
    }
    let overlap = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
    for (i, (subnet, name, at)) in subnets.iter().enumerate() {
        if let Some((special, what)) =
            SPECIAL.iter().find(|(net, _)| net.parse().is_ok_and(|net| overlap(&net, subnet)))
        {
            let help = "write a private subnet, such as 10.80.0.0/16 or fd00:80::/64";
            report.add(*at, format!("{subnet} overlaps {special}, which is for {what}"), help);
        } else if let Some((other, theirs, _)) = subnets[..i].iter().find(|(other, ..)| overlap(other, subnet)) {
            let message = format!("{subnet} of {name} overlaps {other} of {theirs}");
            report.add(*at, message, "write another subnet for one of them");
        }
    }
    for (network, places) in networks.list.iter().zip(&networks.places) {
        for (peers, at) in network.rdma_peers.iter().zip(&places.rdma_peers) {
            if let Some((subnet, name, _)) = subnets.iter().find(|(subnet, ..)| overlap(&(*peers).into(), subnet)) {
                let message = format!("peers outside of the lab in {peers} overlap {subnet} of {name}");
                report.add(*at, message, "write another subnet for one of them");
            }
        }
    }
}

/// Addresses that are no node's (RFC 6890).
const SPECIAL: [(&str, &str); 7] = [
    ("0.0.0.0/8", "this host on this network"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local addresses"),
    ("224.0.0.0/3", "multicast and beyond"),
    ("::/127", "loopback and the unspecified address"),
    ("fe80::/10", "link-local addresses"),
    ("ff00::/8", "multicast"),
];

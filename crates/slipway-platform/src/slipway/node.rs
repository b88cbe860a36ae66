//! Nodes: those that differ only in name and address together, the others one by one.

use std::collections::BTreeSet;
use std::path::Path;

use super::words::{conditions_over, put_limits};
use super::{env, text_of};
use crate::yaml::{Map, Yaml};
use slipway_lab::condition::Conditions;
use slipway_lab::defaults;
use slipway_lab::id::{List, NetworkId};
use slipway_lab::model::{Interface, Lab, Mount, Node};

/// The rule that places them, where it is not the default, and the nodes.
pub(super) fn nodes(lab: &Lab, common: &List<NetworkId, Conditions>) -> (Option<&'static str>, Map) {
    let pack = is_packed(lab);
    let mut writer = Writer::new(lab, common, pack);
    let mut map = Map::default();
    let mut rest: &[Node] = &lab.nodes;
    while !rest.is_empty() {
        let length = writer.unit(rest, &mut map);
        rest = &rest[length..];
    }
    (pack.then_some("pack"), map)
}

/// Whether nodes are in equal runs on their hosts, and not in turn.
fn is_packed(lab: &Lab) -> bool {
    let hosts = lab.hosts.len();
    let run = lab.nodes.len().div_ceil(hosts);
    let mut all = lab.nodes.enumerate();
    let in_turn = all.clone().all(|(i, node)| node.host.index() == i.index() % hosts);
    !in_turn && all.all(|(i, node)| node.host.index() == i.index() / run)
}

/// One network's addresses of one family, as they are given out.
struct Sequence {
    /// Every address up to here is somebody's.
    dense: Option<u128>,
    /// The last that was given out, not asked for.
    last: Option<u128>,
}

impl Sequence {
    fn new(first: u128, used: &BTreeSet<u128>) -> Self {
        let dense = used.range(first..).zip(first..).take_while(|(used, dense)| *used == dense).last();
        Self { dense: dense.map(|(used, _)| *used), last: None }
    }

    /// Whether the address is given out after `last` to who asks for none: those before it are then taken.
    fn gives(&self, address: u128, last: Option<u128>) -> bool {
        self.dense.is_some_and(|dense| address <= dense) && last.is_none_or(|last| last < address)
    }
}

struct Writer<'l> {
    lab: &'l Lab,
    common: &'l List<NetworkId, Conditions>,
    /// Per network: IPv4, and IPv6 where it has it.
    sequences: List<NetworkId, [Option<Sequence>; 2]>,
    pack: bool,
    /// Nodes so far that are on the host that the rule gives them.
    placed: usize,
}

impl<'l> Writer<'l> {
    fn new(lab: &'l Lab, common: &'l List<NetworkId, Conditions>, pack: bool) -> Self {
        let mut used: List<NetworkId, _> = vec![[BTreeSet::new(), BTreeSet::new()]; lab.networks.len()].into();
        for interface in lab.nodes.iter().flat_map(|node| &node.interfaces) {
            for (family, address) in addresses(interface).into_iter().enumerate() {
                used[interface.network][family].extend(address);
            }
        }
        let sequence = |(network, used): (&slipway_lab::model::Network, [BTreeSet<u128>; 2])| {
            let [v4, v6] = used;
            [
                Some(Sequence::new(defaults::first_ipv4(network.ipv4), &v4)),
                network.ipv6.map(|net| Sequence::new(defaults::first_ipv6(net), &v6)),
            ]
        };
        let sequences = lab.networks.iter().zip(used).map(sequence).collect();
        Self { lab, common, sequences, pack, placed: 0 }
    }

    /// Writes the first of `nodes`, and those after it that can be written together with it. How many these are.
    fn unit(&mut self, nodes: &[Node], map: &mut Map) -> usize {
        let first = &nodes[0];
        let group = first.group.as_str();
        let is_group = first.name == format!("{group}1");
        let mut ways = Ways::new(first.interfaces.len());
        let mut length = 0;
        for (i, node) in nodes.iter().enumerate() {
            let fits = i == 0 || is_group && node.name == format!("{group}{}", i + 1) && self.is_alike(first, node);
            match ways.with(self, first, i, node).filter(|_| fits) {
                Some(both) => ways = both,
                None => break,
            }
            length += 1;
        }
        let mut spec = Map::default();
        if is_group {
            spec.bare("count", length);
        } else if group != first.name {
            spec.text("group", group);
        }
        if ways.host_by_rule {
            self.placed += length;
        }
        self.spec(first, &ways, &mut spec);
        for (slot, interface) in first.interfaces.iter().enumerate() {
            for family in 0..2 {
                if let (true, Some(sequence)) =
                    (ways.given[slot][family], &mut self.sequences[interface.network][family])
                {
                    sequence.last = ways.last[slot][family];
                }
            }
        }
        map.put(if is_group { group } else { &first.name }, Yaml::Map(spec));
        length.max(1)
    }

    /// Whether two nodes of a group may be written together but for host and addresses.
    fn is_alike(&self, first: &Node, node: &Node) -> bool {
        let at = |interface: &Interface| (interface.network, interface.conditions.clone());
        let derived = |node: &Node| node.interfaces.iter().all(|interface| self.has_derived_mac(node, interface));
        let same = Node {
            name: first.name.clone(),
            host: first.host,
            interfaces: first.interfaces.clone(),
            routes: first.routes.clone(),
            limits: slipway_lab::model::Limits { cpuset: first.limits.cpuset.clone(), ..node.limits.clone() },
            ..node.clone()
        };
        same == *first
            && self.own_cpuset(first) == self.own_cpuset(node)
            && node.interfaces.iter().map(at).eq(first.interfaces.iter().map(at))
            && derived(first)
            && derived(node)
    }

    fn has_derived_mac(&self, node: &Node, interface: &Interface) -> bool {
        let network = &self.lab.networks[interface.network].name;
        interface.mac == defaults::derived_mac(&self.lab.name, network, &node.name)
    }

    /// The processors that it has other than its host's.
    fn own_cpuset<'n>(&self, node: &'n Node) -> Option<&'n String> {
        let of_host = &self.lab.hosts[node.host].cpus;
        node.limits.cpuset.as_ref().filter(|cpus| Some(*cpus) != of_host.as_ref())
    }

    fn spec(&self, node: &Node, ways: &Ways, spec: &mut Map) {
        let image = &self.lab.images[node.image].name;
        if image != defaults::HOST_IMAGE {
            spec.text("image", image);
        }
        if !ways.host_by_rule {
            spec.text("host", &self.lab.hosts[node.host].name);
        }
        if let Some(networks) = self.networks(node, ways) {
            spec.put("networks", networks);
        }
        spec.flag("gateway", node.gateway);
        if node.own_routes() {
            spec.text("routes", "none");
        }
        if node.rules_its_network() {
            let words: Vec<String> = node.capabilities.iter().map(ToString::to_string).collect();
            spec.put("capabilities", Yaml::texts(&words));
        }
        put_limits(&node.limits, spec);
        if let Some(cpuset) = self.own_cpuset(node) {
            spec.text("cpuset", cpuset);
        }
        if !node.mounts.is_empty() {
            spec.put("mounts", Yaml::List(node.mounts.iter().map(mount).collect()));
        }
        spec.map("env", env(&node.env));
        let of_host = &self.lab.hosts[node.host].tune;
        let own = node.sysctls.iter().filter(|(name, value)| of_host.get(*name) != Some(*value));
        spec.map("sysctls", env(&own.map(|(name, value)| (name.clone(), value.clone())).collect()));
        if let Some(command) = &node.command {
            spec.put("command", Yaml::texts(command));
        }
        if node.slots != 1 {
            spec.bare("slots", node.slots);
        }
        spec.flag("sshd", node.sshd);
        spec.flag("read_only", node.read_only);
        let mut caps = Map::default();
        for (key, most) in [("queue_pairs", node.rdma.queue_pairs), ("regions", node.rdma.regions)] {
            if let Some(most) = most {
                caps.bare(key, most);
            }
        }
        spec.map("rdma", caps);
    }

    fn networks(&self, node: &Node, ways: &Ways) -> Option<Yaml> {
        let mut map = Map::default();
        let mut is_plain = true;
        for (slot, interface) in node.interfaces.iter().enumerate() {
            let mut member = Map::default();
            if !ways.given[slot][0] {
                member.text("ipv4", interface.ipv4.to_string());
            }
            if let Some(ipv6) = interface.ipv6.filter(|_| !ways.given[slot][1]) {
                member.text("ipv6", ipv6.to_string());
            }
            if !self.has_derived_mac(node, interface) {
                member.text("mac", interface.mac.map(|byte| format!("{byte:02x}")).join(":"));
            }
            member.map("conditions", conditions_over(&interface.conditions, &self.common[interface.network]));
            is_plain &= member.is_empty();
            map.put(&self.lab.networks[interface.network].name, Yaml::Map(member));
        }
        let names = node.interfaces.iter().map(|interface| &self.lab.networks[interface.network].name);
        let on_first = node.interfaces.len() == 1 && node.interfaces[0].network == NetworkId(0);
        if is_plain { (!on_first).then(|| Yaml::texts(names)) } else { Some(Yaml::Map(map)) }
    }
}

/// How nodes may be written together, so far.
struct Ways {
    /// They are where the rule of placement puts them.
    host_by_rule: bool,
    /// True if they are all on one host.
    host_by_name: bool,
    /// Per interface and family: they have addresses as they are given out in order.
    given: Vec<[bool; 2]>,
    /// True where their addresses follow on each other.
    follow: Vec<[bool; 2]>,
    last: Vec<[Option<u128>; 2]>,
}

impl Ways {
    fn new(interfaces: usize) -> Self {
        Self {
            host_by_rule: true,
            host_by_name: true,
            given: vec![[true; 2]; interfaces],
            follow: vec![[true; 2]; interfaces],
            last: vec![[None; 2]; interfaces],
        }
    }

    /// The ways that are left with one node more, the `i`-th. `None`: it cannot be written together with the first.
    fn with(&self, writer: &Writer, first: &Node, i: usize, node: &Node) -> Option<Self> {
        let hosts = writer.lab.hosts.len();
        let by_rule = writer.pack || node.host.index() == (writer.placed + i) % hosts;
        let host_by_rule = self.host_by_rule && by_rule;
        let host_by_name = self.host_by_name && node.host == first.host;
        if !host_by_rule && !host_by_name || node.interfaces.len() != first.interfaces.len() {
            return None;
        }
        let mut ways = Self { host_by_rule, host_by_name, ..self.clone_addresses() };
        for (slot, (interface, of_first)) in node.interfaces.iter().zip(&first.interfaces).enumerate() {
            let begin = addresses(of_first);
            for (family, address) in addresses(interface).into_iter().enumerate() {
                let (Some(address), Some(begin)) = (address, begin[family]) else { continue };
                let sequence = writer.sequences[interface.network][family].as_ref()?;
                let last = ways.last[slot][family].or(sequence.last);
                ways.given[slot][family] &= sequence.gives(address, last);
                ways.follow[slot][family] &= begin.checked_add(i as u128) == Some(address);
                ways.last[slot][family] = Some(address);
                if !ways.given[slot][family] && !ways.follow[slot][family] {
                    return None;
                }
            }
        }
        Some(ways)
    }

    fn clone_addresses(&self) -> Self {
        Self { given: self.given.clone(), follow: self.follow.clone(), last: self.last.clone(), ..*self }
    }
}

fn addresses(interface: &Interface) -> [Option<u128>; 2] {
    [Some(interface.ipv4.to_bits().into()), interface.ipv6.map(std::net::Ipv6Addr::to_bits)]
}

fn mount(mount: &Mount) -> Yaml {
    let has_colon = |path: &Path| path.as_os_str().as_encoded_bytes().contains(&b':');
    let Mount { source, target, writable, shared } = mount;
    if *shared || has_colon(source) || has_colon(target) {
        let mut map = Map::default();
        map.put("source", text_of(source));
        map.put("target", text_of(target));
        if !writable {
            map.bare("writable", false);
        }
        if *shared {
            map.bare("shared", true);
        }
        return Yaml::Map(map);
    }
    let option = if *writable { "" } else { ":ro" };
    Yaml::Text(format!("{}:{}{option}", source.display(), target.display()))
}

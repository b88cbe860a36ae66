//! Distem's platforms: the JSON that its `HashWriter` writes.

mod read;
mod units;
mod write;

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use self::read::{Json, Notes};
pub use self::write::to_distem;
use super::ImportError;
use super::imported::{Platform, draft, finish};
use super::names::Names;
use super::slipway::put_conditions;
use super::yaml::{Map, Yaml};
use slipway_document::errors::{Report, Span};
use slipway_document::tree::{FileKind, Tree};
use slipway_document::units::{ByteRate, Cores, Seconds, shortened};
use slipway_lab::LAB_FILE;
use slipway_lab::condition::{Cpu, LinkConditions, Loss};

/// Longest file, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Reads a platform that Distem saved. `file` is its name, for messages and the lab's.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn from_distem(file: &str, text: &str) -> Result<Platform, ImportError> {
    let mut report = Report::default();
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let begin: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let start = begin + error.column().saturating_sub(1);
        let account = error.to_string();
        let what = account.split(" at line ").next().unwrap_or_default();
        let help = "a platform is SimGrid's XML, or the JSON that Distem saves; a lab file is taken by `slipway up`";
        report.add(Span { start, end: start }, format!("not JSON: {what}"), help);
        return Err(ImportError::Wrong(report.finish(file, text)));
    }
    let Some(tree) = Tree::parse(FileKind { max_bytes: MAX_BYTES, ..LAB_FILE }, text, &mut report) else {
        return Err(ImportError::Wrong(report.finish(file, text)));
    };
    let mut notes = Notes::new(text, &mut report);
    let root = Json::root(&tree);
    let mut reader = Reader::default();
    let map = reader.platform(root.get("vplatform").unwrap_or(root), &mut notes);
    let Notes { lost, .. } = notes;
    if !report.is_empty() {
        return Err(ImportError::Wrong(report.finish(file, text)));
    }
    let lab = draft(file, &map)?;
    Ok(finish(&format!("the Distem platform {file}"), &lab, None, reader.notes, lost)?)
}

#[derive(Default)]
struct Reader {
    /// Each network's name in the lab.
    networks: HashMap<String, String>,
    nodes: Names,
    /// The paths of images, in the order in which they are met.
    images: Vec<String>,
    /// Physical nodes, likewise.
    hosts: Vec<String>,
    notes: Vec<String>,
    renamed: Vec<String>,
}

impl Reader {
    fn platform(&mut self, platform: Json, notes: &mut Notes) -> Map {
        platform.lose_others("platform", &["vnodes", "vnetworks", "pnodes"], notes);
        if let Some(first) = platform.list("pnodes", notes).first() {
            notes.lose("pnodes: the machines that it ran on", first.at());
        }
        let networks = platform.list("vnetworks", notes);
        let vnodes = platform.list("vnodes", notes);
        let hosts: BTreeSet<&str> = vnodes.iter().filter_map(|vnode| vnode.word("host")).collect();
        if hosts.len() > 1 {
            self.hosts = hosts.into_iter().map(str::to_owned).collect();
        }
        let mut gateways = BTreeSet::new();
        let networks = self.networks(&networks, &mut gateways, notes);
        let mut all = Map::default();
        for vnode in &vnodes {
            let name = vnode.need("name", notes);
            let given = self.nodes.give(name);
            if given != name {
                self.renamed.push(format!("{} is {given}", shortened(name)));
            }
            all.put(given, Yaml::Map(self.vnode(*vnode, &gateways, notes)));
        }
        if vnodes.is_empty() && notes.report.is_empty() {
            let help = "check that this is a platform that Distem saved (`{\"vplatform\": {\"vnodes\": […]}}`)";
            notes.report.add(platform.at(), "a platform without vnodes", help);
        }
        self.note();
        let mut file = Map::default();
        if self.hosts.len() > 1 {
            file.bare("hosts", self.hosts.len());
        }
        let mut images = Map::default();
        for (number, path) in self.images.iter().enumerate() {
            images.text(&format!("image{}", number + 1), path);
        }
        file.map("images", images);
        file.map("networks", networks);
        file.map("nodes", all);
        file
    }

    fn note(&mut self) {
        self.notes.push(
            "`output` is what a node sends, `input` what it receives. Rates as tc(8) reads them: mbps are bytes, mbit bits."
                .to_owned(),
        );
        if !self.renamed.is_empty() {
            self.notes.push(format!("Named anew: {}.", self.renamed.join(", ")));
        }
        for (number, host) in self.hosts.iter().enumerate() {
            self.notes.push(format!("{} is the virtual host host{}.", shortened(host), number + 1));
        }
    }

    fn networks(&mut self, vnetworks: &[Json], gateways: &mut BTreeSet<String>, notes: &mut Notes) -> Map {
        let mut names = Names::default();
        let mut map = Map::default();
        for vnetwork in vnetworks {
            vnetwork.lose_others(
                "vnetwork",
                &["id", "name", "address", "vnodes", "vroutes", "vxlan_id", "opts"],
                notes,
            );
            let name = vnetwork.need("name", notes);
            let given = names.give(name);
            if given != name {
                self.renamed.push(format!("network {} is {given}", shortened(name)));
            }
            if self.networks.insert(name.to_owned(), given.clone()).is_some() {
                let message = format!("network `{}` is here twice", shortened(name));
                notes.report.add(vnetwork.at(), message, "give every network a name of its own");
            }
            let address = vnetwork.need("address", notes);
            let mut network = Map::default();
            if vnetwork.word("vxlan_id").is_some_and(|id| id != "0") {
                network.text("driver", "vxlan");
                network.bare("vni", vnetwork.word("vxlan_id").unwrap_or_default());
            }
            match address.parse::<Ipv4Net>() {
                Ok(net) => network.text("ipv4", net.trunc().to_string()),
                Err(_) if address.is_empty() => {}
                Err(_) => {
                    let message = format!("`{}` is no IPv4 subnet", shortened(address));
                    notes.report.add(vnetwork.at(), message, "write one such as `10.144.0.0/22`");
                }
            }
            network.bare("ipv6", false);
            map.put(given, Yaml::Map(network));
            for vroute in vnetwork.list("vroutes", notes) {
                gateways.extend(vroute.word("gateway").map(|gateway| bare_address(gateway).to_owned()));
            }
        }
        map
    }

    fn vnode(&mut self, vnode: Json, gateways: &BTreeSet<String>, notes: &mut Notes) -> Map {
        // Its internal name and its present state are the running platform's own.
        let known = ["id", "name", "status", "vfilesystem", "vifaces", "vcpu", "vmem", "mode", "gateway", "host"];
        vnode.lose_others("vnode", &known, notes);
        let mut node = Map::default();
        if let Some(files) = vnode.get("vfilesystem")
            && let Some(image) = self.image(files, notes)
        {
            node.text("image", image);
        }
        if let Some(host) = vnode.word("host").and_then(|host| self.hosts.iter().position(|known| known == host)) {
            node.text("host", format!("host{}", host + 1));
        }
        let vifaces = vnode.list("vifaces", notes);
        let mut networks = Map::default();
        let mut seen = BTreeSet::new();
        let mut routes = vnode.word("mode") == Some("gateway") || vnode.word("gateway") == Some("true");
        for viface in vifaces {
            let address = bare_address(viface.word("address").unwrap_or_default());
            routes |= gateways.contains(address);
            let Some(network) = self.network_of(viface, notes) else { continue };
            if !seen.insert(network.clone()) {
                let message = format!("a second interface on `{network}`");
                notes.report.add(viface.at(), message, "a lab's node has one on each network: take it out");
            }
            networks.put(network, Yaml::Map(member(viface, address, notes)));
        }
        let forwards = routes && seen.len() > 1;
        if !networks.is_empty() {
            node.put("networks", Yaml::Map(networks));
        }
        node.flag("gateway", forwards);
        if let Some(vcpu) = vnode.get("vcpu") {
            cpu(vcpu, &mut node, notes);
        }
        if let Some(vmem) = vnode.get("vmem") {
            memory(vmem, &mut node, notes);
        }
        if let Some(throttling) = vnode.get("vfilesystem").and_then(|files| files.get("disk_throttling")) {
            disk(throttling, &mut node, notes);
        }
        node
    }

    fn image(&mut self, files: Json, notes: &mut Notes) -> Option<String> {
        // A node's changes are always its own, and the image shared beneath.
        let known = ["vnode", "image", "shared", "path", "sharedpath", "cow", "disk_throttling"];
        files.lose_others("vfilesystem", &known, notes);
        let image = files.word("image")?;
        let path = image.strip_prefix("file://").unwrap_or(image);
        if path.contains("://") {
            notes.lose(
                format!(
                    "the image {}: only files are taken; the machine's own root is taken instead",
                    shortened(image)
                ),
                files.at(),
            );
            return None;
        }
        let known = self.images.iter().position(|known| known == path);
        let number = known.unwrap_or_else(|| {
            self.images.push(path.to_owned());
            self.images.len() - 1
        });
        Some(format!("image{}", number + 1))
    }

    fn network_of(&self, viface: Json, notes: &mut Notes) -> Option<String> {
        let Some(vnetwork) = viface.word("vnetwork") else {
            notes.lose("an interface on no network", viface.at());
            return None;
        };
        let found = self.networks.get(vnetwork).cloned();
        if found.is_none() {
            let known: Vec<_> = self.networks.keys().collect();
            let message = format!("there is no network `{}`", shortened(vnetwork));
            notes.report.add(viface.at(), message, slipway_document::suggest(vnetwork, &known));
        }
        found
    }
}

fn member(viface: Json, address: &str, notes: &mut Notes) -> Map {
    let known = ["id", "name", "vnode", "address", "macaddress", "vnetwork", "input", "output", "bridge"];
    viface.lose_others("viface", &known, notes);
    let mut member = Map::default();
    match address.parse::<Ipv4Addr>() {
        Ok(address) => member.text("ipv4", address.to_string()),
        Err(_) if address.is_empty() => {}
        Err(_) => {
            let message = format!("`{}` is no IPv4 address", shortened(address));
            notes.report.add(viface.at(), message, "write one such as `10.144.2.1/24`");
        }
    }
    if let Some(mac) = viface.word("macaddress") {
        member.text("mac", mac.to_ascii_lowercase());
    }
    let mut conditions = Map::default();
    if let Some(output) = viface.get("output") {
        put_conditions(&traffic(output, notes), &mut conditions);
    }
    if let Some(input) = viface.get("input") {
        let mut ingress = Map::default();
        put_conditions(&traffic(input, notes), &mut ingress);
        conditions.map("ingress", ingress);
    }
    member.map("conditions", conditions);
    member
}

fn bare_address(address: &str) -> &str {
    address.split('/').next().unwrap_or(address)
}

fn value<T>(of: Json, key: &str, read: fn(&str) -> Option<T>, example: &str, notes: &mut Notes) -> Option<T> {
    let written = of.word(key)?;
    let value = read(written);
    if value.is_none() {
        let at = of.get(key).map_or(of.at(), Json::at);
        let message = format!("`{}` is no value of `{key}`", shortened(written));
        notes.report.add(at, message, format!("write for example `{example}`"));
    }
    value
}

fn traffic(traffic: Json, notes: &mut Notes) -> LinkConditions {
    let known = ["bandwidth", "latency", "loss", "corruption", "duplication", "reordering"];
    traffic.lose_others("viface's traffic", &known, notes);
    let mut conditions = LinkConditions::default();
    let shares = [
        ("loss", None),
        ("corruption", Some(&mut conditions.corrupt)),
        ("duplication", Some(&mut conditions.duplicate)),
        ("reordering", Some(&mut conditions.reorder)),
    ];
    let mut loss = None;
    for (key, field) in shares {
        let Some(of) = traffic.get(key) else { continue };
        of.lose_others(key, &["percent"], notes);
        let share = value(of, "percent", units::percent, "0.5%", notes).filter(|share| share.0 > 0.0);
        match field {
            Some(field) => *field = share,
            None => loss = share.map(Loss::Random),
        }
    }
    conditions.loss = loss;
    if let Some(bandwidth) = traffic.get("bandwidth") {
        bandwidth.lose_others("bandwidth", &["rate"], notes);
        conditions.rate = value(bandwidth, "rate", units::rate, "100mbit", notes).filter(|rate| rate.0 > 0);
    }
    if let Some(latency) = traffic.get("latency") {
        latency.lose_others("latency", &["delay", "jitter"], notes);
        conditions.delay = value(latency, "delay", units::time, "20ms", notes);
        conditions.jitter = value(latency, "jitter", units::time, "2ms", notes).filter(|jitter| jitter.0 > 0.0);
    }
    if conditions.jitter.is_some() || conditions.reorder.is_some() {
        conditions.delay.get_or_insert(Seconds(0.0));
    } else {
        conditions.delay = conditions.delay.filter(|delay| delay.0 > 0.0);
    }
    conditions
}

/// Cores of one frequency become processor time.
fn cpu(vcpu: Json, node: &mut Map, notes: &mut Notes) {
    vcpu.lose_others("vcpu", &["pcpu", "vcores"], notes);
    let mut cores = 0.0;
    let mut megahertz = 0.0;
    for vcore in vcpu.list("vcores", notes) {
        vcore.lose_others("vcore", &["id", "pcore", "frequency"], notes);
        match value(vcore, "frequency", units::frequency, "1000 MHz", notes) {
            Some(frequency) if frequency > 1.0 => megahertz += frequency,
            Some(share) if share > 0.0 => cores += share,
            _ => cores += 1.0,
        }
    }
    if megahertz > 0.0 && cores > 0.0 {
        notes.lose("cores of a vnode without a frequency, beside others that have one", vcpu.at());
    }
    if megahertz > 0.0 {
        node.bare("cpu", Cpu::Megahertz(megahertz));
    } else if cores > 0.0 {
        node.bare("cpu", Cpu::Cores(Cores(cores)));
    }
}

fn memory(vmem: Json, node: &mut Map, notes: &mut Notes) {
    vmem.lose_others("vmem", &["mem", "swap", "hard_limit", "soft_limit"], notes);
    let memory = match vmem.word("mem") {
        Some(_) => value(vmem, "mem", units::memory, "512", notes),
        None => value(vmem, "hard_limit", units::memory, "512", notes),
    };
    let soft = value(vmem, "soft_limit", units::memory, "256", notes);
    let swap = value(vmem, "swap", units::memory, "512", notes);
    for (key, bytes) in [("memory", memory), ("memory_soft", soft)] {
        if let Some(bytes) = bytes.filter(|bytes| bytes.0 > 0) {
            node.bare(key, bytes);
        }
    }
    if let (Some(_), Some(swap)) = (memory.filter(|memory| memory.0 > 0), swap) {
        node.bare("swap", swap);
    }
}

fn disk(throttling: Json, node: &mut Map, notes: &mut Notes) {
    throttling.lose_others("disk_throttling", &["limits"], notes);
    let limits = throttling.list("limits", notes);
    let mut map = Map::default();
    for (number, limit) in limits.into_iter().enumerate() {
        limit.lose_others("disk_throttling", &["device", "read_limit", "write_limit"], notes);
        if number > 0 {
            notes.lose("limits of a vnode's second disk", limit.at());
            continue;
        }
        for (key, of) in [("read", "read_limit"), ("write", "write_limit")] {
            if let Some(bytes) = value(limit, of, units::bytes, "20971520", notes).filter(|bytes| *bytes > 0) {
                map.bare(key, ByteRate(bytes));
            }
        }
    }
    node.map("disk", map);
}

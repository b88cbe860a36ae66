//! A lab as a platform that Distem loads.

use serde_json::{Map, Value, json};

use crate::Exported;
use crate::lose::Kinds;
use slipway_document::units::{Rate, Seconds};
use slipway_lab::change::Keys as _;
use slipway_lab::condition::{Cpu, LinkConditions, Loss};
use slipway_lab::model::{DriverWord, ImageSource, Lab, Network, Node};

/// The lab as Distem's JSON, and what of it Distem has no word for.
#[must_use]
pub fn to_distem(lab: &Lab) -> Exported {
    let mut kinds = Kinds::default();
    kinds.lose_programs(lab);
    let vnodes: Vec<Value> = lab.nodes.iter().map(|node| vnode(lab, node, &mut kinds)).collect();
    let vnetworks: Vec<Value> = lab.networks.iter().map(|network| vnetwork(lab, network, &mut kinds)).collect();
    if !lab.links.is_empty() || !lab.matrices.is_empty() {
        kinds.lose("conditions between nodes (its peer latencies are no part of a saved platform)", "all");
    }
    let platform = json!({"vplatform": {"pnodes": [], "vnodes": vnodes, "vnetworks": vnetworks}});
    Exported { text: format!("{platform:#}\n"), lost: kinds.lines() }
}

fn vnetwork(lab: &Lab, network: &Network, kinds: &mut Kinds) -> Value {
    let those = [
        ("IPv6", network.ipv6.is_some()),
        ("mtu", network.mtu.is_some()),
        ("offloads", !network.offloads),
        ("drivers other than bridge and vxlan", !matches!(network.word(), DriverWord::Bridge | DriverWord::Vxlan)),
    ];
    for (what, _) in those.into_iter().filter(|(_, is)| *is) {
        kinds.lose(what, &network.name);
    }
    let on =
        |node: &&Node| node.interfaces.iter().any(|interface| lab.networks[interface.network].name == network.name);
    let vnodes: Vec<&str> = lab.nodes.iter().filter(on).map(|node| node.name.as_str()).collect();
    json!({
        "name": network.name,
        "address": network.ipv4.to_string(),
        "vnodes": vnodes,
        "vroutes": [],
        "vxlan_id": network.vni.unwrap_or(0),
    })
}

fn vnode(lab: &Lab, node: &Node, kinds: &mut Kinds) -> Value {
    let vifaces: Vec<Value> = node
        .interfaces
        .iter()
        .enumerate()
        .map(|(slot, interface)| {
            let network = &lab.networks[interface.network];
            let name = format!("{}:{}", node.name, interface.name);
            json!({
                "id": slot.to_string(),
                "name": interface.name,
                "vnode": node.name,
                "address": format!("{}/{}", interface.ipv4, network.ipv4.prefix_len()),
                "macaddress": interface.mac.map(|byte| format!("{byte:02x}")).join(":"),
                "vnetwork": network.name,
                "input": traffic(&interface.conditions.ingress, &name, kinds),
                "output": traffic(&interface.conditions.egress, &name, kinds),
            })
        })
        .collect();
    let limits = &node.limits;
    let those = [
        ("periods of processor time", limits.cpu_period.is_some()),
        ("sizes of disks", limits.disk.size.is_some()),
        ("operations per second of disks", limits.disk.read_iops.is_some() || limits.disk.write_iops.is_some()),
    ];
    for (what, _) in those.into_iter().filter(|(_, is)| *is) {
        kinds.lose(what, &node.name);
    }
    json!({
        "name": node.name,
        "mode": if node.gateway { "gateway" } else { "normal" },
        "host": (lab.hosts.len() > 1).then(|| &lab.hosts[node.host].name),
        "vfilesystem": files(lab, node, kinds),
        "vifaces": vifaces,
        "vcpu": vcpu(node),
        "vmem": vmem(node),
    })
}

fn files(lab: &Lab, node: &Node, kinds: &mut Kinds) -> Value {
    let image = &lab.images[node.image];
    let mut files = Map::new();
    match &image.source {
        ImageSource::Host => kinds.lose("the machine's own root as an image: Distem needs an archive", &node.name),
        ImageSource::Path { path, reference } => {
            if reference.is_some() || image.base.is_some() {
                kinds.lose("images with a base, and OCI images", &node.name);
            }
            files.insert("image".into(), format!("file://{}", path.display()).into());
        }
    }
    files.insert("shared".into(), true.into());
    files.insert("cow".into(), true.into());
    let disk = &node.limits.disk;
    if disk.read.is_some() || disk.write.is_some() {
        let mut limit = Map::new();
        for (key, rate) in [("read_limit", disk.read), ("write_limit", disk.write)] {
            if let Some(rate) = rate {
                limit.insert(key.into(), rate.0.to_string().into());
            }
        }
        files.insert("disk_throttling".into(), json!({"limits": [limit]}));
    }
    Value::Object(files)
}

/// As many cores as it takes, each with the same share.
fn vcpu(node: &Node) -> Value {
    let (count, frequency) = match node.limits.cpu {
        None => return Value::Null,
        Some(Cpu::Megahertz(megahertz)) => (1, format!("{megahertz} MHz")),
        Some(Cpu::Cores(cores)) => {
            let count = whole_cores(cores.0);
            (count, (cores.0 / f64::from(count)).to_string())
        }
    };
    let vcore = |id: u32| json!({"id": id.to_string(), "frequency": frequency});
    json!({ "vcores": (0..count).map(vcore).collect::<Vec<_>>() })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a lab has between 0.01 and 8192")]
fn whole_cores(cores: f64) -> u32 {
    (cores.ceil() as u32).max(1)
}

fn vmem(node: &Node) -> Value {
    let mebibytes =
        |bytes: Option<slipway_document::units::Bytes>| bytes.map(|bytes| bytes.0.div_ceil(1 << 20).to_string());
    let limits = &node.limits;
    if limits.memory.is_none() && limits.memory_soft.is_none() {
        return Value::Null;
    }
    json!({"mem": mebibytes(limits.memory), "swap": mebibytes(limits.swap), "soft_limit": mebibytes(limits.memory_soft)})
}

fn traffic(conditions: &LinkConditions, of: &str, kinds: &mut Kinds) -> Value {
    let mut traffic = Map::new();
    if let Some(Rate(rate)) = conditions.rate {
        traffic.insert("bandwidth".into(), json!({"rate": format!("{rate}bit")}));
    }
    if let Some(delay) = conditions.delay {
        let mut latency = Map::new();
        latency.insert("delay".into(), time(delay).into());
        if let Some(jitter) = conditions.jitter {
            latency.insert("jitter".into(), time(jitter).into());
        }
        traffic.insert("latency".into(), latency.into());
    }
    let loss = match conditions.loss {
        Some(Loss::Random(share)) => Some(share),
        Some(_) => {
            kinds.lose("loss models with states", of);
            None
        }
        None => None,
    };
    let shares = [
        ("loss", loss),
        ("corruption", conditions.corrupt),
        ("duplication", conditions.duplicate),
        ("reordering", conditions.reorder),
    ];
    for (key, share) in shares {
        if let Some(share) = share {
            traffic.insert(key.into(), json!({"percent": share.to_string()}));
        }
    }
    let told = ["rate", "delay", "jitter", "loss", "corrupt", "duplicate", "reorder"];
    for (key, _) in conditions.words().into_iter().filter(|(key, _)| !told.contains(key)) {
        kinds.lose(&format!("{key} of links"), of);
    }
    if traffic.is_empty() { Value::Null } else { Value::Object(traffic) }
}

/// In a unit of tc's.
fn time(time: Seconds) -> String {
    time.to_string()
}

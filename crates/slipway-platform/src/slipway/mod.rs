//! A lab as a lab file, which reads back equal.

mod link;
mod node;
mod policy;
mod scenario;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

pub(super) use self::words::put_conditions;
use self::words::{Names, conditions_over};
use super::yaml::{Map, Yaml};
use slipway_document::errors::DocumentErrors;
use slipway_lab::condition::Conditions;
use slipway_lab::defaults;
use slipway_lab::id::{HostId, List, NetworkId};
use slipway_lab::model::{
    DriverKind, DriverWord, Host, Image, ImageSource, IoUring, Job, Lab, LinkMechanism, MacvlanMode, Mpi, Network,
    Pick, Profile, Underlay,
};

/// The reason why a lab is no lab file.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The written file cannot be read.
    #[error("write the lab as a file that reads back: {}\nHint: change that in the lab, or report it as an error of Slipway", .0.plain())]
    Unreadable(DocumentErrors),
    /// The written file means something else.
    #[error(
        "write the lab as a file that reads back equal: its {0} would differ\nHint: report this as an error of Slipway, with the output of `slipway inspect --json`"
    )]
    Differs(&'static str),
}

/// The lab file that means `lab`, with `comments` at its top, one line each.
///
/// Nothing is written that is so by default. Nodes that differ only in name and address are written once, with `count`. Paths
/// are absolute.
///
/// # Errors
/// When what was written does not read back as the same lab. It was read, so that nobody finds out later.
pub fn to_slipway(lab: &Lab, comments: &[String]) -> Result<String, ExportError> {
    write(lab, comments, Path::new("/"))
}

/// The same for a lab whose paths may be relative to `base_dir`.
pub(super) fn write(lab: &Lab, comments: &[String], base_dir: &Path) -> Result<String, ExportError> {
    let comments = comments.iter().flat_map(|comment| comment.lines());
    let mut text = comments.fold(String::new(), |text, line| text + "# " + line + "\n");
    text.push_str(&file(lab).document());
    let back = slipway_lab::parse(&lab.name, &text, base_dir).map_err(ExportError::Unreadable)?;
    match difference(lab, &back) {
        None => Ok(text),
        Some(what) => Err(ExportError::Differs(what)),
    }
}

/// The first part in which two labs differ.
fn difference(a: &Lab, b: &Lab) -> Option<&'static str> {
    let parts = [
        ("name", a.name == b.name),
        ("machines", a.machines == b.machines),
        ("hosts", (a.machine, &a.hosts, &a.underlay) == (b.machine, &b.hosts, &b.underlay)),
        ("images", a.images == b.images),
        ("networks", a.networks == b.networks),
        ("nodes", a.nodes == b.nodes),
        ("links", (&a.links, &a.matrices, a.mechanism) == (&b.links, &b.matrices, b.mechanism)),
        ("policy", a.policy == b.policy),
        ("job", a.job == b.job),
        ("scenario", a.scenario == b.scenario),
        // Whose part of a running lab it was is nothing of a file's.
        ("seed", Lab { part: b.part.clone(), ..a.clone() } == *b),
    ];
    parts.into_iter().find(|(_, equal)| !equal).map(|(what, _)| what)
}

fn file(lab: &Lab) -> Map {
    let names = Names::of(lab);
    let common = common_conditions(lab);
    let (placement, nodes) = node::nodes(lab, &common);
    let mut file = Map::default();
    file.text("lab", &lab.name);
    if lab.seed != 0 {
        file.bare("seed", lab.seed);
    }
    file.map("machines", machines(lab));
    if let Some(hosts) = hosts(lab) {
        file.put("hosts", hosts);
    }
    if let Some(placement) = placement {
        file.text("placement", placement);
    }
    file.map("underlay", lab.underlay.as_ref().map(underlay).unwrap_or_default());
    file.map("images", images(&lab.images));
    file.map("networks", networks(lab, &common));
    file.map("nodes", nodes);
    let links = link::links(&names);
    if !links.is_empty() {
        file.put("links", Yaml::List(links));
    }
    match lab.mechanism {
        LinkMechanism::Auto => {}
        LinkMechanism::Netem => file.text("mechanism", "netem"),
        LinkMechanism::Wire => file.text("mechanism", "wire"),
    }
    if !lab.policy.is_empty() {
        file.put("policy", Yaml::List(policy::rules(&names)));
    }
    file.map("job", lab.job.as_ref().map(|written| job(written, &names)).unwrap_or_default());
    file.map("scenario", lab.scenario.as_ref().map(|written| scenario::scenario(written, &names)).unwrap_or_default());
    file
}

/// A profile alone is a word.
fn tune(host: &Host) -> Option<Yaml> {
    let mut map = Map::default();
    if let Some(Profile { word, rtt, rate }) = &host.profile {
        if host.tune.is_empty() && rtt.is_none() && rate.is_none() {
            return Some(Yaml::Text(word.to_string()));
        }
        map.text("profile", word.to_string());
        if let Some(rtt) = rtt {
            map.bare("rtt", rtt);
        }
        if let Some(rate) = rate {
            map.bare("rate", rate);
        }
    }
    map.append(env(&host.tune));
    (!map.is_empty()).then_some(Yaml::Map(map))
}

fn machines(lab: &Lab) -> Map {
    let mut map = Map::default();
    for machine in &lab.machines {
        if machine.ssh == machine.name && machine.cores.is_none() && machine.memory.is_none() {
            map.text(&machine.name, machine.address.to_string());
        } else {
            let mut settings = Map::default();
            settings.text("address", machine.address.to_string());
            if machine.ssh != machine.name {
                settings.text("ssh", &machine.ssh);
            }
            if let Some(cores) = machine.cores {
                settings.bare("cores", cores);
            }
            if let Some(memory) = machine.memory {
                settings.bare("memory", memory);
            }
            map.put(&machine.name, Yaml::Map(settings));
        }
    }
    map
}

fn hosts(lab: &Lab) -> Option<Yaml> {
    if lab.machine {
        return Some(Yaml::Text("machine".to_owned()));
    }
    let is_default = |(at, host): (HostId, &Host)| host.name == format!("host{}", at.index() + 1);
    let is_set = |host: &Host| host.cpus.is_some() || host.profile.is_some() || !host.tune.is_empty();
    let has_settings = !lab.machines.is_empty() || lab.hosts.iter().any(is_set);
    match lab.hosts.len() {
        _ if has_settings => {
            let mut map = Map::default();
            for host in &lab.hosts {
                let mut settings = Map::default();
                if let Some(machine) = lab.machines.get(host.machine) {
                    settings.text("machine", &machine.name);
                }
                if let Some(cpus) = &host.cpus {
                    settings.text("cpus", cpus);
                }
                if let Some(tune) = tune(host) {
                    settings.put("tune", tune);
                }
                map.put(&host.name, Yaml::Map(settings));
            }
            Some(Yaml::Map(map))
        }
        count if lab.hosts.enumerate().all(is_default) => (count > 1).then(|| Yaml::Bare(count.to_string())),
        _ => Some(Yaml::texts(lab.hosts.iter().map(|host| &host.name))),
    }
}

fn underlay(underlay: &Underlay) -> Map {
    let default = defaults::default_underlay();
    let mut map = Map::default();
    if underlay.mtu != default.mtu {
        map.bare("mtu", underlay.mtu);
    }
    if underlay.ipv4 != default.ipv4 {
        map.text("ipv4", underlay.ipv4.to_string());
    }
    if underlay.ipv6 != default.ipv6 {
        map.text("ipv6", underlay.ipv6.to_string());
    }
    map
}

fn images(images: &[Image]) -> Map {
    let mut map = Map::default();
    for image in images.iter().filter(|image| image.name != defaults::HOST_IMAGE) {
        let value = match (&image.source, image.base) {
            (ImageSource::Host, _) => Yaml::Text(defaults::HOST_IMAGE.to_owned()),
            (ImageSource::Path { path, reference: None }, None) => text_of(path),
            (ImageSource::Path { path, reference }, base) => {
                let mut settings = Map::default();
                settings.put("path", text_of(path));
                if let Some(reference) = reference {
                    settings.text("reference", reference);
                }
                if let Some(base) = base {
                    settings.text("base", &images[base].name);
                }
                Yaml::Map(settings)
            }
        };
        map.put(&image.name, value);
    }
    map
}

/// A path from a file, which is text.
fn text_of(path: &Path) -> Yaml {
    Yaml::Text(path.to_string_lossy().into_owned())
}

/// Per network, the conditions that more than half of its interfaces have; else none.
fn common_conditions(lab: &Lab) -> List<NetworkId, Conditions> {
    let key = |conditions: &Conditions| format!("{}/{}", conditions.egress, conditions.ingress);
    let of = |network: NetworkId| {
        let mut counts: HashMap<String, (usize, &Conditions)> = HashMap::new();
        let interfaces = lab.nodes.iter().flat_map(|node| &node.interfaces);
        let here: Vec<_> = interfaces.filter(|interface| interface.network == network).collect();
        for interface in &here {
            counts.entry(key(&interface.conditions)).or_insert((0, &interface.conditions)).0 += 1;
        }
        let most = counts.into_values().find(|(count, _)| count * 2 > here.len());
        most.map(|(_, conditions)| conditions.clone()).unwrap_or_default()
    };
    lab.networks.ids().map(of).collect()
}

fn networks(lab: &Lab, common: &List<NetworkId, Conditions>) -> Map {
    let mut map = Map::default();
    let vxlans = lab.networks.iter().filter(|network| network.driver == DriverKind::Vxlan);
    let numbered = vxlans.zip(1..).all(|(network, number)| network.vni == Some(number));
    for (number, network) in lab.networks.enumerate() {
        let mut settings = settings(number.index(), network, numbered);
        settings.map("conditions", conditions_over(&common[number], &Conditions::default()));
        let value = if settings.is_empty() {
            Yaml::Text(network.word().to_string())
        } else {
            let mut all = Map::default();
            if network.word() != DriverWord::Bridge {
                all.text("driver", network.word().to_string());
            }
            all.append(settings);
            Yaml::Map(all)
        };
        map.put(&network.name, value);
    }
    let only_default = lab.networks.len() == 1 && lab.networks[NetworkId(0)].name == defaults::DEFAULT_NETWORK;
    let plain = map == {
        let mut plain = Map::default();
        plain.text(defaults::DEFAULT_NETWORK, DriverWord::Bridge.to_string());
        plain
    };
    if only_default && plain { Map::default() } else { map }
}

/// Values that differ from the defaults, except the driver.
fn settings(number: usize, network: &Network, vxlans_in_order: bool) -> Map {
    let mut map = Map::default();
    if network.ipv4 != defaults::default_ipv4(number) {
        map.text("ipv4", network.ipv4.to_string());
    }
    match network.ipv6 {
        None => map.bare("ipv6", false),
        Some(net) if net != defaults::default_ipv6(number) => map.text("ipv6", net.to_string()),
        Some(_) => {}
    }
    if let Some(mtu) = network.mtu {
        map.bare("mtu", mtu);
    }
    if !network.offloads {
        map.bare("offloads", false);
    }
    if let Some(parent) = &network.parent {
        map.text("parent", parent);
    }
    match network.macvlan_mode {
        MacvlanMode::Bridge => {}
        MacvlanMode::Private => map.text("macvlan_mode", "private"),
        MacvlanMode::Vepa => map.text("macvlan_mode", "vepa"),
    }
    if let Some(vni) = network.vni.filter(|_| !vxlans_in_order) {
        map.bare("vni", vni);
    }
    if let Some(tcp) = network.bypasses.tcp {
        if tcp.io_uring == IoUring::Allow {
            map.text("io_uring", "allow");
        }
        map.flag("exact", tcp.exact);
    }
    map.flag("rdma", network.bypasses.rdma);
    map
}

fn env(env: &BTreeMap<String, String>) -> Map {
    let mut map = Map::default();
    for (name, value) in env {
        map.text(name, value);
    }
    map
}

fn job(job: &Job, names: &Names) -> Map {
    let mut map = Map::default();
    map.put("command", Yaml::texts(&job.command));
    match job.mpi {
        None => {}
        Some(Mpi::Openmpi) => map.text("mpi", "openmpi"),
        Some(Mpi::Mpich) => map.text("mpi", "mpich"),
    }
    if let Some(ranks) = job.ranks {
        map.bare("ranks", ranks);
    }
    if !job.nodes.iter().copied().eq(names.lab.nodes.ids()) {
        map.put("nodes", Yaml::texts(names.words(&job.nodes)));
    }
    if let Some(timeout) = job.timeout {
        map.bare("timeout", timeout);
    }
    if let Some(workdir) = &job.workdir {
        map.put("workdir", text_of(workdir));
    }
    map.map("env", env(&job.env));
    if let Some(figure) = &job.figure {
        let mut written = Map::default();
        written.text("name", &figure.name);
        written.text("unit", &figure.unit);
        written.text("better", if figure.higher_is_better { "higher" } else { "lower" });
        match &figure.pick {
            Pick::WallTime => written.flag("wall_time", true),
            Pick::Regex(regex) => written.text("regex", regex),
            Pick::JsonPath(path) => written.text("json_path", path),
        }
        map.map("figure", written);
    }
    map
}

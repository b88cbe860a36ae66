//! Labs and nodes as text.

use std::fmt::Write as _;

pub(crate) use slipway_document::text::listed;
use slipway_document::units::Bytes;
use slipway_engine::fast::RouterState;
use slipway_engine::lab::OwnProgram;
use slipway_engine::network::Mechanism;
use slipway_engine::scenario::{Standing, Status};
use slipway_engine::state::ProgramEnd;
use slipway_engine::tuning::{LeftOut, Tuning, Tunings};
use slipway_lab::model::{ImageSource, Interface, Lab, Limits, Network, Node};

/// Columns under a heading, as `ps(1)` has them: no lines, nothing wrapped.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// `KEY  VALUE` lines, the keys aligned.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let lines: Vec<String> = facts.iter().map(|(key, value)| format!("{key:width$}  {value}\n")).collect();
    lines.concat()
}

/// `1 node`, `2 nodes`, `2 processes`.
pub(crate) fn count(number: impl TryInto<u64>, one: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        number if one.ends_with('s') => format!("{number} {one}es"),
        number => format!("{number} {one}s"),
    }
}

/// The fate of fast connections that are no longer allowed; empty where there were none.
pub(crate) fn ended(connections: u64) -> String {
    match connections {
        0 => String::new(),
        1 => "1 fast connection was ended; its programs connect anew on the container network\n".to_owned(),
        some => format!("{some} fast connections were ended; their programs connect anew on the container network\n"),
    }
}

/// Three digits are enough to read an amount by.
pub(crate) fn size(Bytes(bytes): Bytes) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) => format!("{:.1} {unit}", bytes as f64 / *scale as f64),
        None => format!("{bytes} B"),
    }
}

/// How long ago, in the unit that fits.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

/// How far a lab's scenario is, and what can be done about one that was interrupted.
pub(crate) fn scenario(status: &Status) -> String {
    let Status { standing, scenario, event, events } = status;
    let event = event.map_or_else(|| "the first event".to_owned(), |event| format!("event {event}"));
    match standing {
        Standing::Playing => format!("{scenario} is played, {event} of {events}"),
        Standing::Paused => format!("{scenario} is paused at {event} of {events}; `slipway resume` lets it go on"),
        Standing::Interrupted => format!(
            "{scenario} was interrupted at {event} of {events}; `slipway play --resume` goes on with it, `slipway restore` puts the lab back"
        ),
        Standing::Over => format!("{scenario} is over"),
    }
}

/// How a node's own program ended.
pub(crate) fn ended_how(end: ProgramEnd) -> String {
    match end.signal {
        Some(number) => format!(" by signal {number}"),
        None => format!(" with code {}", end.code),
    }
}

/// Whether a node's own program runs, or how it ended.
pub(crate) fn program(program: &OwnProgram) -> String {
    match program.end {
        Some(end) => format!("ended{}", ended_how(end)),
        None if program.status == "none" => "-".to_owned(),
        None => program.status.clone(),
    }
}

/// The router of a host of a lab.
pub(crate) fn router(lab: &Lab, router: &RouterState) -> String {
    let RouterState { host, pid, restarts, trouble, .. } = router;
    let process = pid.map_or_else(|| "none; programs' calls wait for one".to_owned(), |pid| format!("process {pid}"));
    let before = match trouble {
        Some(trouble) => format!(" ({} before it; the last {trouble})", count(*restarts, "other")),
        None => String::new(),
    };
    format!("of {}: {process}{before}", lab.hosts[*host].name)
}

/// A lab: its hosts, networks and nodes. `how` says how this machine makes each network, where that is known.
pub(crate) fn lab(lab: &Lab, how: &[Mechanism]) -> String {
    let mut text = String::new();
    let hosts = table(
        ["HOST", "UNDERLAY", "CPUS", "NODES"],
        lab.hosts.enumerate().map(|(index, host)| {
            let nodes = lab.nodes.iter().filter(|node| node.host == index).count();
            let address = host.ipv4.map_or_else(|| "-".to_owned(), |ipv4| ipv4.to_string());
            [host.name.clone(), address, host.cpus.clone().unwrap_or_else(|| "all".to_owned()), nodes.to_string()]
        }),
    );
    let networks = table(
        ["NETWORK", "DRIVER", "SUBNETS", "MTU", "MADE OF"],
        lab.networks.iter().map(|network| {
            let how = how.iter().find(|how| how.network == network.name);
            let mtu = how.map(|how| how.mtu).or(network.mtu);
            let mtu = mtu.map_or_else(|| "driver's".to_owned(), |mtu| mtu.to_string());
            let made_of = how.map_or_else(|| "-".to_owned(), |how| how.probed.mechanism.clone());
            [network.name.clone(), network.word().to_string(), subnets(network), mtu, made_of]
        }),
    );
    let nodes = table(
        ["NODE", "HOST", "IMAGE", "ADDRESSES", "LIMITS"],
        lab.nodes.iter().map(|node| {
            let addresses: Vec<String> = node.interfaces.iter().flat_map(addresses).collect();
            let limits = limits(&node.limits);
            [
                node.name.clone(),
                lab.hosts[node.host].name.clone(),
                lab.images[node.image].name.clone(),
                addresses.join(" "),
                if limits.is_empty() { "-".to_owned() } else { limits.join(", ") },
            ]
        }),
    );
    let _ = write!(text, "{hosts}\n{networks}\n{nodes}");
    for how in how {
        for note in &how.probed.notes {
            let _ = writeln!(text, "\nnote on network {}: {note}", how.network);
        }
    }
    text
}

/// The kernel settings that profiles gave hosts of a lab; empty where none has a profile.
pub(crate) fn tunings(lab: &Lab, tunings: &Tunings) -> String {
    let mut text = String::new();
    for (host, tuning) in tunings.enumerate().filter_map(|(host, tuning)| Some((host, tuning.as_ref()?))) {
        let Tuning { profile, rtt, rate, settings, left_out } = tuning;
        let name = &lab.hosts[host].name;
        let _ = writeln!(text, "\nhost {name} is tuned for {profile}: {rate} over {rtt}");
        if !settings.is_empty() {
            let rows = settings.iter().map(|chosen| {
                let holds = if chosen.in_nodes { "host, nodes" } else { "host" };
                let [former, value] = [&chosen.former, &chosen.value].map(Clone::clone);
                [chosen.name.clone(), former, value, chosen.rule.clone(), holds.to_owned()]
            });
            text.push_str(&table(["SETTING", "FORMER", "VALUE", "RULE", "HOLDS FOR"], rows));
        }
        for LeftOut { name, value, rule, reason } in left_out {
            let _ = writeln!(text, "without {name} = {value} (rule {rule}): {reason}");
        }
    }
    text
}

/// All facts about a node that the lab file and the lab decided.
pub(crate) fn node(lab: &Lab, node: &Node, how: &[Mechanism]) -> Vec<(&'static str, String)> {
    let mut facts = vec![("host", lab.hosts[node.host].name.clone()), ("image", image(lab, node.image))];
    for interface in &node.interfaces {
        let network = &lab.networks[interface.network];
        let how = how.iter().find(|how| how.network == network.name);
        let how = how.map_or_else(String::new, |how| format!(", {}, MTU {}", how.probed.mechanism, how.mtu));
        let addresses = addresses(interface).join(" ");
        facts.push(("interface", format!("{} {addresses} {}", interface.name, mac(interface.mac))));
        facts.push(("", format!("on network {} ({}{how})", network.name, network.word())));
    }
    facts.extend(node.routes.iter().map(|route| ("route", format!("{} via {}", route.to, route.via))));
    if node.gateway {
        facts.push(("gateway", "forwards between its networks".to_owned()));
    }
    if node.own_routes() {
        facts.push(("routes", "its own programs'".to_owned()));
    }
    if node.rules_its_network() {
        let words: Vec<String> = node.capabilities.iter().map(ToString::to_string).collect();
        facts.push(("capabilities", words.join(" ")));
    }
    facts.extend(node.mounts.iter().map(|mount| {
        let how = if mount.writable { "read-write" } else { "read-only" };
        let shared = if mount.shared { ", shared by the machines" } else { "" };
        ("mount", format!("{} on {} ({how}{shared})", mount.source.display(), mount.target.display()))
    }));
    let limits = limits(&node.limits);
    facts.push(("limits", if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }));
    facts.extend(node.env.iter().map(|(key, value)| ("environment", format!("{key}={value}"))));
    if let Some(command) = &node.command {
        facts.push(("command", command.join(" ")));
    }
    facts.push(("slots", node.slots.to_string()));
    if node.sshd {
        facts.push(("sshd", "yes, with keys of the lab's own".to_owned()));
    }
    if node.read_only {
        facts.push(("root", "read-only".to_owned()));
    }
    facts
}

fn image(lab: &Lab, index: usize) -> String {
    let image = &lab.images[index];
    let from = match &image.source {
        ImageSource::Host => "this machine's root".to_owned(),
        ImageSource::Path { path, reference: Some(reference) } => format!("{reference} in {}", path.display()),
        ImageSource::Path { path, reference: None } => path.display().to_string(),
    };
    let base = image.base.map_or_else(String::new, |base| format!(", on top of {}", lab.images[base].name));
    format!("{} ({from}{base})", image.name)
}

fn subnets(network: &Network) -> String {
    let ipv6 = network.ipv6.map_or_else(String::new, |ipv6| format!(" {ipv6}"));
    format!("{}{ipv6}", network.ipv4)
}

fn addresses(interface: &Interface) -> Vec<String> {
    let ipv6 = interface.ipv6.map(|ipv6| ipv6.to_string());
    std::iter::once(interface.ipv4.to_string()).chain(ipv6).collect()
}

fn limits(limits: &Limits) -> Vec<String> {
    let limits = [
        limits.cpu.map(|cpu| format!("cpu {cpu}")),
        limits.cpuset.as_ref().map(|cpuset| format!("cpuset {cpuset}")),
        limits.memory.map(|memory| format!("memory {memory}")),
        limits.pids.map(|pids| format!("pids {pids}")),
    ];
    limits.into_iter().flatten().collect()
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!(size(Bytes(999)), "999 B");
        assert_eq!(size(Bytes(1536)), "1.5 KiB");
        assert_eq!(size(Bytes(20 << 30)), "20.0 GiB");
        assert_eq!(age(90), "90 s");
        assert_eq!(age(7200), "2 h");
    }

    #[test]
    fn columns_are_aligned_and_lines_end_clean() {
        let text = table(["A", "B"], [["long one".to_owned(), String::new()], ["x".to_owned(), "y".to_owned()]]);
        assert_eq!(text, "A         B\nlong one\nx         y\n");
    }
}

//! Every fact with its name.

use crate::facts::{Block, Cpus, Fact, Facts, Interrupt, Nic};
use crate::formula::Value;
use crate::target::Target;

type Table<T> = &'static [(&'static str, fn(&T) -> Value)];

type OfInterrupt = fn(&Nic, &Interrupt) -> Value;

fn number<T: Copy + Into<f64>>(fact: &Fact<T>) -> Value {
    of(fact, |number| Value::of((*number).into()))
}

fn large(fact: &Fact<u64>) -> Value {
    of(fact, |number| Value::of(*number as f64))
}

fn text(fact: &Fact<String>) -> Value {
    of(fact, |text| Value::Text(text.clone()))
}

fn truth(fact: &Fact<bool>) -> Value {
    of(fact, |truth| Value::Truth(*truth))
}

fn cpus(fact: &Fact<Cpus>) -> Value {
    of(fact, |cpus| Value::Text(cpus.to_string()))
}

fn of<T>(fact: &Fact<T>, known: impl FnOnce(&T) -> Value) -> Value {
    match fact.as_result() {
        Ok(value) => known(value),
        Err(reason) => Value::unknown(reason),
    }
}

fn count(number: usize) -> Value {
    Value::of(number as f64)
}

/// The machine's use.
pub(super) const TARGET: Table<Target> = &[
    ("profile", |target| Value::Text(target.profile.name().to_owned())),
    ("rtt", |target| Value::of(target.rtt)),
    ("rate", |target| Value::of(target.rate)),
    ("bdp", |target| Value::of(target.bdp())),
];

/// The machine.
pub(super) const MACHINE: Table<Facts> = &[
    ("kernel", |facts| text(&facts.system.kernel)),
    ("cmdline", |facts| text(&facts.system.cmdline)),
    ("machine.virtual", |facts| truth(&facts.system.is_virtual)),
    ("machine.container", |facts| Value::Truth(facts.system.is_container)),
    ("machine.iommu", |facts| Value::Truth(facts.system.iommu)),
    ("machine.services", |facts| of(&facts.system.services, |names| Value::Text(names.join(" ")))),
    ("machine.tuned", |facts| text(&facts.system.tuned_profile)),
    ("machine.nics", |facts| count(facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true)).count())),
    ("machine.fastest", fastest),
    ("machine.mtu", |facts| {
        let mtus = facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true)).filter_map(|nic| nic.mtu.known());
        mtus.max().map_or_else(|| Value::unknown("no interface is up"), |mtu| Value::of(f64::from(*mtu)))
    }),
    ("cpu.model", |facts| text(&facts.cpu.model)),
    ("cpu.sockets", |facts| number(&facts.cpu.sockets)),
    ("cpu.count", |facts| of(&facts.cpu.online, |Cpus(cpus)| count(cpus.len()))),
    ("cpu.isolated", |facts| cpus(&facts.cpu.isolated)),
    ("cpu.smt", |facts| truth(&facts.cpu.smt)),
    ("cpu.driver", |facts| text(&facts.cpu.driver)),
    ("cpu.governor", |facts| text(&facts.cpu.governor)),
    ("cpu.preference", |facts| text(&facts.cpu.preference)),
    ("cpu.turbo", |facts| truth(&facts.cpu.turbo)),
    ("cpu.nodes", |facts| count(facts.cpu.nodes.len())),
    ("cpu.wake_up", wake_up),
    ("memory.total", |facts| large(&facts.memory.total)),
    ("memory.huge_pages", |facts| large(&facts.memory.huge_pages)),
    ("memory.thp", |facts| text(&facts.memory.transparent_huge_pages)),
];

/// The fastest link that is up.
fn fastest(facts: &Facts) -> Value {
    let speeds = facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true)).filter_map(|nic| nic.speed.known());
    let fastest = speeds.copied().fold(0.0, f64::max);
    if fastest > 0.0 { Value::of(fastest) } else { Value::unknown("no interface tells its speed") }
}

/// The longest time that a processor may take to wake up, seconds.
fn wake_up(facts: &Facts) -> Value {
    let used = facts.cpu.idle.iter().filter(|state| state.disabled != Fact::Known(true));
    match used.filter_map(|state| state.latency_us.known()).max() {
        Some(latency) => Value::of(*latency as f64 / 1e6),
        None => Value::unknown("this kernel does not put processors to sleep"),
    }
}

/// The interface.
pub(super) const NIC: Table<Nic> = &[
    ("nic.name", |nic| Value::Text(nic.name.clone())),
    ("nic.driver", |nic| text(&nic.driver)),
    ("nic.speed", |nic| number(&nic.speed)),
    ("nic.mtu", |nic| number(&nic.mtu)),
    ("nic.txqueuelen", |nic| number(&nic.tx_queue_len)),
    ("nic.node", |nic| number(&nic.numa_node)),
    ("nic.near", |nic| cpus(&nic.near)),
    ("nic.near_count", |nic| of(&nic.near, |Cpus(cpus)| count(cpus.len()))),
    ("nic.pcie", |nic| number(&nic.pcie.rate)),
    ("nic.pcie_max", |nic| number(&nic.pcie.max_rate)),
    ("nic.pcie_speed", |nic| number(&nic.pcie.speed)),
    ("nic.pcie_width", |nic| number(&nic.pcie.width)),
    ("nic.received", |nic| large(&nic.lost.received)),
    ("nic.lost_ring", |nic| large(&nic.lost.ring)),
    ("nic.lost_port", |nic| large(&nic.lost.port)),
    ("nic.lost_wire", |nic| large(&nic.lost.wire)),
    ("nic.lost_send", |nic| large(&nic.lost.send)),
    ("nic.rx_queues", |nic| Value::of(f64::from(nic.rx_queues))),
    ("nic.tx_queues", |nic| Value::of(f64::from(nic.tx_queues))),
    ("nic.rps", |nic| truth(&nic.rps)),
    ("nic.rps_flows", |nic| large(&nic.rps_flows)),
    ("nic.xps", |nic| truth(&nic.xps)),
    ("nic.interrupts", |nic| count(nic.interrupts.len())),
    ("nic.ring_rx", |nic| of(&nic.told.ring_rx, |(now, _)| Value::of(f64::from(*now)))),
    ("nic.ring_rx_max", |nic| of(&nic.told.ring_rx, |(_, most)| Value::of(f64::from(*most)))),
    ("nic.ring_tx", |nic| of(&nic.told.ring_tx, |(now, _)| Value::of(f64::from(*now)))),
    ("nic.ring_tx_max", |nic| of(&nic.told.ring_tx, |(_, most)| Value::of(f64::from(*most)))),
    ("nic.channels", |nic| of(&nic.told.channels, |(now, _)| Value::of(f64::from(*now)))),
    ("nic.channels_max", |nic| of(&nic.told.channels, |(_, most)| Value::of(f64::from(*most)))),
    ("nic.coalesce_rx", |nic| of(&nic.told.coalesce_rx_us, |us| Value::of(f64::from(*us) / 1e6))),
    ("nic.coalesce_tx", |nic| of(&nic.told.coalesce_tx_us, |us| Value::of(f64::from(*us) / 1e6))),
    ("nic.adaptive_rx", |nic| truth(&nic.told.adaptive_rx)),
    ("nic.adaptive_tx", |nic| truth(&nic.told.adaptive_tx)),
    ("nic.pause_rx", |nic| of(&nic.told.pause, |pause| Value::Truth(pause.rx))),
    ("nic.pause_tx", |nic| of(&nic.told.pause, |pause| Value::Truth(pause.tx))),
    ("nic.qdisc", |nic| text(&nic.told.qdisc)),
    ("nic.fixed", |nic| Value::Text(nic.told.fixed.join(" "))),
    ("nic.gro", |nic| feature(nic, &["rx-gro"])),
    ("nic.gso", |nic| feature(nic, &["tx-generic-segmentation"])),
    ("nic.tso", |nic| feature(nic, &["tx-tcp-segmentation"])),
    ("nic.lro", |nic| feature(nic, &["rx-lro"])),
    ("nic.scatter_gather", |nic| feature(nic, &["tx-scatter-gather"])),
    ("nic.rx_checksum", |nic| feature(nic, &["rx-checksum"])),
    ("nic.tx_checksum", |nic| feature(nic, &["tx-checksum-ip-generic", "tx-checksum-ipv4"])),
    ("nic.rx_hash", |nic| feature(nic, &["rx-hashing"])),
];

/// Whether one of the features is on.
fn feature(nic: &Nic, names: &[&str]) -> Value {
    of(&nic.told.features, |features| {
        let known: Vec<bool> = names.iter().filter_map(|name| features.get(*name).copied()).collect();
        if known.is_empty() {
            return Value::unknown(format!("the kernel has no feature {}", names.join(" or ")));
        }
        Value::Truth(known.contains(&true))
    })
}

/// The interrupt of an interface.
pub(super) const IRQ: &[(&str, OfInterrupt)] = &[
    ("irq.number", |_, irq| Value::of(f64::from(irq.irq))),
    ("irq.affinity", |_, irq| cpus(&irq.affinity)),
    ("irq.near", |nic, irq| of(&irq.affinity, |affinity| of(&nic.near, |near| Value::Truth(affinity.within(near))))),
];

/// The block device.
pub(super) const BLOCK: Table<Block> = &[
    ("block.name", |block| Value::Text(block.name.clone())),
    ("block.kind", |block| of(&block.kind, |kind| Value::Text(kind.name().to_owned()))),
    ("block.size", |block| large(&block.size)),
    ("block.scheduler", |block| text(&block.scheduler)),
    ("block.schedulers", |block| text(&block.schedulers)),
    ("block.readahead", |block| large(&block.readahead_kib)),
    ("block.requests", |block| large(&block.requests)),
    ("block.cache", |block| text(&block.cache)),
    ("block.raid", |block| text(&block.raid)),
    ("block.raid_chunk", |block| large(&block.raid_chunk)),
    ("block.parts", |block| count(block.parts.len())),
    ("block.mounts", |block| count(block.mounts.len())),
    ("block.systems", |block| {
        let kinds: std::collections::BTreeSet<&str> = block.mounts.iter().map(|mount| mount.kind.as_str()).collect();
        Value::Text(kinds.into_iter().collect::<Vec<_>>().join(" "))
    }),
    ("block.noatime", |block| {
        let unneeded = ["noatime", "relatime"];
        let each = |mount: &crate::facts::Mount| mount.options.iter().any(|option| unneeded.contains(&option.as_str()));
        Value::Truth(block.mounts.iter().all(each))
    }),
    ("block.journal", |block| match block.mounts.iter().find_map(crate::facts::Mount::journal) {
        Some(mode) => Value::Text(mode.to_owned()),
        None => Value::unknown("no ext4 file system on it is mounted"),
    }),
];

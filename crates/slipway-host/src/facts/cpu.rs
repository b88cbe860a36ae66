//! Processors, their clocks and sleep, and NUMA nodes.

use std::collections::BTreeSet;

use serde::Serialize;

use super::fact::Fact;
use super::source::Source;
use slipway_document::cpus::Cpus;

const ROOT: &str = "/sys/devices/system/cpu";

/// The processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// The model's name.
    pub model: Fact<String>,
    /// Sockets with a processor.
    pub sockets: Fact<u32>,
    /// Processors that are online; each thread of a core is one.
    pub online: Fact<Cpus>,
    /// Processors that the scheduler leaves alone (`isolcpus=`).
    pub isolated: Fact<Cpus>,
    /// Whether a core runs several threads.
    pub smt: Fact<bool>,
    /// The driver of clock frequencies, such as `intel_pstate`.
    pub driver: Fact<String>,
    /// The governor of clock frequencies, each that some processor has.
    pub governor: Fact<String>,
    /// The preference between energy and performance, where the driver has one.
    pub preference: Fact<String>,
    /// Whether processors may run faster than their nominal clock.
    pub turbo: Fact<bool>,
    /// The highest clock, kHz.
    pub max_khz: Fact<u64>,
    /// States in which an idle processor sleeps.
    pub idle: Vec<IdleState>,
    /// NUMA nodes.
    pub nodes: Vec<NumaNode>,
}

/// A state in which an idle processor sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// The name, such as `C6`.
    pub name: Fact<String>,
    /// The time to wake up, µs.
    pub latency_us: Fact<u64>,
    /// Whether processors do not use it.
    pub disabled: Fact<bool>,
}

/// Processors and memory that are near to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its processors.
    pub cpus: Fact<Cpus>,
}

pub(super) fn gather(source: &Source) -> Cpu {
    let online: Fact<Cpus> = source.read(&format!("{ROOT}/online")).parse();
    Cpu {
        model: model(source),
        sockets: sockets(source),
        isolated: source.read(&format!("{ROOT}/isolated")).parse(),
        smt: flag(source.read(&format!("{ROOT}/smt/active"))),
        driver: source.read(&format!("{ROOT}/cpu0/cpufreq/scaling_driver")),
        governor: governor(source, &online),
        preference: source.read(&format!("{ROOT}/cpu0/cpufreq/energy_performance_preference")),
        turbo: turbo(source),
        max_khz: source.read(&format!("{ROOT}/cpu0/cpufreq/cpuinfo_max_freq")).parse(),
        idle: idle(source),
        nodes: nodes(source),
        online,
    }
}

/// `0` or `1`.
pub(super) fn flag(text: Fact<String>) -> Fact<bool> {
    text.parse::<u64>().map(|number| number != 0)
}

/// `model name` of x86; ARM's kernel tells numbers only.
fn model(source: &Source) -> Fact<String> {
    source.read("/proc/cpuinfo").and_then(|text| {
        let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        name.map_or_else(
            || Fact::unknown("/proc/cpuinfo names no model"),
            |(_, name)| Fact::Known(name.trim().to_owned()),
        )
    })
}

/// `physical id` of x86; other kernels do not tell.
fn sockets(source: &Source) -> Fact<u32> {
    source.read("/proc/cpuinfo").and_then(|text| {
        let ids = text.lines().filter_map(|line| line.strip_prefix("physical id")?.split_once(':'));
        let ids: BTreeSet<&str> = ids.map(|(_, id)| id.trim()).collect();
        match u32::try_from(ids.len()) {
            Ok(count) if count > 0 => Fact::Known(count),
            _ => Fact::unknown("/proc/cpuinfo tells no sockets"),
        }
    })
}

fn governor(source: &Source, online: &Fact<Cpus>) -> Fact<String> {
    let Some(Cpus(online)) = online.known() else {
        return Fact::unknown(format!("there is no {ROOT}/online"));
    };
    let files = online.iter().map(|cpu| source.read(&format!("{ROOT}/cpu{cpu}/cpufreq/scaling_governor")));
    let governors: BTreeSet<String> = files.filter_map(|governor| governor.known().cloned()).collect();
    if governors.is_empty() {
        return Fact::unknown("this kernel does not set the clock frequency");
    }
    Fact::Known(governors.into_iter().collect::<Vec<_>>().join(" "))
}

fn turbo(source: &Source) -> Fact<bool> {
    let off = flag(source.read(&format!("{ROOT}/intel_pstate/no_turbo")));
    let boost = flag(source.read(&format!("{ROOT}/cpufreq/boost")));
    if off.known().is_some() { off.map(|off| !off) } else { boost }
}

fn idle(source: &Source) -> Vec<IdleState> {
    let folder = format!("{ROOT}/cpu0/cpuidle");
    let states = source.list(&folder, |name| name.starts_with("state"));
    let state = |name: String| IdleState {
        name: source.read(&format!("{folder}/{name}/name")),
        latency_us: source.read(&format!("{folder}/{name}/latency")).parse(),
        disabled: flag(source.read(&format!("{folder}/{name}/disable"))),
    };
    states.into_iter().map(state).collect()
}

fn nodes(source: &Source) -> Vec<NumaNode> {
    const NODES: &str = "/sys/devices/system/node";
    let number = |name: &str| name.strip_prefix("node").and_then(|number| number.parse::<u32>().ok());
    let mut ids: Vec<u32> =
        source.list(NODES, |name| number(name).is_some()).iter().filter_map(|name| number(name)).collect();
    ids.sort_unstable();
    let node = |id| NumaNode { id, cpus: source.read(&format!("{NODES}/node{id}/cpulist")).parse() };
    ids.into_iter().map(node).collect()
}

//! `slipway tune facts`

use slipway_document::units::Bytes;
use slipway_host::facts::{Block, Fact, Facts, Nic};

use super::Where;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Show the facts of a machine that matter for moving data
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A fact that Slipway cannot find out is `?`; --json has the reason of each.

Examples:
  slipway tune facts
  slipway tune facts --json | jq '.nics[] | {name, driver, ring_rx}'
  slipway tune facts --root dtn7.txt")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Where,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        context.answer(&Facts::gather(&self.place.open()?), text)?;
        Ok(Exit::Success)
    }
}

fn shown<T>(fact: &Fact<T>, show: impl FnOnce(&T) -> String) -> String {
    fact.known().map_or_else(|| "?".to_owned(), show)
}

fn plain<T: ToString>(fact: &Fact<T>) -> String {
    shown(fact, ToString::to_string)
}

fn switch(fact: &Fact<bool>) -> String {
    shown(fact, |on| if *on { "on" } else { "off" }.to_owned())
}

fn rate(fact: &Fact<f64>) -> String {
    shown(fact, |rate| format!("{:.0} Gbit/s", rate / 1e9))
}

fn text(facts: &Facts) -> String {
    let (system, cpu, memory) = (&facts.system, &facts.cpu, &facts.memory);
    let kind = match (system.is_virtual.known(), system.is_container) {
        (_, true) => "container",
        (Some(true), _) => "virtual",
        (Some(false), _) => "bare",
        (None, _) => "?",
    };
    let machine = view::facts(&[
        ("machine", format!("{} {} ({kind})", plain(&system.vendor), plain(&system.product))),
        ("kernel", plain(&system.kernel)),
        ("processors", format!("{} of {}, {}, {}", shown(&cpu.online, |cpus| cpus.0.len().to_string()), plain(&cpu.model), shown(&cpu.sockets, |&count| view::count(count, "socket")), view::count(cpu.nodes.len(), "NUMA node"))),
        ("clock", format!("governor {}, driver {}, turbo {}, SMT {}", plain(&cpu.governor), plain(&cpu.driver), switch(&cpu.turbo), switch(&cpu.smt))),
        ("memory", format!("{}, huge pages {}", shown(&memory.total, |bytes| view::size(Bytes(*bytes))), plain(&memory.transparent_huge_pages))),
        ("services", shown(&system.services, |names| if names.is_empty() { "none".to_owned() } else { names.join(", ") })),
    ]);
    let nics = view::table(
        ["NIC", "DRIVER", "LINK", "PCIE", "MTU", "NODE", "RINGS", "QUEUES", "QDISC"],
        facts.nics.iter().map(nic),
    );
    let blocks = view::table(
        ["DISK", "KIND", "SIZE", "SCHEDULER", "READAHEAD", "QUEUE", "MOUNTED"],
        facts.blocks.iter().map(block),
    );
    let sysctls = view::table(
        ["SYSCTL", "VALUE"],
        facts.sysctls.iter().filter_map(|(name, value)| Some([name.clone(), value.known()?.clone()])),
    );
    format!("{machine}\n{nics}\n{blocks}\n{sysctls}")
}

fn nic(nic: &Nic) -> [String; 9] {
    let up = nic.is_up == Fact::Known(true);
    let of = |pair: &Fact<(u32, u32)>| shown(pair, |(now, most)| format!("{now} of {most}"));
    [
        nic.name.clone(),
        plain(&nic.driver),
        if up { rate(&nic.speed) } else { "down".to_owned() },
        rate(&nic.pcie.rate),
        plain(&nic.mtu),
        plain(&nic.numa_node),
        of(&nic.told.ring_rx),
        of(&nic.told.channels),
        plain(&nic.told.qdisc),
    ]
}

fn block(block: &Block) -> [String; 7] {
    let mounts: Vec<String> = block.mounts.iter().map(|mount| format!("{} ({})", mount.at, mount.kind)).collect();
    [
        block.name.clone(),
        shown(&block.kind, |kind| kind.name().to_owned()),
        shown(&block.size, |bytes| view::size(Bytes(*bytes))),
        plain(&block.scheduler),
        shown(&block.readahead_kib, |kib| view::size(Bytes(kib.saturating_mul(1024)))),
        plain(&block.requests),
        view::listed(&mounts),
    ]
}

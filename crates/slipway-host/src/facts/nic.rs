//! Network interfaces with hardware behind them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ethtool::Told;
use super::fact::Fact;
use super::losses::{self, Losses};
use super::pcie::{self, PcieLink};
use super::source::Source;
use slipway_document::cpus::Cpus;

/// Most interrupts of one interface. The largest have some 256 queues.
const MOST_INTERRUPTS: usize = 1024;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// The driver, such as `mlx5_core`.
    pub driver: Fact<String>,
    /// The driver's own version. Drivers of the kernel's tree have none.
    pub driver_version: Fact<String>,
    /// True where the interface is up and has a link.
    pub is_up: Fact<bool>,
    /// The link's speed, bit/s.
    pub speed: Fact<f64>,
    /// Largest packet, bytes.
    pub mtu: Fact<u32>,
    /// Packets that may wait in its queue.
    pub tx_queue_len: Fact<u32>,
    /// The NUMA node that it is next to.
    pub numa_node: Fact<u32>,
    /// Processors next to it.
    pub near: Fact<Cpus>,
    /// Its link to the machine.
    pub pcie: PcieLink,
    /// Receive queues.
    pub rx_queues: u32,
    /// Send queues.
    pub tx_queues: u32,
    /// Whether packets of some receive queue go to other processors in software.
    pub rps: Fact<bool>,
    /// Flows that receive flow steering remembers, over all queues.
    pub rps_flows: Fact<u64>,
    /// Whether every send queue has processors of its own.
    pub xps: Fact<bool>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Packets that it lost, by place.
    pub lost: Losses,
    /// Answers of ethtool.
    #[serde(flatten)]
    pub told: Told,
}

/// An interrupt of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// Processors that may serve it.
    pub affinity: Fact<Cpus>,
}

pub(super) fn gather(source: &Source, told: &BTreeMap<String, Told>) -> Vec<Nic> {
    let names =
        source.list("/sys/class/net", |name| name.len() <= 15 && name.bytes().all(|byte| byte.is_ascii_graphic()));
    names.into_iter().filter_map(|name| nic(source, name, told)).collect()
}

/// `None` for an interface without hardware, such as a bridge.
fn nic(source: &Source, name: String, told: &BTreeMap<String, Told>) -> Option<Nic> {
    let folder = format!("/sys/class/net/{name}");
    let uevent = source.read(&format!("{folder}/device/uevent"));
    uevent.known()?;
    let driver = uevent.and_then(|text| {
        let driver = text.lines().find_map(|line| line.strip_prefix("DRIVER="));
        driver.map_or_else(|| Fact::unknown("its device has no driver"), |driver| Fact::Known(driver.to_owned()))
    });
    let queues = |side: &str| source.list(&format!("{folder}/queues"), |name| name.starts_with(side));
    let (rx, tx) = (queues("rx-"), queues("tx-"));
    let of_queues = |queues: &[String], file: &str| -> Fact<Vec<String>> {
        let texts = queues.iter().map(|queue| source.read(&format!("{folder}/queues/{queue}/{file}")));
        texts.fold(Fact::Known(Vec::new()), |all, text| {
            all.and_then(|mut all| {
                text.map(|text| {
                    all.push(text);
                    all
                })
            })
        })
    };
    let number = |file: &str| source.read(&format!("{folder}/{file}")).parse::<u32>();
    let told = told.get(&name).cloned().unwrap_or_default();
    Some(Nic {
        driver_version: driver.clone().and_then(|driver| source.read(&format!("/sys/module/{driver}/version"))),
        driver,
        is_up: source.read(&format!("{folder}/operstate")).map(|state| state == "up"),
        speed: speed(source, &folder),
        mtu: number("mtu"),
        tx_queue_len: number("tx_queue_len"),
        numa_node: number("device/numa_node"),
        near: source.read(&format!("{folder}/device/local_cpulist")).parse(),
        pcie: pcie::gather(source, &format!("{folder}/device")),
        rps: of_queues(&rx, "rps_cpus").map(|masks| masks.iter().any(|mask| is_set(mask))),
        rps_flows: of_queues(&rx, "rps_flow_cnt")
            .map(|counts| counts.iter().filter_map(|count| count.parse::<u64>().ok()).fold(0, u64::saturating_add)),
        xps: of_queues(&tx, "xps_cpus").map(|masks| masks.iter().all(|mask| is_set(mask))),
        rx_queues: u32::try_from(rx.len()).unwrap_or(u32::MAX),
        tx_queues: u32::try_from(tx.len()).unwrap_or(u32::MAX),
        interrupts: interrupts(source, &folder),
        lost: losses::gather(|name| source.read(&format!("{folder}/statistics/{name}")).parse(), &told.losses),
        told,
        name,
    })
}

/// The kernel has Mbit/s, and -1 where nobody knows.
fn speed(source: &Source, folder: &str) -> Fact<f64> {
    source.read(&format!("{folder}/speed")).parse::<i64>().and_then(|speed| match speed {
        1..=10_000_000 => Fact::Known(speed as f64 * 1e6),
        _ => Fact::unknown("the device does not tell its speed"),
    })
}

/// Whether a mask such as `00000000,0000000f` has a bit.
fn is_set(mask: &str) -> bool {
    mask.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0')
}

/// Those of MSI and MSI-X that something handles.
fn interrupts(source: &Source, folder: &str) -> Vec<Interrupt> {
    let numbers = source.list(&format!("{folder}/device/msi_irqs"), |name| name.parse::<u32>().is_ok());
    let mut numbers: Vec<u32> = numbers.iter().filter_map(|name| name.parse().ok()).take(MOST_INTERRUPTS).collect();
    numbers.sort_unstable();
    let interrupt =
        |irq| Interrupt { irq, affinity: source.read(&format!("/proc/irq/{irq}/smp_affinity_list")).parse() };
    numbers.into_iter().map(interrupt).collect()
}

//! This machine and its abilities: for `slipway doctor`, and for the records of every run.

mod check;
mod tools;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use slipway_document::cpus::Cpus;
use slipway_sys::caps;
use slipway_sys::cgroup::{Controller, Hierarchy, Mode};
use slipway_sys::ns::{create_net, with_net};
use slipway_sys::sock_diag::destroy_tcp;

use crate::condition::LinkMeans;
use crate::lack::Lack;
use crate::network::{Probed, Unsupported, survey};
use crate::node::init::most_processes;

pub use check::{Check, Verdict};
pub use tools::Tool;

/// The machine. Gathering it changes nothing; network devices are tried in namespaces that are thrown away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// `PRETTY_NAME` of `os-release(5)`; empty where there is none.
    pub system: String,
    /// The processor's name; empty where the kernel does not say.
    pub processor: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// The driver of the processors' frequency, and its policy (`cpufreq`); `None` where the kernel does not.
    #[serde(default)]
    pub frequency: Option<Frequency>,
    /// Memory of the machine, bytes.
    pub memory: u64,
    /// Whether the effective user is root here.
    pub root: bool,
    /// Whether that root is one of a user namespace, and not the machine's.
    pub user_namespace: bool,
    /// Capabilities that labs need and this process lacks.
    pub missing_capabilities: Vec<String>,
    /// Control groups; what is wrong with them where they cannot be used.
    pub cgroups: Result<Cgroups, Lack>,
    /// Whether overlay file systems can be mounted; why not.
    pub overlay: Result<(), Lack>,
    /// Whether the kernel filters system calls as needed; why not.
    pub seccomp: Result<(), Lack>,
    /// How each network driver would run, or what it lacks.
    pub drivers: Vec<Result<Probed, Unsupported>>,
    /// The means for conditions of links.
    #[serde(default)]
    pub links: LinkMeans,
    /// Whether the kernel resets connections when asked; why not.
    #[serde(default = "nobody_looked")]
    pub resets: Result<(), Lack>,
    /// Programs that jobs and probes use.
    pub tools: Vec<Tool>,
    /// Whether the kernel bounds each node by itself in what it counts by user; why not.
    #[serde(default = "nobody_looked")]
    pub bounded: Result<(), Lack>,
    /// Inotify instances that a node has, or else root and all nodes together (`fs.inotify.max_user_instances`).
    #[serde(default)]
    pub inotify: u64,
    /// Most processes and threads that one node can have without a limit of its own; `None` where it can take all.
    #[serde(default)]
    pub processes: Option<u32>,
}

/// How the kernel changes the processors' frequency (`Documentation/admin-guide/pm/cpufreq.rst`). Slipway leaves it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// `scaling_driver`.
    pub driver: String,
    /// `scaling_governor` of the first processor.
    pub governor: String,
}

/// The control groups of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    /// The versions in use.
    pub mode: Mode,
    /// The controllers for limits.
    pub controllers: Vec<Controller>,
}

/// Capabilities for building a lab, beside those that programs in nodes keep.
const NEEDED: CapabilitySet =
    caps::DEFAULT.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::NET_ADMIN).union(CapabilitySet::SYS_PTRACE);

/// This machine's nominal frequency, MHz: its top one where the kernel says it, else what `/proc/cpuinfo` shows now.
#[must_use]
pub fn megahertz() -> f64 {
    let number = |text: String| text.trim_matches(['\t', ' ', ':', '\n']).parse::<f64>().ok();
    let top = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").ok().and_then(number);
    top.map(|kilohertz| kilohertz / 1000.0).or_else(|| number(line("/proc/cpuinfo", "cpu MHz"))).unwrap_or(1000.0)
}

/// This machine's memory, bytes; 0 where the kernel does not say.
#[must_use]
pub fn memory() -> u64 {
    kibibytes(&line("/proc/meminfo", "MemTotal:"))
}

/// The processors of each NUMA node, in order of nodes; empty where the kernel does not say. Nodes without a processor are
/// left out.
#[must_use]
pub fn numa_nodes() -> Vec<Vec<u32>> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return Vec::new() };
    let mut nodes: Vec<(u32, Vec<u32>)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let Cpus(cpus) = fs::read_to_string(entry.path().join("cpulist")).ok()?.parse().ok()?;
            Some((number, cpus.into_iter().collect()))
        })
        .filter(|(_, processors): &(u32, Vec<u32>)| !processors.is_empty())
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, processors)| processors).collect()
}

impl Facts {
    /// Looks at this machine.
    #[must_use]
    pub fn gather() -> Self {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Self {
            kernel: text(name.release()),
            architecture: text(name.machine()),
            system: line("/etc/os-release", "PRETTY_NAME=").trim_matches('"').to_owned(),
            processor: line("/proc/cpuinfo", "model name").trim_start_matches(['\t', ' ', ':']).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            frequency: frequency(),
            memory: memory(),
            root: rustix::process::geteuid().is_root(),
            user_namespace: in_user_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default()),
            missing_capabilities: missing(),
            cgroups: cgroups(),
            overlay: overlay(),
            seccomp: seccomp(),
            drivers: survey(),
            links: LinkMeans::probe(),
            resets: resets(),
            tools: tools::find(),
            bounded: crate::node::user::is_bounded(),
            inotify: line("/proc/sys/fs/inotify/max_user_instances", "").trim().parse().unwrap_or(0),
            processes: most_processes().unwrap_or(None),
        }
    }

    /// Everything that a person should know before running labs here, each with what to do about it.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        check::all(self)
    }
}

/// The rest of the first line with this beginning; empty where there is none.
fn line(path: &str, beginning: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(beginning)).unwrap_or_default().trim().to_owned()
}

/// `16384 kB` in bytes.
fn kibibytes(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn frequency() -> Option<Frequency> {
    let read = |file: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpufreq/scaling_{file}")).ok();
    Some(Frequency { driver: read("driver")?.trim().to_owned(), governor: read("governor")?.trim().to_owned() })
}

/// The first user namespace maps every user to itself (`user_namespaces(7)`).
fn in_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

fn missing() -> Vec<String> {
    let have = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    (NEEDED - have).iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

fn cgroups() -> Result<Cgroups, Lack> {
    let hierarchy = Hierarchy::detect().map_err(|error| Lack::from(error.to_string()))?;
    let controllers = hierarchy.controllers().into_iter().collect();
    Ok(Cgroups { mode: hierarchy.mode(), controllers })
}

/// Opens the file system type without mounting it, which makes the kernel load its module.
fn overlay() -> Result<(), Lack> {
    match rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::NODEV) => {
            let hint = "modprobe overlay, or boot a kernel that has it";
            Err(Lack::new("the kernel has no overlay file system").with_hint(hint))
        }
        Err(rustix::io::Errno::PERM) => Err(Lack::new("mounting takes CAP_SYS_ADMIN").with_hint("run as root")),
        Err(error) => Err(Lack::new(io::Error::from(error).to_string())),
    }
}

fn seccomp() -> Result<(), Lack> {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if ["allow", "errno"].iter().all(|needed| actions.split_whitespace().any(|action| action == *needed)) {
        return Ok(());
    }
    Err(Lack::new("the kernel has no system-call filters").with_hint("boot one with CONFIG_SECCOMP_FILTER"))
}

fn nobody_looked() -> Result<(), Lack> {
    Err(Lack::nobody_looked())
}

/// Asks for the reset of a connection that there cannot be, in a namespace of its own.
fn resets() -> Result<(), Lack> {
    let place = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let asked = create_net()
        .and_then(|net| with_net(net.as_fd(), || destroy_tcp(place(1), place(2), 1)).and_then(|asked| asked));
    match asked.map_err(|error| (error.raw_os_error(), error)) {
        Ok(()) | Err((Some(nix::libc::ENOENT), _)) => Ok(()),
        Err((Some(nix::libc::EOPNOTSUPP), _)) => {
            let lack = Lack::new("the kernel resets no connections for others");
            Err(lack.with_hint("boot one with CONFIG_INET_DIAG_DESTROY"))
        }
        Err((_, error)) => {
            let lack = Lack::new(format!("a trial failed: {error}"));
            Err(lack.with_hint("boot a kernel with CONFIG_INET_DIAG_DESTROY"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_user_namespace_maps_everyone() {
        assert!(!in_user_namespace("         0          0 4294967295\n"));
        assert!(in_user_namespace("         0       1000          1\n"));
        assert!(in_user_namespace(""));
    }

    #[test]
    fn this_machine_has_a_kernel_processors_and_memory() {
        let facts = Facts::gather();
        assert!(!facts.kernel.is_empty() && facts.cpus > 0 && facts.memory > 0, "{facts:?}");
        let text = serde_json::to_string(&facts).expect("plain data");
        assert_eq!(serde_json::from_str::<Facts>(&text).expect("the same back"), facts);
    }
}

//! A lab of two nodes that is measured: `n1` is the client, `n2` serves.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Output};
use std::time::Duration;

use rustix::io::Errno;
use slipway_engine::lab::Running;
use slipway_measure::probe::Server;
use slipway_sys::cgroup::{Group, Hierarchy};
use slipway_sys::netlink::{Netlink, Offload};
use slipway_sys::ns::with_net;

use super::load::{MOUNTED, WORD};
use crate::common::{Slipway, arg};
use crate::pair::{Pair, command, end};

/// Whether ports of closed connections are taken again (`ip-sysctl.rst`): without it every network but a fast one runs out of
/// them, and searches for most of the time.
const TAKE_PORTS: &str = "tcp_tw_reuse";

/// Up until it is dropped.
pub(super) struct Site<'a> {
    /// As tables call it.
    pub(super) name: &'static str,
    pub(super) hosts: u32,
    pub(super) lab: String,
    pub(super) slipway: &'a Slipway,
    pub(super) pair: Pair,
    group: Group,
}

/// What a lab is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// As tables call it.
    pub(super) name: &'static str,
    /// As `networks:` has it.
    pub(super) network: &'static str,
    pub(super) hosts: u32,
}

impl Plan {
    pub(super) const fn new(name: &'static str, network: &'static str, hosts: u32) -> Self {
        Self { name, network, hosts }
    }
}

/// Within a host: its own sockets, the bridge, and the fast path.
pub(super) const ONE_HOST: [Plan; 3] =
    [Plan::new("host", "host", 1), Plan::new("bridge", "bridge", 1), Plan::new("fast", "fast", 1)];

/// Between two: the hosts' own sockets, the tunnel, and the fast path.
pub(super) const TWO_HOSTS: [Plan; 3] =
    [Plan::new("host", "host", 2), Plan::new("vxlan", "vxlan", 2), Plan::new("fast", "fast", 2)];

/// Brings all of them up; what cannot be is said, and left out.
pub(super) fn up<'a>(slipway: &'a Slipway, plans: &[Plan]) -> Vec<Site<'a>> {
    let site = |plan: &Plan| {
        Site::up(slipway, *plan)
            .map_err(|error| println!("Left out: {}, which cannot be brought up: {error}\n", plan.name))
            .ok()
    };
    plans.iter().filter_map(site).collect()
}

impl<'a> Site<'a> {
    fn up(slipway: &'a Slipway, plan: Plan) -> Result<Self, String> {
        let exe = std::env::current_exe().expect("this program has a file");
        let lab = format!("{}-{}", plan.name.replace([' ', ','], ""), plan.hosts);
        let text = format!(
            "lab: {lab}\nhosts: {}\nnetworks: {{net: {}}}\nnodes: {{n: {{count: 2, mounts: [\"{}:{MOUNTED}:ro\"]{}}}}}\n",
            plan.hosts,
            plan.network,
            exe.display(),
            // Where a node has no network of its own, it is the host's that is set, below.
            if plan.network == "host" { String::new() } else { format!(", sysctls: {{net.ipv4.{TAKE_PORTS}: 1}}") }
        );
        let file = slipway.lab(&lab, &text);
        let output = slipway.command(&["up", "--quiet", arg(&file)]).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let running = slipway.running(&lab);
        let group = Hierarchy::detect().and_then(|groups| groups.open_lab(running.dir().shared_name()));
        let group = group.ok().flatten().expect("the lab has a control group: run as root");
        let pair = Pair {
            server: slipway.words(&lab, "n2"),
            client: slipway.words(&lab, "n1"),
            address: running.lab.nodes[slipway_lab::id::NodeId(1)].interfaces[0].ipv4.into(),
        };
        let site = Self { name: plan.name, hosts: plan.hosts, lab, slipway, pair, group };
        site.in_hosts(|| fs::write(format!("/proc/sys/net/ipv4/{TAKE_PORTS}"), "1"));
        Ok(site)
    }

    pub(super) fn running(&self) -> Running {
        self.slipway.running(&self.lab)
    }

    /// Runs a program in the client's node, and gives what it prints.
    pub(super) fn client(&self, argv: &[&str]) -> Result<String, String> {
        printed(&self.pair.client, argv)
    }

    /// The same in the server's.
    pub(super) fn server(&self, argv: &[&str]) -> Result<String, String> {
        printed(&self.pair.server, argv)
    }

    /// Starts a server that stays until it is dropped, and waits until it listens.
    pub(super) fn serve(&self, argv: &[&str], port: u16) -> Result<Serving, String> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Ok(Serving(Some(self.pair.serve(&Server { argv, port })?)))
    }

    /// Numbers that the load prints in the client's node.
    pub(super) fn load(&self, words: &[&str]) -> Result<Vec<f64>, String> {
        numbers(&self.client(&[&[MOUNTED, WORD], words].concat())?)
    }

    /// The processor time of all that the lab has run so far, its routers among them, and of the kernel's threads that take on
    /// work of the network's when there is much.
    pub(super) fn cpu(&self) -> Result<Duration, String> {
        let lab = self.group.usage().map_err(|error| error.to_string())?.cpu_ns;
        let kernel: u64 = processes("ksoftirqd/").iter().flat_map(|&pid| ran(pid).into_values()).sum();
        Ok(Duration::from_nanos(lab + kernel))
    }

    /// Cuts every packet to the MTU where it is made: on the wire between the hosts nothing is larger, as on a card without offloads.
    pub(super) fn cut_on_the_wire(&self) {
        self.in_hosts(cut);
    }

    fn in_hosts(&self, set: fn() -> io::Result<()>) {
        let anchor = self.running().state.anchor.pid;
        for entry in fs::read_dir(format!("/proc/{anchor}/fd")).expect("the anchor runs").flatten() {
            let is_net = fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("net:"));
            if is_net {
                let net = File::open(entry.path()).expect("a namespace can be opened");
                with_net(net.as_fd(), set).expect("entered").expect("hosts can be set");
            }
        }
    }
}

/// In the namespace of this thread, where it is a host's.
fn cut() -> io::Result<()> {
    let netlink = Netlink::open()?;
    for offload in Offload::ALL {
        match netlink.set_offload("uplink", offload, false) {
            // Not a host, or wired off.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        // What is left says `slipway ps`.
        let _ = self.slipway.command(&["down", "--quiet", &self.lab]).output();
    }
}

/// A server in a node.
pub(super) struct Serving(Option<Child>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(end);
    }
}

fn printed(place: &[String], argv: &[&str]) -> Result<String, String> {
    let words = [place, &argv.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()].concat();
    let Output { status, stdout, stderr } =
        command(&words).output().map_err(|error| format!("run {argv:?}: {error}"))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(stdout);
    }
    Err(format!("{argv:?} failed with {status}: {stdout}{}", String::from_utf8_lossy(&stderr)))
}

/// All numbers of what was printed.
pub(super) fn numbers(printed: &str) -> Result<Vec<f64>, String> {
    let number = |word: &str| word.parse().map_err(|_| format!("not numbers: {printed}"));
    printed.split_whitespace().map(number).collect()
}

/// Processes of this machine whose name begins so.
pub(super) fn processes(name: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name)))
        .collect()
}

/// Processor time so far of each thread that a process has, ns (`/proc/PID/schedstat` is of the first one alone;
/// `Documentation/scheduler/sched-stats.rst`).
pub(super) fn ran(pid: i32) -> HashMap<OsString, u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let time = |thread: &DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(|thread| Some((thread.file_name(), time(&thread)?))).collect()
}

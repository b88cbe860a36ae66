//! The lab's networks as its anchor holds them.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;

use slipway_lab::id::{HostId, List, MachineId, NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_lab::policy::Rule;

use super::device::unless_gone;
use super::driver::{Driver, End, Port, Relocation, members};
use super::drivers::{Mechanism, driver, plan};
use super::error::NetworkError;
use super::graph::{Graph, Namespace, Space};
use super::made::{self, Inode, Made};
use super::policy::{self, Table};
use super::site::{Site, Sites};

/// The hosts' namespaces and everything in them. Dropping it takes it all away, nodes' interfaces included.
#[derive(Debug)]
pub struct Fabric {
    // Before `sites`: what drivers started there ends first.
    drivers: BTreeMap<DriverKind, Box<dyn Driver>>,
    machine: MachineId,
    sites: Sites,
    mechanisms: List<NetworkId, Mechanism>,
    /// The policy on fast networks' base networks; `None` where everything passes.
    policy: Option<Table>,
    /// The namespaces of nodes that were attached.
    nodes: BTreeMap<NodeId, Inode>,
}

/// A node's network namespace.
#[derive(Debug, Clone, Copy)]
pub struct NodeNet<'a> {
    /// The node.
    pub node: NodeId,
    /// The host's namespace.
    pub netns: BorrowedFd<'a>,
}

impl Fabric {
    /// Makes the hosts and what the nodes of each network share. `place` is a folder of the lab's own, where drivers keep
    /// files and sockets. The calling thread must be the process's only one, since it enters namespaces.
    ///
    /// # Errors
    /// As [`plan`], before anything is made; or what the kernel refused. Nothing stays of a fabric that failed.
    #[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
    pub fn build(lab: &Lab, place: &Path) -> Result<Self, NetworkError> {
        let mechanisms = plan(lab)?;
        let mut sites = Sites::create(lab, place)?;
        let mut drivers = BTreeMap::new();
        for (number, network) in lab.networks.enumerate() {
            let driver = drivers.entry(network.driver).or_insert_with(|| driver(network.driver));
            driver.prepare(lab, number, &mut sites)?;
        }
        let policy = policy::holds_back(&lab.policy).then(|| table(lab, &lab.policy)).transpose()?;
        Ok(Self { drivers, machine: lab.part.machine, sites, mechanisms, policy, nodes: BTreeMap::new() })
    }

    /// The mechanism of each network.
    #[must_use]
    pub fn mechanisms(&self) -> &List<NetworkId, Mechanism> {
        &self.mechanisms
    }

    /// The namespaces and devices that were made, and those that they lead to.
    #[must_use]
    pub fn graph(&self) -> Graph {
        let of_nodes = self.nodes.iter().map(|(&node, &inode)| (inode, Space::Node(node)));
        let mut spaces: BTreeMap<Inode, Space> = of_nodes.collect();
        // After nodes, of which those on driver host are in their host's. Before others, of which the machine's may be one.
        for (space, site) in self.sites.all() {
            let named = spaces.entry(site.made.inode()).or_insert(space);
            if matches!(named, Space::Node(_)) {
                *named = space;
            }
        }
        let made: Vec<&Made> = self.sites.all().map(|(_, site)| &site.made).collect();
        let links = made::links(&made, &spaces);
        let mut namespaces: Vec<Namespace> =
            spaces.into_iter().map(|(inode, space)| Namespace { space, inode }).collect();
        namespaces.sort_by_key(|namespace| namespace.space);
        Graph { machine: self.machine, namespaces, links }
    }

    /// A host's namespace. Panics on a host that the lab does not have.
    #[must_use]
    pub fn host_net(&self, host: HostId) -> BorrowedFd<'_> {
        self.sites.hosts[host].net()
    }

    /// The namespace of a host's switches. `None` under `hosts: machine`, which has none.
    #[must_use]
    pub fn switch_net(&self, host: HostId) -> Option<BorrowedFd<'_>> {
        self.sites.switches.get(host).map(Site::net)
    }

    /// Makes the interfaces of nodes inside their namespaces, down. Many nodes at once cost least.
    ///
    /// # Errors
    /// An error of the kernel; interfaces made by then go with their namespaces.
    #[tracing::instrument(level = "debug", skip_all, fields(nodes = nodes.len()), err(level = "debug"))]
    pub fn attach(&mut self, lab: &Lab, nodes: &[NodeNet<'_>]) -> Result<(), NetworkError> {
        let mut by_network = BTreeMap::<NetworkId, Vec<End<'_>>>::new();
        for &NodeNet { node, netns } in nodes {
            let inode = made::inode(netns).map_err(NetworkError::system("look at a node's namespace"))?;
            if let Some(before) = self.nodes.insert(node, inode).filter(|&before| before != inode) {
                self.sites.forget(before);
            }
            for (slot, interface) in lab.nodes[node].interfaces.iter().enumerate() {
                let end = End { port: Port { node, slot }, interface, netns };
                by_network.entry(interface.network).or_default().push(end);
            }
        }
        for (network, ends) in by_network {
            if let Some(driver) = self.drivers.get_mut(&lab.networks[network].driver) {
                driver.attach(lab, network, &mut self.sites, &ends)?;
                let ports: Vec<Port> = ends.iter().map(|end| end.port).collect();
                self.hold(lab, network, &ports)?;
            }
        }
        Ok(())
    }

    /// Takes the interfaces of a node away, of which its own programs may have done so already.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn detach(&mut self, lab: &Lab, node: NodeId) -> Result<(), NetworkError> {
        for (slot, interface) in lab.nodes[node].interfaces.iter().enumerate() {
            if let Some(driver) = self.drivers.get_mut(&lab.networks[interface.network].driver) {
                driver.detach(lab, Port { node, slot }, &mut self.sites)?;
            }
        }
        Ok(())
    }

    /// Has a node that does not run on another host: `before` and `after` are the lab as it was and as it is to be. Only
    /// networks of [`moves`](super::moves) can. Where an interface cannot move, those before it come back.
    ///
    /// # Errors
    /// An error of the kernel, or the host's bridges are full.
    #[tracing::instrument(level = "debug", skip_all, fields(node), err(level = "debug"))]
    pub fn relocate(&mut self, before: &Lab, after: &Lab, node: NodeId) -> Result<(), NetworkError> {
        for slot in 0..after.nodes[node].interfaces.len() {
            let way = Relocation { before, after, port: Port { node, slot } };
            if let Err(error) = self.relocate_port(&way) {
                for slot in (0..slot).rev() {
                    let back = Relocation { before: after, after: before, port: Port { node, slot } };
                    // The first error is the one to tell.
                    let _ = self.relocate_port(&back);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn relocate_port(&mut self, way: &Relocation<'_>) -> Result<(), NetworkError> {
        let network = way.network();
        if let Some(driver) = self.drivers.get_mut(&way.after.networks[network].driver) {
            driver.relocate(way, &mut self.sites)?;
        }
        self.hold(way.after, network, &[way.port])
    }

    /// The host's end of a node's interface: where it is, and its name. `None` where there is no such device.
    #[must_use]
    pub fn host_end(&self, lab: &Lab, node: NodeId, slot: usize) -> Option<(BorrowedFd<'_>, String)> {
        let port = Port { node, slot };
        let driver = self.drivers.get(&lab.networks[lab.nodes[node].interfaces[slot].network].driver)?;
        driver.host_end(port)?;
        Some((self.switch_net(lab.nodes[node].host)?, port.name(lab)))
    }

    /// Puts other rules in the place of the policy that networks with bypasses keep beneath, one interface after another.
    ///
    /// # Errors
    /// An error of the kernel. Where that is after the first, some nodes are held to the old rules and some to the new.
    #[tracing::instrument(level = "debug", skip_all, fields(rules = rules.len()), err(level = "debug"))]
    pub fn set_policy(&mut self, lab: &Lab, rules: &[Rule]) -> Result<(), NetworkError> {
        // Programs that are there stay, and let all pass where nothing is held back any more.
        if self.policy.is_none() && !policy::holds_back(rules) {
            return Ok(());
        }
        self.policy = Some(table(lab, rules)?);
        for network in lab.networks.ids() {
            let ports: Vec<Port> = members(lab, network).map(|(_, port, _)| port).collect();
            self.hold(lab, network, &ports)?;
        }
        Ok(())
    }

    /// Holds interfaces of a network to the policy.
    fn hold(&mut self, lab: &Lab, network: NetworkId, ports: &[Port]) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let (Some(table), Some(driver)) = (&self.policy, self.drivers.get(&of.driver)) else { return Ok(()) };
        for &port in ports.iter().filter(|_| of.keeps_policy()) {
            // One that was never attached has no programs that could send.
            let Some(index) = driver.host_end(port) else { continue };
            let node = &lab.nodes[port.node];
            let says = NetworkError::system(format!("hold {} to the policy", node.name));
            let gate = table.gate(lab, port.node, port.slot).map_err(std::io::Error::other).map_err(says)?;
            let held = self.sites.switches[node.host].make(Some(network), &gate.on(index));
            unless_gone(node, held).map_err(NetworkError::of(&of.name))?;
        }
        Ok(())
    }

    /// The helper process of this number, in words, if it is one of the networks'. It has ended.
    #[must_use]
    pub fn helper(&self, lab: &Lab, pid: i32) -> Option<String> {
        self.drivers.values().find_map(|driver| driver.helper(lab, pid))
    }

    /// Lets packets pass on every network. Called when all nodes are configured; nodes that come later pass at once.
    ///
    /// # Errors
    /// An error of the kernel.
    #[tracing::instrument(level = "debug", skip_all, err(level = "debug"))]
    pub fn open(&mut self, lab: &Lab) -> Result<(), NetworkError> {
        for (number, network) in lab.networks.enumerate() {
            if let Some(driver) = self.drivers.get_mut(&network.driver) {
                driver.open(lab, number, &mut self.sites)?;
            }
        }
        Ok(())
    }

    /// Takes the carrier of all of a node's interfaces away, or gives it back; the node itself sees it a moment later.
    /// Addresses and routes of the node survive it on drivers bridge, ovs and vxlan; after any other, configure the node
    /// again. A node on driver host has no carrier.
    ///
    /// # Errors
    /// An error of the kernel.
    #[tracing::instrument(level = "debug", skip_all, fields(node = %lab.nodes[node].name, up), err(level = "debug"))]
    pub fn set_carrier(&mut self, lab: &Lab, node: NodeId, up: bool) -> Result<(), NetworkError> {
        for (slot, interface) in lab.nodes[node].interfaces.iter().enumerate() {
            if let Some(driver) = self.drivers.get_mut(&lab.networks[interface.network].driver) {
                driver.set_carrier(lab, Port { node, slot }, &mut self.sites, up)?;
            }
        }
        Ok(())
    }
}

fn table(lab: &Lab, rules: &[Rule]) -> Result<Table, NetworkError> {
    Table::new(lab, rules).map_err(NetworkError::system("make the maps of the policy"))
}

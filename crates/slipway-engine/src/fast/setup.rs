//! From the lab to what its routers begin with.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use slipway_fast::address_map::{AddressMap, Interface};
use slipway_fast::channel::{Hello, Key, KeyFile, VERSION};
use slipway_fast::control::RouterEnd;
use slipway_fast::filter;
use slipway_fast::journal;
use slipway_fast::metadata::{self, MetadataStore};
use slipway_fast::pairs;
use slipway_fast::policy::Policy;
use slipway_fast::router::PersistentState;
use slipway_fast::setup::{Outside, PORT, RouterSetup};
use slipway_lab::id::HostId;
use slipway_lab::model::{self, Lab, Network};
use slipway_sys::bpf::{Interruptions, SocketStorage, ThreadCounts};
use slipway_sys::ns::with_net;

/// What all routers of a lab have in common.
#[derive(Debug)]
pub(super) struct Shared {
    /// Held by the anchor, so that what is written on sockets outlives whoever wrote it.
    pub(super) metadata: MetadataStore,
    /// Of all threads, and what counts them; or why nothing does.
    pub(super) interruptions: Result<(ThreadCounts, Interruptions), String>,
    /// By host, what its router has in hand, for the next one.
    pub(super) journals: BTreeMap<HostId, OwnedFd>,
    /// By host, where its router accepts others.
    listeners: BTreeMap<HostId, TcpListener>,
    key: KeyFile,
    /// The lab's number among all whose routers might meet.
    number: u64,
    pub(super) address_map: AddressMap,
    /// The way to RDMA peers outside of the lab, where a network has any.
    outside: Option<Outside>,
    /// The rules that hold now.
    pub(super) policy: Policy,
}

/// Whether a node is on a fast network.
pub(crate) fn is_fast(lab: &Lab, node: &model::Node) -> bool {
    node.networks(lab).any(|network| network.bypasses.tcp.is_some())
}

/// The hosts that have nodes on fast networks.
pub(super) fn hosts(lab: &Lab) -> BTreeSet<HostId> {
    lab.nodes.iter().filter(|node| is_fast(lab, node)).map(|node| node.host).collect()
}

impl Shared {
    /// # Errors
    /// When the kernel makes no map for notes, or no files.
    pub(super) fn new(lab: &Lab, outside: Option<Outside>) -> io::Result<Self> {
        let metadata = MetadataStore::new(SocketStorage::create("slipway_notes", metadata::BYTES)?);
        // Routers of all machines have one key and one number, which come with the part.
        let (key, number) = if let Some(secret) = lab.part.secret {
            (KeyFile::of(&Key::from(secret))?, lab.part.number)
        } else {
            let number = Key::draw()?.bytes().first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            (KeyFile::draw()?, number)
        };
        let policy = Policy::new(&lab.policy, lab.nodes.len());
        let address_map = places(lab);
        let journals = hosts(lab).into_iter().map(|host| Ok((host, journal::file()?))).collect::<io::Result<_>>()?;
        let interruptions = filter::count_interruptions();
        let listeners = BTreeMap::new();
        Ok(Self { metadata, interruptions, journals, listeners, key, number, address_map, outside, policy })
    }

    /// Opens the socket at which a host's router accepts others, in the host's network, unless it is open. Open all before a
    /// router begins: a router that is refused pauses before it tries again, and connections take the base network meanwhile.
    ///
    /// # Errors
    /// As `bind(2)` and `setns(2)`.
    pub(super) fn listen(&mut self, lab: &Lab, host: HostId, net: BorrowedFd<'_>) -> io::Result<()> {
        if let (Entry::Vacant(vacant), Some(at)) = (self.listeners.entry(host), accepts_at(lab, host)) {
            vacant.insert(with_net(net, || TcpListener::bind(at))??);
        }
        Ok(())
    }

    /// Takes the places of a lab in which a node has moved, and makes what another host's router needs.
    ///
    /// # Errors
    /// When the kernel makes no file.
    pub(super) fn relocate(&mut self, lab: &Lab) -> io::Result<()> {
        for host in hosts(lab) {
            if let Entry::Vacant(vacant) = self.journals.entry(host) {
                vacant.insert(journal::file()?);
            }
        }
        self.address_map = places(lab);
        Ok(())
    }

    pub(super) fn metadata_file(&self) -> io::Result<OwnedFd> {
        self.metadata.storage().as_fd().try_clone_to_owned()
    }

    fn counts(&self) -> io::Result<Option<ThreadCounts>> {
        let counts = self.interruptions.as_ref().ok();
        counts.map(|(counts, _)| counts.as_fd().try_clone_to_owned()?.try_into()).transpose()
    }

    /// What the router of a host begins with.
    pub(super) fn of_host(&self, lab: &Lab, host: HostId, control: RouterEnd) -> io::Result<RouterSetup> {
        let number = |host: HostId| u32::try_from(host.index()).map_err(io::Error::other);
        let others = hosts(lab).into_iter().filter(|&other| other != host);
        let journal = self.journals.get(&host).ok_or_else(|| io::Error::other("a host without a journal"))?;
        let peers = others.filter_map(|other| accepts_at(lab, other).map(|at| Ok((number(other)?, at))));
        Ok(RouterSetup {
            host,
            address_map: self.address_map.clone(),
            persistent: PersistentState {
                metadata: MetadataStore::new(self.metadata_file()?.try_into()?),
                journal: journal.try_clone()?,
                interruptions: self.counts()?,
            },
            key: self.key.try_clone()?,
            hello: Hello { lab: self.number, host: number(host)?, version: VERSION },
            listener: self.listeners.get(&host).map(TcpListener::try_clone).transpose()?,
            peers: peers.collect::<io::Result<_>>()?,
            outside: self.outside.as_ref().map(Outside::try_clone).transpose()?,
            policy: self.policy.clone(),
            control,
        })
    }
}

/// The address at which a host's router accepts others; `None` where the lab has one host.
fn accepts_at(lab: &Lab, host: HostId) -> Option<SocketAddr> {
    lab.hosts[host].ipv4.map(|ip| SocketAddr::new(ip.into(), PORT))
}

/// As [`address_map`], for the connections that this kernel can make.
fn places(lab: &Lab) -> AddressMap {
    let address_map = address_map(lab);
    if pairs::are_supported() { address_map } else { address_map.with_exact(lab.networks.ids()) }
}

/// Where every virtual address of the lab's fast networks lives.
pub(super) fn address_map(lab: &Lab) -> AddressMap {
    let mut all: Vec<(IpAddr, Interface)> = Vec::new();
    for (number, node) in lab.nodes.enumerate() {
        let is_fast = |interface: &&model::Interface| lab.networks[interface.network].bypasses.tcp.is_some();
        for interface in node.interfaces.iter().filter(is_fast) {
            let place = Interface { node: number, host: node.host, network: interface.network };
            all.push((interface.ipv4.into(), place));
            all.extend(interface.ipv6.map(|ip| (ip.into(), place)));
        }
    }
    let is_exact = |network: &Network| network.bypasses.tcp.is_some_and(|tcp| tcp.exact);
    let exact = lab.networks.enumerate().filter(|(_, network)| is_exact(network)).map(|(number, _)| number);
    let ruling = lab.nodes.enumerate().filter(|(_, node)| node.rules_its_network()).map(|(number, _)| number);
    AddressMap::from_iter(all).with_exact(exact).with_ruling(ruling)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slipway_lab::id::{NetworkId, NodeId};

    use super::*;

    fn lab(text: &str) -> Lab {
        slipway_lab::parse("lab.yaml", text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()))
    }

    #[test]
    fn only_fast_networks_have_places_and_only_their_hosts_routers() {
        let lab = lab(
            "hosts: 3\nnetworks: {quick: fast, slow: bridge}\nnodes:\n  a: {host: host1, networks: [quick, slow]}\n  b: {host: host2, networks: [quick]}\n  c: {host: host3, networks: [slow]}\n",
        );
        assert_eq!(hosts(&lab).into_iter().collect::<Vec<_>>(), [HostId(0), HostId(1)]);
        let address_map = address_map(&lab);
        let [quick, slow] = [0, 1].map(|slot| lab.nodes[NodeId(0)].interfaces[slot].ipv4);
        assert_eq!(
            address_map.of(quick.into()),
            Some(Interface { node: NodeId(0), host: HostId(0), network: NetworkId(0) })
        );
        assert_eq!(address_map.of(slow.into()), None);
        assert_eq!(address_map.addresses(NodeId(1)).count(), 2);
    }

    #[test]
    fn routers_know_each_other_and_share_what_a_lab_shares() {
        let lab = lab("hosts: 2\nnetworks: {net: fast}\nnodes: {n: {count: 2}}\n");
        let shared = Shared::new(&lab, None).expect("these tests need root, to make a BPF map");
        let begin = |host| {
            let (_, control) = slipway_fast::control::pair().expect("a pair");
            shared.of_host(&lab, host, control).expect("a setup")
        };
        let (one, two) = (begin(HostId(0)), begin(HostId(1)));
        let key = |setup: &RouterSetup| *setup.key.read().expect("it is there").bytes();
        assert_eq!(key(&one), key(&two));
        assert_eq!(one.hello.lab, two.hello.lab);
        let at = |host| accepts_at(&lab, HostId(host)).expect("an address");
        assert_eq!((one.peers, two.peers), (vec![(1, at(1))], vec![(0, at(0))]));
    }
}

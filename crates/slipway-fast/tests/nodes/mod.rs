//! Two nodes joined by a veth pair, and the router of their host. Needs root.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use slipway_fast::address_map::Interface;
use slipway_fast::filter::{Leave, traps};
use slipway_fast::journal;
use slipway_fast::metadata::{self, MetadataStore};
use slipway_fast::peers::Peers;
use slipway_fast::policy::Policy;
use slipway_fast::router::{PersistentState, Router};
use slipway_fast::wakeup::WakeupSocket;
use slipway_lab::id::{HostId, List, NetworkId, NodeId};
use slipway_sys::bpf::{SocketStorage, ThreadCounts};
use slipway_sys::netlink::{Netlink, NewLink, Peer, Request, SetLink, Veth};
use slipway_sys::notify::Listener;
use slipway_sys::ns::{create_net, with_net};
use slipway_sys::seccomp::Filter;

/// The first node's address.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
/// The second's.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);

const LO: u32 = 1;
const ETH0: u32 = 10;
const WAKEUP_SOCKETS: usize = 64;

/// Two nodes and their router.
pub(crate) struct Lab {
    /// Serves both.
    pub(crate) router: Arc<Router>,
    nets: List<NodeId, OwnedFd>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::counting(None)
    }

    /// With these counts of interruptions.
    pub(crate) fn counting(interruptions: Option<ThreadCounts>) -> Self {
        let nets = [(); 2].map(|()| create_net().expect("these tests need root, to make network namespaces"));
        let open = |net: &OwnedFd| with_net(net.as_fd(), Netlink::open).expect("enters").expect("a socket opens");
        let [mut near, mut far] = [open(&nets[0]), open(&nets[1])];
        let link = NewLink { name: "eth0".into(), index: Some(ETH0), up: true, ..NewLink::default() };
        let peer = Peer { name: "eth0".into(), index: Some(ETH0), net: Some(nets[1].as_fd()), ..Peer::default() };
        near.run(&[Request::AddVeth(Veth { link, peer })]).expect("makes a pair");
        for (netlink, own) in [(&mut near, CLIENT), (&mut far, SERVER)] {
            let up = |index| Request::SetLink(SetLink { index, up: Some(true), ..SetLink::default() });
            let add = Request::AddAddress { index: ETH0, address: IpAddr::V4(own), prefix: 24, subnet_route: true };
            netlink.run(&[up(LO), up(ETH0), add]).expect("an address");
        }
        let address_map = [CLIENT, SERVER].into_iter().enumerate();
        let address_map = address_map
            .map(|(node, ip)| {
                (IpAddr::V4(ip), Interface { node: NodeId(node), host: HostId(0), network: NetworkId(0) })
            })
            .collect();
        let storage = SocketStorage::create("notes", metadata::BYTES).expect("root may make a map");
        let journal = journal::file().expect("a file");
        let persistent = PersistentState { metadata: MetadataStore::new(storage), journal, interruptions };
        let router =
            Router::start(HostId(0), address_map, Policy::default(), persistent, (Peers::new(None), None), |_, _| {});
        let router = router.expect("it starts");
        let lab = Self { router, nets: Vec::from(nets).into() };
        lab.nets.ids().for_each(|node| lab.add_wakeup_sockets(node, WAKEUP_SOCKETS));
        lab
    }

    /// Gives the router more sockets of a node to knock with.
    pub(crate) fn add_wakeup_sockets(&self, node: NodeId, count: usize) {
        let make = || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = || with_net(self.nets[node].as_fd(), make).expect("enters").expect("a socket");
        let ip = [CLIENT, SERVER][node.index()].into();
        let wakeup_sockets = (0..count).map(|_| WakeupSocket::new(socket(), ip).expect("bound"));
        self.router.add_wakeup_sockets(node, false, wakeup_sockets.collect());
    }

    /// Runs a program in the first node, to its end.
    pub(crate) fn client<T: Send + 'static>(&self, program: impl FnOnce() -> T + Send + 'static) -> T {
        self.runs(NodeId(0), true, program).join().expect("it ran")
    }

    /// In the first, while the test goes on.
    pub(crate) fn client_runs<T: Send + 'static>(&self, program: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.runs(NodeId(0), true, program)
    }

    /// In the second.
    pub(crate) fn server<T: Send + 'static>(&self, program: impl FnOnce() -> T + Send + 'static) -> T {
        self.runs(NodeId(1), true, program).join().expect("it ran")
    }

    /// In the second, while the test goes on.
    pub(crate) fn server_runs<T: Send + 'static>(&self, program: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.runs(NodeId(1), true, program)
    }

    /// Runs a program in a node, under the filter or not.
    pub(crate) fn runs<T: Send + 'static>(
        &self,
        node: NodeId,
        filtered: bool,
        program: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        if !filtered {
            return self.spawn(node, program);
        }
        let (listener, running) = self.trapped(node, program);
        // Its threads come from here, where there is no filter.
        self.router.introduce(node, 0, listener).expect("introduced");
        self.router.serve().expect("a thread");
        running
    }

    /// Runs a program in a node whose calls no router takes yet.
    pub(crate) fn trapped<T: Send + 'static>(
        &self,
        node: NodeId,
        program: impl FnOnce() -> T + Send + 'static,
    ) -> (Listener, JoinHandle<T>) {
        let (listeners, listener) = sync_channel(0);
        let running = self.spawn(node, move || {
            let attached = Filter::trap(&traps(Leave::default())).attach_and_listen().expect("root may attach");
            listeners.send(attached).expect("somebody hears");
            program()
        });
        (listener.recv().expect("there is a listener"), running)
    }

    fn spawn<T: Send + 'static>(&self, node: NodeId, program: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let net = self.nets[node].try_clone().expect("a copy");
        thread::spawn(move || {
            move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network)).expect("enters");
            program()
        })
    }
}

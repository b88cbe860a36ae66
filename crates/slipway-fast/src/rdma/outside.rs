//! Peers outside of the lab: connections with them are the gateway's, which has the machine's device
//! (`docs/adr/0082-peers-outside-of-the-lab.md`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ipnet::Ipv4Net;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slipway_lab::id::NodeId;
use slipway_verbs::gateway::Order;
use slipway_verbs::wire;

/// The way to peers outside of the lab.
#[derive(Debug)]
pub struct Outside {
    /// The gateway's socket for orders.
    pub gateway: OwnedFd,
    /// The peers of each node.
    pub peers: Arc<Vec<Vec<Ipv4Net>>>,
}

impl Outside {
    /// Whether a node may reach a peer by the gateway.
    pub(super) fn reaches(&self, node: NodeId, peer: IpAddr) -> bool {
        let of_node = self.peers.get(node.index()).into_iter().flatten();
        matches!(peer, IpAddr::V4(peer) if of_node.into_iter().any(|net| net.contains(&peer)))
    }

    /// A copy for a router.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { gateway: self.gateway.try_clone()?, peers: Arc::clone(&self.peers) })
    }

    /// Asks the gateway for a connection. Gives the stream for messages about it.
    pub(super) fn call(&self, node: NodeId, to: SocketAddr) -> Result<OwnedFd, Errno> {
        let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let order = Order::Call { node: u32::try_from(node.index()).map_err(|_| Errno::INVAL)?, to };
        // A gateway that takes no orders reaches nobody.
        wire::send(self.gateway.as_fd(), &order, &[theirs.as_fd()]).map_err(|_| Errno::HOSTUNREACH)?;
        Ok(own)
    }
}

/// The descriptor that the router's process has to keep.
impl AsFd for Outside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gateway.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_reaches_peers_of_its_networks_alone() {
        let (gateway, _other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let net = "192.0.2.0/24".parse().expect("a subnet");
        let outside = Outside { gateway, peers: Arc::new(vec![vec![net], vec![]]) };
        let of = |node, peer: &str| outside.reaches(NodeId(node), peer.parse().expect("an address"));
        assert!(of(0, "192.0.2.7"));
        assert!(!of(0, "192.0.3.7") && !of(1, "192.0.2.7") && !of(2, "192.0.2.7") && !of(0, "::ffff:192.0.2.7"));
    }
}

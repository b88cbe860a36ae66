//! Options that fast connections cannot keep, and listeners that have some. The router leaves connections to their ports to
//! the container network.
//!
//! The router looks at a client's own socket when it connects. Of a server's, it hears `listen(2)` and each option that
//! is set afterwards. A replaced router does not know options that the router before it heard of. It sees them at the
//! listener's first `accept`: that connection ends, and those after it are left alone.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Mutex;

use crate::emulation::{keeps, loses};
use crate::metadata::{Change, Path, Stored};
use crate::sync::lock;
use slipway_lab::id::NodeId;
use slipway_sys::sockopt::Name;

/// Most remembered ports of one node. The router leaves a node with more alone as a whole.
const PORTS: usize = 256;

/// Stands for all ports of a node.
const ALL: u16 = 0;

/// The paths that can keep a socket's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSupport {
    pair: bool,
    tcp: bool,
}

impl PathSupport {
    const EVERY: Self = Self { pair: true, tcp: true };

    /// The paths for a program's own TCP socket, by its storage.
    #[must_use]
    pub fn of(socket: impl AsFd, stored: &Stored) -> Self {
        match stored {
            Stored::Changed(Change { is_unseen: true, .. }) => Self { pair: false, tcp: false },
            Stored::Changed(Change { is_rare: true, .. }) => Self::by(|path| keeps(&socket, path)),
            _ => Self::EVERY,
        }
    }

    /// The paths for a socket on which this option is set; `is_nothing`: to 0.
    pub(crate) fn after(name: Name, is_nothing: bool) -> Self {
        Self::by(|path| is_nothing || !loses(name, path))
    }

    fn by(is_kept: impl Fn(Path) -> bool) -> Self {
        Self { pair: is_kept(Path::Pair), tcp: is_kept(Path::Tcp) }
    }

    /// Whether a connection by this path can keep them.
    #[must_use]
    pub fn is_by(self, path: Path) -> bool {
        match path {
            Path::Pair => self.pair,
            Path::Tcp => self.tcp,
        }
    }

    /// Whether every connection can keep all options.
    #[must_use]
    pub fn is_full(self) -> bool {
        self == Self::EVERY
    }

    fn and(self, other: Self) -> Self {
        Self { pair: self.pair && other.pair, tcp: self.tcp && other.tcp }
    }
}

/// Ports of listeners whose options are not kept by every connection.
#[derive(Debug, Default)]
pub(crate) struct UnsupportedOptions(Mutex<HashMap<NodeId, HashMap<u16, PathSupport>>>);

impl UnsupportedOptions {
    /// Notes that a program of the node listens at this port, by a socket with this support.
    pub(crate) fn listens(&self, node: NodeId, port: impl FnOnce() -> Option<u16>, support: PathSupport) {
        let mut nodes = lock(&self.0);
        if support.is_full() {
            if let Some(ports) = nodes.get_mut(&node)
                && let Some(port) = port()
            {
                ports.remove(&port);
            }
            return;
        }
        let ports = nodes.entry(node).or_default();
        let port = port().filter(|port| ports.len() < PORTS || ports.contains_key(port)).unwrap_or(ALL);
        let before = ports.get(&port).copied().unwrap_or(PathSupport::EVERY);
        ports.insert(port, before.and(support));
    }

    /// Whether a connection by this path to this port of the node keeps its listener's options, as far as is known.
    pub(crate) fn is_supported(&self, node: NodeId, port: u16, path: Path) -> bool {
        let nodes = lock(&self.0);
        let Some(ports) = nodes.get(&node) else { return true };
        [port, ALL].iter().all(|port| ports.get(port).is_none_or(|support| support.is_by(path)))
    }

    /// Forgets the ports of a node that has ended.
    pub(crate) fn forget(&self, node: NodeId) {
        lock(&self.0).remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: PathSupport = PathSupport { pair: false, tcp: false };
    const TCP: PathSupport = PathSupport { pair: false, tcp: true };

    #[test]
    fn a_port_is_left_alone_until_another_listens_there() {
        let unsupported = UnsupportedOptions::default();
        unsupported.listens(NodeId(1), || Some(80), TCP);
        let kept = |port| [Path::Pair, Path::Tcp].map(|path| unsupported.is_supported(NodeId(1), port, path));
        assert_eq!((kept(80), kept(81)), ([false, true], [true, true]));
        assert!(unsupported.is_supported(NodeId(2), 80, Path::Pair));
        unsupported.listens(NodeId(1), || Some(80), NONE);
        assert_eq!(kept(80), [false, false]);
        unsupported.listens(NodeId(1), || Some(80), PathSupport::EVERY);
        assert_eq!(kept(80), [true, true]);
        unsupported.listens(NodeId(1), || Some(80), TCP);
        unsupported.forget(NodeId(1));
        assert_eq!(kept(80), [true, true]);
    }

    #[test]
    fn a_node_with_too_many_is_left_alone_as_a_whole() {
        let unsupported = UnsupportedOptions::default();
        for port in 1..=300 {
            unsupported.listens(NodeId(1), || Some(port), NONE);
        }
        assert!(!unsupported.is_supported(NodeId(1), 9999, Path::Tcp));
        assert!(lock(&unsupported.0)[&NodeId(1)].len() <= PORTS + 1);
        assert!(unsupported.is_supported(NodeId(2), 9999, Path::Tcp));
    }
}

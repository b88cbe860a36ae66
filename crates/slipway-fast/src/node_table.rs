//! The nodes of the host: their blocked accepts, their PID namespaces, and whether they ended without a word.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};

use slipway_lab::id::NodeId;

use crate::blocked_accepts::BlockedAccepts;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::sync::lock;
use crate::walk;

/// The state of each node.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    /// Blocked accepts, by node.
    blocked_accepts: Mutex<HashMap<NodeId, Arc<BlockedAccepts>>>,
    /// The inode of each node's PID namespace.
    namespaces: Mutex<HashMap<NodeId, u64>>,
    /// Gates of answers, by node.
    gates: Mutex<HashMap<NodeId, Arc<Gate>>>,
    /// Nodes that have ended silently.
    silent: Mutex<HashSet<NodeId>>,
}

impl NodeTable {
    /// A node's blocked accepts; `None` before its first program.
    pub(crate) fn blocked_accepts(&self, node: NodeId) -> Option<Arc<BlockedAccepts>> {
        lock(&self.blocked_accepts).get(&node).cloned()
    }

    /// A node's blocked accepts. The first time this makes them, and `start` starts their thread. They stay when the node ends,
    /// because it may start anew.
    ///
    /// # Errors
    /// As `epoll_create1(2)`, and those of `start`.
    pub(crate) fn blocked_accepts_or(
        &self,
        node: NodeId,
        journal: &Arc<Journal>,
        start: impl FnOnce(Arc<BlockedAccepts>) -> io::Result<()>,
    ) -> io::Result<Arc<BlockedAccepts>> {
        let mut all = lock(&self.blocked_accepts);
        if let Some(blocked_accepts) = all.get(&node) {
            return Ok(Arc::clone(blocked_accepts));
        }
        let blocked_accepts = Arc::new(BlockedAccepts::new(node, Arc::clone(journal))?);
        start(Arc::clone(&blocked_accepts))?;
        all.insert(node, Arc::clone(&blocked_accepts));
        Ok(blocked_accepts)
    }

    /// Sets a node's PID namespace, by its inode. Returns whether it is another than before.
    pub(crate) fn set_namespace(&self, node: NodeId, namespace: u64) -> bool {
        lock(&self.namespaces).insert(node, namespace) != Some(namespace)
    }

    /// Forgets the PID namespace of a node that has ended.
    pub(crate) fn forget(&self, node: NodeId) {
        lock(&self.namespaces).remove(&node);
    }

    /// The processes of the nodes that `of` chooses ([`crate::walk`]).
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn processes(&self, of: impl Fn(NodeId) -> bool) -> io::Result<Vec<i32>> {
        let namespaces = lock(&self.namespaces);
        let chosen = namespaces.iter().filter(|(node, _)| of(**node)).map(|(_, namespace)| *namespace).collect();
        drop(namespaces);
        walk::processes(&chosen)
    }

    /// The gate of answers to a node's programs.
    pub(crate) fn gate(&self, node: NodeId) -> Arc<Gate> {
        Arc::clone(lock(&self.gates).entry(node).or_default())
    }

    /// Whether peers must not notice that this node has ended.
    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        lock(&self.silent).contains(&node)
    }

    /// From now on no peer notices that listeners of this node end.
    pub(crate) fn silence(&self, node: NodeId) {
        lock(&self.silent).insert(node);
    }

    /// Ends the silence of a node. Returns whether it was silent.
    pub(crate) fn unsilence(&self, node: NodeId) -> bool {
        lock(&self.silent).remove(&node)
    }
}

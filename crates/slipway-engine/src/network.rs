//! Networks.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use slipway_lab::model::Lab;

use crate::state::LabDir;

/// Why a network cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("make the network: {0}")]
pub struct NetworkError(std::io::Error);

/// What all nodes' networks hang on.
#[derive(Debug)]
pub struct Fabric(OwnedFd);

/// A node's network namespace.
#[derive(Debug, Clone, Copy)]
pub struct NodeNet<'a> {
    /// Index into the lab's nodes.
    pub node: usize,
    /// Its namespace.
    pub netns: BorrowedFd<'a>,
}

impl Fabric {
    /// Makes the hosts' namespaces.
    pub fn build(_lab: &Lab, _dir: &LabDir) -> Result<Self, NetworkError> {
        slipway_sys::ns::create_net().map(Self).map_err(NetworkError)
    }

    /// What each driver chose.
    pub fn mechanisms(&self) -> Vec<serde_json::Value> {
        Vec::new()
    }

    /// A host's namespace.
    pub fn host_net(&self, _host: usize) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Silences a node's links, or gives them back.
    pub fn set_carrier(&mut self, _lab: &Lab, _node: usize, _up: bool) -> Result<(), NetworkError> {
        Ok(())
    }

    /// Makes the interfaces of nodes.
    pub fn attach(&mut self, _lab: &Lab, _nodes: &[NodeNet<'_>]) -> Result<(), NetworkError> {
        Ok(())
    }
}

/// Addresses, routes and neighbours, from within the node's namespace.
pub fn configure_node(_lab: &Lab, _node: usize) -> Result<(), NetworkError> {
    Ok(())
}

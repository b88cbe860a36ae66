//! A lab's connections on the fast path, as they live.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use serde::{Deserialize, Serialize};
use slipway_fast::flows::{self, Figures, Flow, Scope};
use slipway_fast::metadata::{MetadataStore, Path};
use slipway_fast::walk;
use slipway_lab::id::{List, NodeId};
use slipway_lab::model::Lab;
use slipway_sys::bpf::SocketStorage;

use super::error::{FastError, says};
use super::{RouterState, setup};
use crate::state::NodeState;

/// A connection that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its number, that no other has.
    pub number: u64,
    /// Name of the client's node.
    pub client: String,
    /// The client's port.
    pub client_port: u16,
    /// Name of the server's node.
    pub server: String,
    /// The server's port.
    pub server_port: u16,
    /// A pair within a host, or TCP.
    pub path: Path,
    /// What the kernel knows of it.
    #[serde(flatten)]
    pub figures: Figures,
}

/// All of a lab. Looks for itself: neither routers nor the anchor have work with it.
pub(crate) fn flows(
    lab: &Lab,
    states: &List<NodeId, NodeState>,
    routers: &[RouterState],
    metadata: OwnedFd,
) -> Result<Vec<Connection>, FastError> {
    let doing = "look for connections of the fast path";
    let metadata = SocketStorage::try_from(metadata).map(MetadataStore::new).map_err(says(doing))?;
    let address_map = setup::address_map(lab);
    let mut all: BTreeMap<u64, Flow> = BTreeMap::new();
    for router in routers {
        let Some(pid) = router.pid else {
            return Err(FastError::Replaced(lab.hosts[router.host].name.clone()));
        };
        let net = File::open(format!("/proc/{pid}/ns/net")).map_err(says(doing))?;
        let here = states.iter().zip(&lab.nodes).filter(|(_, node)| node.host == router.host);
        let inits = here.filter_map(|(node, _)| node.init);
        let namespaces: BTreeSet<u64> = inits.filter_map(|init| walk::namespace(init.pid).ok()).collect();
        let scope = Scope { metadata: &metadata, namespaces: &namespaces, net: net.as_fd() };
        for (number, flow) in flows::look(scope).map_err(says(doing))? {
            // Of one between two hosts each sees an end; the client's knows best.
            let is_clients = address_map.of(flow.client.ip()).is_some_and(|place| place.host == router.host);
            if is_clients || !all.contains_key(&number) {
                all.insert(number, flow);
            }
        }
    }
    let name = |address: std::net::SocketAddr| match address_map.of(address.ip()) {
        Some(place) => lab.nodes[place.node].name.clone(),
        None => address.ip().to_string(),
    };
    let told = all.into_values().map(|flow| Connection {
        number: flow.number,
        client: name(flow.client),
        client_port: flow.client.port(),
        server: name(flow.server),
        server_port: flow.server.port(),
        path: flow.path,
        figures: flow.figures,
    });
    Ok(told.collect())
}

//! The parts of a router that calls use. Each has a state, and locks, of its own.

use std::os::fd::AsFd;
use std::sync::Arc;

use slipway_lab::id::HostId;
use slipway_sys::bpf::ThreadCounts;

use crate::address_map::AddressMap;
use crate::admission::{Admission, Rules};
use crate::counts::Counts;
use crate::delivery::Delivery;
use crate::epolls::Registrar;
use crate::furnish::Furnisher;
use crate::limits::Limiter;
use crate::metadata::MetadataStore;
use crate::numbers::Numbers;
use crate::pairs::Pairs;
use crate::path::Path;
use crate::peers::Peers;
use crate::rdma::Rdma;
use crate::unsupported_options::UnsupportedOptions;

/// All parts.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Index of the router's virtual host.
    pub(crate) host: HostId,
    /// The interface of each virtual address.
    pub(crate) address_map: Arc<AddressMap>,
    /// The policy, and the nodes under conditions.
    pub(crate) rules: Arc<Rules>,
    /// Rates, and counted connections.
    pub(crate) limiter: Arc<Limiter>,
    /// The metadata of sockets that were handed out.
    pub(crate) metadata: Arc<MetadataStore>,
    /// Makes new sockets what programs' own were.
    pub(crate) furnisher: Arc<Furnisher>,
    /// Brings connections to servers.
    pub(crate) delivery: Delivery,
    /// Listeners whose options fast connections cannot keep.
    pub(crate) unsupported: UnsupportedOptions,
    /// Makes pairs within the host.
    pub(crate) pairs: Pairs,
    /// The routers of other hosts.
    pub(crate) peers: Peers,
    /// Adds entries to programs' epoll instances.
    pub(crate) registrar: Registrar,
    /// How often signals interrupted programs' threads; `None` where nothing counts that.
    pub(crate) interruptions: Option<ThreadCounts>,
    /// Numbers of connections and ports.
    pub(crate) numbers: Numbers,
    /// Connection management of RDMA.
    pub(crate) rdma: Arc<Rdma>,
    /// Connections so far, by path and reason.
    pub(crate) counts: Arc<Counts>,
}

impl Parts {
    /// Checks a connection again whose client's end was handed out, and ends it where it is no longer allowed.
    pub(crate) fn confirm(&self, admission: &Admission, end: impl AsFd, path: Path) {
        if let Some(reason) = self.limiter.confirm(admission, end, path) {
            self.counts.revoked(reason);
        }
    }
}

//! Ranks that a batch system's launcher starts, each in a node: which node, and its way to the launcher.
//!
//! Slurm's daemon serves PMIx on the machine's loopback, and PMI on a socket that each rank inherits. A node sees neither. So a
//! rank has a port of its node's loopback, or a socket of its own, and the process before it carries the bytes ([`Beside`]).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::num::NonZero;

use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverKind, Lab};

use super::{JobError, mpi};
use crate::exec::{Beside, Entry};

/// Beginnings of the variables that a rank has from its launcher and its user.
const PASSED: [&str; 5] = ["PMI", "SLURM_", "OMPI_", "MPIR_", "UCX_"];
/// Beginning of the variables that say where PMIx is served: `NAME;tcp4://ADDRESS:PORT`.
const SERVED: &str = "PMIX_SERVER_URI";
const SCHEME: &str = "tcp4://";

/// The node of a rank, by its number among those that the launcher starts on this machine. Nodes of this machine take as many
/// as they have slots, in the lab's order. Then the first has its turn again. `None` where no node is here.
#[must_use]
pub fn node(lab: &Lab, number: usize) -> Option<NodeId> {
    let slots = |node: &NodeId| usize::try_from(lab.nodes[*node].slots).unwrap_or(usize::MAX);
    let nodes = lab.nodes_here();
    let all = nodes.iter().map(slots).fold(0, usize::saturating_add);
    let mut left = number.checked_rem(all)?;
    nodes.into_iter().find(|node| {
        let own = slots(node);
        let found = left < own;
        left = left.saturating_sub(own);
        found
    })
}

/// The environment of a rank in a node: `variables` as the launcher set them, with ways `beside` the rank's streams. MPI
/// is told to use the first network that all of the lab's nodes are on.
///
/// # Errors
/// When a way cannot be opened. When the nodes are on no network together, and a launcher of MPI is there.
pub fn environment(
    lab: &Lab,
    entry: &Entry,
    variables: impl IntoIterator<Item = (String, String)>,
    beside: &mut Beside,
) -> Result<BTreeMap<String, String>, JobError> {
    let is_passed = |(name, _): &(String, String)| PASSED.iter().any(|beginning| name.starts_with(beginning));
    let mut env: BTreeMap<String, String> = variables.into_iter().filter(is_passed).collect();
    let has = |env: &BTreeMap<String, String>, beginning: &str| env.keys().any(|name| name.starts_with(beginning));
    let fail = |name: &str| JobError::io(format!("lead {name} into node {}", entry.node));
    let mut ports = BTreeMap::new();
    for (name, value) in env.iter_mut().filter(|(name, _)| name.starts_with(SERVED)) {
        let Some((before, address)) = served(value) else { continue };
        let port = match ports.get(&address) {
            Some(port) => *port,
            None => beside.port(entry, address.into()).map_err(fail(name))?,
        };
        ports.insert(address, port);
        *value = format!("{before}127.0.0.1:{port}");
    }
    if let Some(number) = env.get("PMI_FD") {
        let number = number.parse().map_err(|_| fail("PMI_FD")(io::Error::other("it is no number")))?;
        let number = beside.socket(number).map_err(fail("PMI_FD"))?;
        env.insert("PMI_FD".to_owned(), number.to_string());
    }
    if has(&env, "PMI") {
        for (name, value) in settings(lab, &env)? {
            env.entry(name.to_owned()).or_insert(value);
        }
    }
    if has(&env, SERVED) {
        // A node has neither the machine's credentials (munge) nor the memory that the server shares with its clients.
        let own = [("PMIX_MCA_psec", "native"), ("PMIX_MCA_gds", "hash"), ("PMIX_GDS_MODULE", "hash")];
        env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    Ok(env)
}

/// The beginning of a variable's value, up to the address, and the address.
fn served(value: &str) -> Option<(&str, SocketAddrV4)> {
    let (before, address) = value.split_at(value.find(SCHEME)? + SCHEME.len());
    Some((before, address.parse().ok()?))
}

/// Settings of MPI where the user has none. The launcher takes all ranks of a machine for neighbours that share memory. Those
/// of two nodes do not.
fn settings(lab: &Lab, env: &BTreeMap<String, String>) -> Result<Vec<(&'static str, String)>, JobError> {
    let nodes: Vec<NodeId> = lab.nodes.ids().collect();
    let network = mpi::shared_network(lab, &nodes)?;
    let ranks = env.get("SLURM_NTASKS").and_then(|number| number.parse().ok()).unwrap_or(1);
    let mut settings = vec![
        ("OMPI_MCA_pml", "ob1".to_owned()),
        ("OMPI_MCA_btl", "tcp,self".to_owned()),
        ("OMPI_MCA_btl_tcp_if_include", network.ipv4.trunc().to_string()),
        ("UCX_TLS", "tcp,self".to_owned()),
        ("MPIR_CVAR_NOLOCAL", "1".to_owned()),
    ];
    if network.driver == DriverKind::Host {
        settings.push(("OMPI_MCA_if_base_do_not_resolve", "1".to_owned()));
    }
    if std::thread::available_parallelism().map_or(1, NonZero::get) < ranks {
        settings.push(("OMPI_MCA_mpi_yield_when_idle", "1".to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn lab(text: &str) -> Lab {
        slipway_lab::parse("lab.yaml", text, Path::new("/")).expect("a lab")
    }

    #[test]
    fn ranks_fill_slots_in_order_and_begin_again() {
        let lab = lab("nodes: {a: {slots: 2}, b: {}}");
        let names: Vec<_> = (0..5).map(|rank| lab.nodes[node(&lab, rank).expect("a slot")].name.as_str()).collect();
        assert_eq!(names, ["a", "a", "b", "a", "a"]);
    }

    #[test]
    fn the_address_of_a_server_is_found() {
        let address = "127.0.0.1:5001".parse().expect("an address");
        assert_eq!(served("pmix-server.7;tcp4://127.0.0.1:5001"), Some(("pmix-server.7;tcp4://", address)));
        for other in
            ["", "pmix-server.7;tcp6://[::1]:5001", "x;tcp4://", "x;tcp4://host:1", "x;tcp4://127.0.0.1:5001:1"]
        {
            assert_eq!(served(other), None, "{other}");
        }
    }

    #[test]
    fn a_users_own_settings_stay() {
        let lab = lab("networks: {net: {driver: bridge, ipv4: 10.9.0.0/16}}\nnodes: {a: {}, b: {}}");
        let env = BTreeMap::from([("SLURM_NTASKS".to_owned(), "100000".to_owned())]);
        let settings = settings(&lab, &env).expect("they share a network");
        let value = |name: &str| settings.iter().find(|(one, _)| *one == name).map(|(_, value)| value.as_str());
        assert_eq!(value("OMPI_MCA_btl_tcp_if_include"), Some("10.9.0.0/16"));
        assert_eq!(value("OMPI_MCA_mpi_yield_when_idle"), Some("1"));
    }
}

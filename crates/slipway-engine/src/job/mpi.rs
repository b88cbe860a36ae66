//! How each MPI implementation is told about a lab.
//!
//! Both launchers reach the other nodes through the launch agent. Both are kept on the network under test:
//! - Open MPI may use shared memory between ranks of one node only (`btl vader`). That stays true here: it takes ranks for
//!   neighbours when one daemon (`orted`) started both, there is one daemon per node, and nodes share neither `/dev/shm` nor
//!   IPC. Between nodes only `btl tcp` is left, on the addresses of the chosen network.
//!   On a network with RDMA it takes UCX over verbs instead, for ranks of one node too, where verbs join all nodes of the job.
//! - MPICH's UCX decides by the machine's identity, which all nodes of this machine have in common, and would then fail or
//!   pass the network by. It is held to TCP between all ranks (`UCX_TLS=tcp,self`), so ranks of one node talk over loopback.
//!
//! Ranks are not bound to cores: every node would bind its own to the same first ones.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Job, Lab, Mpi, Network};

use super::JobError;
use super::agent::own::OPTION;
use crate::lab::LabError;
use crate::verbs::DEVICE;

/// The launch agent in every node.
const AGENT: &str = "/run/slipway/agent";

/// What to execute on the first node.
#[derive(Debug)]
pub(super) struct Launch {
    /// The launcher under each of its names, with all arguments.
    pub(super) commands: Vec<Vec<OsString>>,
    /// Text of the host file.
    pub(super) hosts: String,
    /// For the launcher.
    pub(super) env: BTreeMap<String, String>,
}

/// `folder` is where nodes see the host file, `hosts`. `has_verbs` says whether verbs join all nodes of the job now: it is asked
/// where the network has RDMA.
pub(super) fn launch(
    lab: &Lab,
    job: &Job,
    mpi: Mpi,
    folder: &Path,
    has_verbs: impl FnOnce() -> Result<bool, LabError>,
) -> Result<Launch, JobError> {
    let network = shared_network(lab, &job.nodes)?;
    let slots: u32 = job.nodes.iter().map(|&node| lab.nodes[node].slots).sum();
    let ranks = job.ranks.unwrap_or(slots);
    if ranks == 0 {
        return Err(JobError::Impossible(
            "it has no ranks\nHint: slipway run -n 4, or `slots` in the lab file".to_owned(),
        ));
    }
    let crowd = Crowd { ranks, slots, cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get) };
    let hosts_file = folder.join("hosts").to_string_lossy().into_owned();
    match mpi {
        Mpi::Openmpi => {
            let has_verbs = network.bypasses.rdma && has_verbs()?;
            Ok(openmpi(lab, job, (network, has_verbs), &crowd, &hosts_file))
        }
        Mpi::Mpich => Ok(mpich(lab, job, network, &crowd, &hosts_file)),
    }
}

struct Crowd {
    ranks: u32,
    slots: u32,
    cores: usize,
}

impl Crowd {
    /// A rank that polls for a message while another has no core to send it on costs a scheduling tick per message.
    fn shares_cores(&self) -> bool {
        usize::try_from(self.ranks).is_ok_and(|ranks| ranks > self.cores)
    }
}

/// The first network that all of these nodes are on.
pub(super) fn shared_network<'a>(lab: &'a Lab, nodes: &[NodeId]) -> Result<&'a Network, JobError> {
    let on = |node: &NodeId, network: NetworkId| lab.nodes[*node].interfaces.iter().any(|one| one.network == network);
    let shared = lab.networks.ids().find(|&network| nodes.iter().all(|node| on(node, network)));
    shared.map(|network| &lab.networks[network]).ok_or_else(|| {
        JobError::Impossible(
            "its nodes are on no network together\nHint: put them on one, or run on fewer nodes".to_owned(),
        )
    })
}

fn openmpi(lab: &Lab, job: &Job, (network, has_verbs): (&Network, bool), crowd: &Crowd, hosts_file: &str) -> Launch {
    let subnet = network.ipv4.trunc().to_string();
    let mut options = vec!["--hostfile".to_owned(), hosts_file.to_owned(), "-np".to_owned(), crowd.ranks.to_string()];
    options.extend(["--bind-to", "none"].map(str::to_owned));
    if crowd.ranks > crowd.slots {
        options.push("--oversubscribe".to_owned());
    }
    let mut parameters = vec![
        ("plm_rsh_agent", AGENT),
        ("oob_tcp_if_include", subnet.as_str()),
        ("btl_tcp_if_include", subnet.as_str()),
    ];
    if has_verbs {
        parameters.extend([("pml", "ucx"), ("osc", "ucx")]);
        // UCX is held to verbs, between ranks of one node too.
        for variable in ["UCX_TLS=rc_verbs,ud_verbs,self".to_owned(), format!("UCX_NET_DEVICES={DEVICE}:1")] {
            options.extend(["-x".to_owned(), variable]);
        }
    } else {
        parameters.extend([("pml", "ob1"), ("btl", "tcp,vader,self")]);
    }
    if network.driver == DriverKind::Host {
        // Nodes of one host share its addresses, so a name's address does not tell which of them is meant.
        parameters.push(("if_base_do_not_resolve", "1"));
    }
    if job.nodes.iter().any(|&node| !lab.has_here(node)) {
        // Daemons of other machines have no launch service: the launcher starts all by itself, however many there are.
        parameters.push(("plm_rsh_no_tree_spawn", "1"));
    }
    if crowd.shares_cores() {
        parameters.push(("mpi_yield_when_idle", "1"));
    }
    options.extend(parameters.into_iter().flat_map(|(name, value)| ["--mca", name, value].map(str::to_owned)));
    Launch {
        // Debian's alternatives may point `mpirun` to another implementation.
        commands: ["mpirun.openmpi", "mpirun"].map(|name| command(name, &options, network, job)).into(),
        hosts: hosts(lab, job, |name, slots| format!("{name} slots={slots}")),
        env: [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    }
}

fn mpich(lab: &Lab, job: &Job, network: &Network, crowd: &Crowd, hosts_file: &str) -> Launch {
    let mut options: Vec<String> =
        ["-launcher", "ssh", "-launcher-exec", AGENT, "-f", hosts_file].map(str::to_owned).into();
    options.extend(["-n".to_owned(), crowd.ranks.to_string()]);
    let index = lab.networks.position(|one| one.name == network.name);
    let device = |node: NodeId| {
        let interface = lab.nodes[node].interfaces.iter().find(|interface| Some(interface.network) == index)?;
        Some(interface.name.as_str())
    };
    let devices: Vec<Option<&str>> = job.nodes.iter().map(|&node| device(node)).collect();
    let mut env: BTreeMap<String, String> = [("UCX_TLS".to_owned(), "tcp,self".to_owned())].into();
    // One name holds for all nodes, if they agree; otherwise UCX looks for a device itself.
    if let Some(Some(name)) = devices.first()
        && network.driver != DriverKind::Host
        && devices.iter().all(|other| other.as_ref() == Some(name))
    {
        options.extend(["-iface", name].map(str::to_owned));
        env.insert("UCX_NET_DEVICES".to_owned(), (*name).to_owned());
    }
    Launch {
        commands: vec![command("mpiexec.hydra", &options, network, job)],
        hosts: hosts(lab, job, |name, slots| format!("{name}:{slots}")),
        env,
    }
}

fn command(name: &str, options: &[String], network: &Network, job: &Job) -> Vec<OsString> {
    // Libraries must not take the addresses of a host's other nodes for this one's.
    let own = [AGENT, OPTION, network.name.as_str()];
    let own = own.into_iter().filter(|_| network.driver == DriverKind::Host);
    let words = std::iter::once(name).chain(options.iter().map(String::as_str)).chain(own);
    let words = words.chain(job.command.iter().map(String::as_str));
    words.map(OsString::from).collect()
}

fn hosts(lab: &Lab, job: &Job, line: impl Fn(&str, u32) -> String) -> String {
    job.nodes.iter().map(|&node| &lab.nodes[node]).filter(|node| node.slots > 0).fold(
        String::new(),
        |mut text, node| {
            let _ = writeln!(text, "{}", line(&node.name, node.slots));
            text
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(networks: &str, nodes: &str) -> Lab {
        let text = format!("hosts: 2\nnetworks: {networks}\nnodes: {nodes}\n");
        slipway_lab::parse("lab.yaml", &text, Path::new("/")).expect("a lab")
    }

    fn job(nodes: &[usize], ranks: Option<u32>) -> Job {
        Job {
            command: vec!["prog".to_owned(), "-x".to_owned()],
            mpi: None,
            ranks,
            nodes: nodes.iter().copied().map(NodeId).collect(),
            timeout: None,
            workdir: None,
            env: BTreeMap::new(),
            figure: None,
        }
    }

    fn line(launch: &Launch) -> String {
        launch.commands[0].join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned()
    }

    fn launched(lab: &Lab, job: &Job, mpi: Mpi) -> Launch {
        launch(lab, job, mpi, Path::new("/run/slipway/job-1"), || Ok(true)).expect("possible")
    }

    #[test]
    fn slots_become_a_host_file_and_ranks() {
        let lab = lab("{net: bridge}", "{a: {slots: 3}, b: {}}");
        let open = launched(&lab, &job(&[0, 1], None), Mpi::Openmpi);
        assert_eq!(open.hosts, "a slots=3\nb slots=1\n");
        assert!(line(&open).contains("-np 4 ") && !line(&open).contains("--oversubscribe"), "{}", line(&open));
        assert!(line(&open).ends_with(" prog -x"), "{}", line(&open));
        let more = launched(&lab, &job(&[0, 1], Some(1000)), Mpi::Openmpi);
        assert!(
            line(&more).contains("--oversubscribe") && line(&more).contains("mpi_yield_when_idle 1"),
            "{}",
            line(&more)
        );
        assert_eq!(launched(&lab, &job(&[0, 1], None), Mpi::Mpich).hosts, "a:3\nb:1\n");
    }

    #[test]
    fn verbs_carry_open_mpi_where_they_join_all_nodes() {
        let rdma = lab("{net: {driver: fast, rdma: true}}", "{a: {host: host1}, b: {host: host2}}");
        let carried = |lab, joins| {
            let launch = launch(lab, &job(&[0, 1], None), Mpi::Openmpi, Path::new("/"), || Ok(joins));
            let line = line(&launch.expect("possible"));
            let by_verbs = line.contains("-x UCX_TLS=rc_verbs,ud_verbs,self") && line.contains("--mca pml ucx");
            assert_ne!(by_verbs, line.contains("--mca pml ob1"), "{line}");
            by_verbs
        };
        assert_eq!((carried(&rdma, true), carried(&rdma, false)), (true, false));
        assert!(!carried(&lab("{net: fast}", "{a: {}, b: {}}"), true), "the network has no RDMA");
    }

    #[test]
    fn the_network_is_the_one_that_all_are_on() {
        let lab = lab(
            "{one: bridge, two: {driver: bridge, ipv4: 10.9.0.0/16}}",
            "{a: {networks: [one, two]}, b: {networks: [two]}, c: {networks: [one]}}",
        );
        let index = |name: &str| lab.node(name).expect("there").0.index();
        let both = [index("a"), index("b")];
        let open = line(&launched(&lab, &job(&both, None), Mpi::Openmpi));
        assert!(open.contains("btl_tcp_if_include 10.9.0.0/16"), "{open}");
        // eth1 in one and eth0 in the other: no name holds for both.
        let mpich = launched(&lab, &job(&both, None), Mpi::Mpich);
        assert!(!line(&mpich).contains("-iface") && mpich.env["UCX_TLS"] == "tcp,self", "{mpich:?}");
        let apart = [index("b"), index("c")];
        let error =
            launch(&lab, &job(&apart, None), Mpi::Openmpi, Path::new("/"), || Ok(true)).expect_err("they cannot talk");
        assert!(error.to_string().contains("no network together"), "{error}");
    }

    #[test]
    fn names_on_driver_host_are_not_resolved_to_addresses_that_nodes_share() {
        let lab = lab("{net: host}", "{n: {count: 2}}");
        let open = line(&launched(&lab, &job(&[0, 1], None), Mpi::Openmpi));
        assert!(open.contains("if_base_do_not_resolve 1"), "{open}");
        assert!(open.ends_with(" /run/slipway/agent --own-address net prog -x"), "{open}");
        assert!(!line(&launched(&lab, &job(&[0, 1], None), Mpi::Mpich)).contains("-iface"));
    }
}

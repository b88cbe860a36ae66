//! Programs that jobs and probes use, and where Debian has them.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A program, here or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The name of the program.
    pub program: String,
    /// Debian's package.
    pub package: String,
    /// The purpose of the program.
    pub purpose: String,
    /// Where it is; `None` where it is not.
    pub path: Option<PathBuf>,
}

const TOOLS: [(&str, &str, &str); 11] = [
    ("mpirun.openmpi", "openmpi-bin", "jobs with mpi: openmpi"),
    ("mpiexec.hydra", "mpich", "jobs with mpi: mpich"),
    ("iperf3", "iperf3", "throughput in slipway compare"),
    ("NPtcp", "netpipe-tcp", "latency by message size in slipway compare"),
    ("NPopenmpi", "netpipe-openmpi", "the same over MPI"),
    ("ping", "iputils-ping", "round-trip times in slipway compare"),
    ("ovs-vswitchd", "openvswitch-switch", "networks with driver: ovs"),
    ("ovsdb-server", "openvswitch-switch", "networks with driver: ovs"),
    ("mkfs.ext4", "e2fsprogs", "nodes with a disk of their own"),
    ("sshd", "openssh-server", "nodes with sshd: true"),
    ("ssh", "openssh-client", "nodes with sshd: true"),
];

pub(super) fn find() -> Vec<Tool> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Daemons live where a user's PATH does not lead.
    let folders: Vec<PathBuf> =
        env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    let tool = |&(program, package, purpose): &(&str, &str, &str)| Tool {
        program: program.to_owned(),
        package: package.to_owned(),
        purpose: purpose.to_owned(),
        path: folders.iter().map(|folder| folder.join(program)).find(|path| is_program(path)),
    };
    TOOLS.iter().map(tool).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

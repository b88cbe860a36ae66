//! The machines that workers run on.

use std::net::SocketAddr;

use slipway_document::units::Seconds;

/// The machines that workers run on.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Place {
    /// The coordinator's own machine.
    #[default]
    Here,
    /// Machines of a Slurm cluster: each worker is a job.
    Slurm(Slurm),
}

/// Settings of workers that are jobs of Slurm (`sbatch(1)`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slurm {
    /// The partition; `None`: Slurm's own choice.
    pub partition: Option<String>,
    /// Time limit of each job; `None`: the partition's.
    pub time: Option<Seconds>,
    /// The address and port where the coordinator listens for workers. `None`: all addresses, and a free port.
    pub listen: Option<SocketAddr>,
}

//! The machines that a batch system gives a job, or that a user names, with what each offers.

mod address;
mod error;
pub mod hostfile;
pub mod list;

use std::fs;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use slipway_document::units::Bytes;

pub use self::address::machines;
pub use self::error::BatchError;

/// A machine that is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The destination of the remote shell: `HOST` or `USER@HOST`.
    pub host: String,
    /// Its address. `None`: the one that its name has.
    pub address: Option<Ipv4Addr>,
    /// Cores that the job may use there.
    pub cores: Option<u32>,
    /// Memory that the job may use there.
    pub memory: Option<Bytes>,
    /// The Slurm job.
    pub job: Option<u32>,
}

/// The place where machines are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// The environment of a Slurm job (`sbatch(1)`, "OUTPUT ENVIRONMENT VARIABLES").
    Slurm,
    /// The file that `PBS_NODEFILE` names.
    Pbs,
    /// Open MPI's default host file.
    OpenMpi,
    /// A host file.
    File(PathBuf),
}

impl FromStr for From {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "slurm" => Self::Slurm,
            "pbs" => Self::Pbs,
            "openmpi" => Self::OpenMpi,
            file => Self::File(file.into()),
        })
    }
}

/// The environment of a process.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl From {
    /// The machines that are listed there.
    ///
    /// # Errors
    /// When there is no such list, nobody can read it, or it is empty.
    pub fn offers(&self, environment: Environment<'_>) -> Result<Vec<Offer>, BatchError> {
        let (path, what) = match self {
            Self::Slurm => return slurm(environment),
            Self::Pbs => {
                let no_job = BatchError::NoJob { system: "PBS", variable: "PBS_NODEFILE" };
                (environment("PBS_NODEFILE").ok_or(no_job)?.into(), "PBS_NODEFILE")
            }
            // Open MPI 4 (`mpirun(1)`), then the file of Debian's package.
            Self::OpenMpi => {
                let named = environment("OMPI_MCA_orte_default_hostfile");
                (named.map_or_else(|| "/etc/openmpi/openmpi-default-hostfile".into(), PathBuf::from), "the host file")
            }
            Self::File(path) => (path.clone(), "the host file"),
        };
        let offers = hostfile::offers(&path, &read(&path)?)?;
        if offers.is_empty() { Err(BatchError::Empty(format!("{what} {}", path.display()))) } else { Ok(offers) }
    }
}

fn read(path: &Path) -> Result<String, BatchError> {
    let unreadable = |source| BatchError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(hostfile::LONGEST as u64).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

/// Machines as they are named on a command line: `a,root@b,n[1-4],c=192.0.2.3`.
///
/// # Errors
/// When a word is no machine.
pub fn named(text: &str) -> Result<Vec<Offer>, BatchError> {
    let wrong = |reason| BatchError::list(text, reason);
    let mut offers = Vec::new();
    for word in list::split(text).map_err(wrong)? {
        let (destination, address) = word.split_once('=').map_or((word, None), |(host, address)| (host, Some(address)));
        let address = address.map(str::parse).transpose().map_err(|_| wrong("after `=` stands an IPv4 address"))?;
        let (user, hosts) =
            destination.rsplit_once('@').map_or((None, destination), |(user, hosts)| (Some(user), hosts));
        let hosts = list::hosts(hosts).map_err(|error| match error {
            BatchError::List { reason, .. } => wrong(reason),
            other => other,
        })?;
        // One name, by the same rules.
        let user = user.map(|user| list::hosts(user).map_err(|_| wrong("before `@` stands a user"))).transpose()?;
        if user.as_ref().is_some_and(|user| user.len() > 1) || (address.is_some() && hosts.len() > 1) {
            return Err(wrong("several machines have one user or address"));
        }
        let prefix = user.and_then(|user| Some(user.into_iter().next()? + "@")).unwrap_or_default();
        let offer =
            |host: String| Offer { host: format!("{prefix}{host}"), address, cores: None, memory: None, job: None };
        offers.extend(hosts.into_iter().map(offer));
    }
    Ok(offers)
}

/// The machines of a Slurm job, with the cores and the memory that it has there.
fn slurm(environment: Environment<'_>) -> Result<Vec<Offer>, BatchError> {
    let variable = "SLURM_JOB_NODELIST";
    let list = environment(variable).filter(|list| !list.is_empty());
    let hosts = list::hosts(&list.ok_or(BatchError::NoJob { system: "Slurm", variable })?)?;
    let cores = environment("SLURM_JOB_CPUS_PER_NODE").map(|counts| list::counts(&counts)).transpose()?;
    let job = environment("SLURM_JOB_ID").and_then(|id| id.parse().ok());
    // Mebibytes; 0 stands for all that the machine has.
    let mebibytes = |name: &str| environment(name).and_then(|text| text.parse::<u64>().ok()).filter(|&size| size > 0);
    let (whole, each) = (mebibytes("SLURM_MEM_PER_NODE"), mebibytes("SLURM_MEM_PER_CPU"));
    let offer = |(at, host): (usize, String)| {
        let cores = cores.as_ref().and_then(|cores| cores.get(at).copied()).filter(|&cores| cores > 0);
        let mebibytes = whole.or_else(|| each.zip(cores).map(|(each, cores)| each.saturating_mul(cores.into())));
        let memory = mebibytes.map(|size| Bytes(size.saturating_mul(1 << 20)));
        Offer { host, address: None, cores: cores.map(|cores| cores.min(65535)), memory, job }
    };
    Ok(hosts.into_iter().enumerate().map(offer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slurm_job_says_its_machines_cores_and_memory() {
        let environment = |name: &str| {
            let value = match name {
                "SLURM_JOB_NODELIST" => "n[1-3]",
                "SLURM_JOB_CPUS_PER_NODE" => "4(x2),2",
                "SLURM_MEM_PER_CPU" => "512",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let offers = From::Slurm.offers(&environment).unwrap();
        let all: Vec<_> =
            offers.iter().map(|one| (one.host.as_str(), one.cores.unwrap(), one.memory.unwrap().0 >> 20)).collect();
        assert_eq!(all, [("n1", 4, 2048), ("n2", 4, 2048), ("n3", 2, 1024)]);
        let none = From::Slurm.offers(&|_| None).unwrap_err().to_string();
        assert!(none.contains("SLURM_JOB_NODELIST is not set\nHint: "), "{none}");
    }

    #[test]
    fn machines_are_named_with_users_and_addresses() {
        let offers = named("a,root@n[1-2],c=192.0.2.3").unwrap();
        let all: Vec<_> = offers.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(all, ["a", "root@n1", "root@n2", "c"]);
        assert_eq!(offers[3].address, Some(Ipv4Addr::new(192, 0, 2, 3)));
        for text in ["", "a,,b", "a=b", "n[1-2]=192.0.2.3", "-o@b", "x y", "@b", "a@"] {
            assert!(named(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_node_file_of_a_pbs_job_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes");
        fs::write(&path, "n1\nn1\nn2\n").unwrap();
        let environment = |name: &str| (name == "PBS_NODEFILE").then(|| path.display().to_string());
        let offers = From::Pbs.offers(&environment).unwrap();
        assert_eq!(
            offers.iter().map(|one| (one.host.as_str(), one.cores)).collect::<Vec<_>>(),
            [("n1", Some(2)), ("n2", Some(1))]
        );
        fs::write(&path, "# none\n").unwrap();
        assert!(matches!(From::Pbs.offers(&environment), Err(BatchError::Empty(_))));
    }
}

//! Options that choose the machines of a lab.

use slipway_machines::batch::{self, BatchError, From, Offer};
use slipway_study::Source;
use slipway_sys::ns::in_first_user_namespace;

use crate::exit::Exit;
use crate::failure::Failure;

/// The word for no other machine than this one.
const NONE: &str = "none";

/// The machines that a lab is made on.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Machines {
    /// Machines in the place of the file's: NAME, USER@NAME, NAME[1-4] or NAME=ADDRESS
    #[arg(long, value_name = "LIST", conflicts_with = "machines_from")]
    machines: Option<String>,
    /// Those of a job or a host file: slurm, pbs, openmpi, FILE, or none for this one [default: the file's, or the Slurm job's]
    #[arg(long, value_name = "WHERE")]
    machines_from: Option<String>,
}

impl Machines {
    /// A lab's file, with the machines that the options or a Slurm job choose.
    pub(crate) fn choose(&self, source: Source) -> Result<Source, Failure> {
        let environment = |name: &str| std::env::var(name).ok();
        let offers = match (&self.machines, self.machines_from.as_deref()) {
            (Some(list), _) => batch::named(list),
            (None, Some(NONE)) => return Ok(source.on(Vec::new())),
            (None, Some(word)) => {
                let Ok(from) = word.parse::<From>();
                from.offers(&environment)
            }
            (None, None) => {
                let lab = source.lab()?;
                // The file's own words come before the job's. A task of `srun` is one of several that do the same.
                let is_open = lab.machines.is_empty() && !lab.machine && std::env::var_os("SLURM_STEP_ID").is_none();
                match From::Slurm.offers(&environment) {
                    Ok(offers) if is_open => Ok(offers),
                    Err(error) if is_open && !matches!(error, BatchError::NoJob { .. }) => Err(error),
                    _ => return Ok(source),
                }
            }
        };
        let offers = offers.map_err(Failure::usage)?;
        if offers.iter().any(|offer| offer.job.is_some()) && !in_first_user_namespace().unwrap_or(true) {
            return alone(source, &offers);
        }
        Ok(source.on(batch::machines(offers).map_err(Failure::usage)?))
    }
}

/// The lab of a job's user who is root of a user namespace alone. The network that leads to other machines is not there.
fn alone(source: Source, offers: &[Offer]) -> Result<Source, Failure> {
    if offers.len() == 1 {
        return Ok(source.on(Vec::new()));
    }
    let account = format!(
        "make a lab on the job's {} machines: root of a user namespace does not reach the network between them\nHint: `--machines-from none` stays on this machine; a lab on several takes the machines' root",
        offers.len()
    );
    Err(Failure::new(Exit::Unable, &account))
}

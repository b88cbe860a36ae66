//! The place of a lab's control groups: below those of its batch job, if it is in one.

use std::io;

use slipway_lab::model::Lab;
use slipway_sys::cgroup::{CgroupError, Hierarchy};

use crate::state::LabDir;

/// The file in a lab's folder that says where its groups are, if they are below those of a job.
const BELOW: &str = "groups.json";

/// The hierarchies where a lab that is up, or was, has its groups.
pub(crate) fn of_lab(dir: &LabDir) -> Result<Hierarchy, CgroupError> {
    match dir.read(BELOW) {
        Ok(hierarchy) => Ok(hierarchy),
        // Usual: it is in no job.
        Err(_) => Hierarchy::detect(),
    }
}

/// The same for one that is made: below the group of the Slurm job that this machine is part of. Its nodes use
/// no more than the job may, and what they use is the job's.
pub(crate) fn of_new(lab: &Lab, dir: &LabDir) -> Result<Hierarchy, CgroupError> {
    let everywhere = Hierarchy::detect()?;
    let Some(job) = lab.machines.get(lab.part.machine).and_then(|machine| machine.job) else { return Ok(everywhere) };
    let hierarchy = everywhere.clone().below(&format!("job_{job}"))?;
    if hierarchy != everywhere {
        // Later commands come from elsewhere, and look there.
        let path = dir.join(BELOW);
        dir.write(BELOW, &hierarchy).map_err(|error| CgroupError::Io {
            action: "write",
            path,
            source: io::Error::other(error),
        })?;
    }
    Ok(hierarchy)
}

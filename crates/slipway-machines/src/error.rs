//! Failures of a lab over several machines.

use std::collections::BTreeSet;

use slipway_engine::rsh::RshError;

/// An action on another machine that failed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The machine's part answered that it could not.
    #[error("{doing} on machine {machine}: {message}")]
    Refused {
        /// The action, as in "bring the lab up".
        doing: &'static str,
        /// The machine's name.
        machine: String,
        /// Its answer, with its hint.
        message: String,
    },
    /// The machine cannot be reached, or its part ended before it answered.
    #[error("reach machine {machine}: {reason}\nHint: try `{command} slipway --version`")]
    Unreachable {
        /// The machine's name.
        machine: String,
        /// The fault, as the way there told it.
        reason: String,
        /// The command that leads there.
        command: String,
    },
    /// The machine has another version of Slipway.
    #[error(
        "work with machine {machine}: it has Slipway {there}, and this machine {here}\nHint: install the same version on all machines"
    )]
    Version {
        /// The machine's name.
        machine: String,
        /// Its version.
        there: String,
        /// This machine's.
        here: String,
    },
    /// This machine's part cannot be asked.
    #[error(transparent)]
    Lab(#[from] slipway_engine::lab::LabError),
    /// The job beside a scenario.
    #[error(transparent)]
    Scenario(#[from] slipway_engine::scenario::ScenarioError),
    /// Links cannot be measured.
    #[error(transparent)]
    Verify(#[from] slipway_verify::VerifyError),
    /// An image of the lab cannot be read.
    #[error(transparent)]
    Image(slipway_image::ImageError),
    /// An image does not reach a machine.
    #[error(
        "send image `{image}` to machine {machine}: {reason}\nHint: put the same image at {} there, and it is not sent",
        path.display()
    )]
    Carry {
        /// The image's name in the lab file.
        image: String,
        /// The machine's name.
        machine: String,
        /// The lab file's path.
        path: std::path::PathBuf,
        /// The fault.
        reason: String,
    },
    /// The coordinator cannot write to a folder that the lab says is shared.
    #[error(
        "write to {}, which the lab says all machines share: {source}\nHint: root has to write there for the check (NFS: `no_root_squash`), or leave `shared` out",
        folder.display()
    )]
    Unshareable {
        /// The folder.
        folder: std::path::PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A folder is another one on some machines.
    #[error(
        "bring the lab up: {} is not the same folder on {machines}\nHint: mount the same file system there, or leave `shared` out of the mount",
        folder.display()
    )]
    NotShared {
        /// The folder.
        folder: std::path::PathBuf,
        /// The machines' names.
        machines: String,
    },
    /// Other labs have the tunnels that were drawn.
    #[error(
        "find free tunnels for lab `{lab}`: other labs of its machines have all that were tried\nHint: `slipway down --all` on each machine takes old labs down"
    )]
    NoTunnels {
        /// The lab's name.
        lab: String,
    },
    /// This machine is none of the lab's.
    #[error(
        "find this machine in lab `{lab}`: it has the address of none of {all}\nHint: run the command on one of them, or mend the addresses in the lab file"
    )]
    NotHere {
        /// The lab's name.
        lab: String,
        /// Its machines, with their addresses.
        all: String,
    },
    /// The remote shell.
    #[error(transparent)]
    Rsh(#[from] RshError),
    /// Several machines failed.
    #[error("{}", each(.0))]
    Several(Vec<MachineError>),
    /// This machine failed.
    #[error("{doing}: {source}")]
    Here {
        /// The action.
        doing: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

impl MachineError {
    /// All of these as one.
    pub(crate) fn of(mut all: Vec<Self>) -> Result<(), Self> {
        match all.len() {
            0 => Ok(()),
            1 => Err(all.remove(0)),
            _ => Err(Self::Several(all)),
        }
    }
}

/// The accounts of all, and their hints once each.
fn each(all: &[MachineError]) -> String {
    let text: Vec<String> = all.iter().map(ToString::to_string).collect();
    let lines = text.iter().flat_map(|text| text.lines());
    let (hints, accounts): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("Hint: "));
    let hints: BTreeSet<&str> = hints.into_iter().collect();
    accounts.into_iter().chain(hints).collect::<Vec<_>>().join("\n")
}

//! The folders and the program with which a process brings labs up.

use std::path::PathBuf;

use slipway_image::Store;

use crate::state::StateRoot;

/// Everything of this machine that a lab needs and its file does not say.
#[derive(Debug)]
pub struct Machine {
    /// The folder with the state of labs.
    pub labs: StateRoot,
    /// The store of unpacked images.
    pub images: Store,
    /// The program that nodes find at `/run/slipway/agent`: launchers of MPI execute it, and copies to and from nodes.
    ///
    /// It calls [`copy::agent`](crate::copy::agent()) and [`job::agent::agent_main`](crate::job::agent::agent_main) where its own
    /// name is `agent`. The path is absolute. It must not be a link to a process's program (`/proc/self/exe`), which belongs to
    /// another mount namespace than the anchor's.
    pub agent: PathBuf,
}

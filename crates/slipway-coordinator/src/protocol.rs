//! Messages between workers and the coordinator: bodies of HTTP requests, in JSON.
//!
//! `GET /v1/setup` gives a worker the campaign. `POST /v1/turn` reports attempts that ended and asks for points to run. Both
//! are small, whatever the size of results: those travel as objects through a folder. `POST /v1/beat` comes every second
//! from a worker that lives, also while a program runs.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipway_campaign::design::{Plan, PlanError, Rows};
use slipway_campaign::model::Campaign;
use slipway_campaign::value::Value;
use slipway_document::errors::DocumentErrors;
use slipway_results::Digest;

use crate::store::{Fence, Lease, Outcome, Usage};

/// Path of the request for a campaign.
pub const SETUP: &str = "/v1/setup";
/// Path of the request for points.
pub const TURN: &str = "/v1/turn";
/// Path of the request that only says that the worker lives.
pub const BEAT: &str = "/v1/beat";
/// Time between two of them.
pub const PULSE: Duration = Duration::from_secs(1);
/// Largest body in bytes: some thousand records.
pub const LARGEST: usize = 16 << 20;

/// A campaign as a worker gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Name of the campaign file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The folder that its relative paths begin in.
    pub folder: PathBuf,
    /// Points of a design that reads them from a file.
    pub rows: Option<Rows>,
    /// Sizes that the design was extended to, one after the other.
    #[serde(default)]
    pub extended: Vec<u64>,
}

/// The reason why a campaign cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] DocumentErrors),
    /// There is no such design.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Setup {
    /// The campaign and its points.
    ///
    /// # Errors
    /// Where the file or its design is wrong.
    pub fn read(&self) -> Result<(Campaign, Plan), SetupError> {
        let mut campaign = slipway_campaign::parse(&self.file, &self.text, &self.folder)?;
        for &size in &self.extended {
            campaign.design = campaign.design.extended(size)?;
        }
        let plan = Plan::new(&campaign, self.rows.clone())?;
        Ok((campaign, plan))
    }
}

/// A worker's request for points.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Attempts that ended since the last request.
    pub ended: Vec<Report>,
}

/// An attempt that ended, as a worker reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The point.
    pub point: u64,
    /// The fence of its lease.
    pub fence: Fence,
    /// Its end.
    pub outcome: Outcome,
    /// Resources that it took.
    pub usage: Usage,
    /// Objects of its results, in the worker's folder `out`.
    pub objects: Vec<Digest>,
}

/// The coordinator's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Run these points, then ask again.
    Run {
        /// The points, in order.
        leases: Vec<Lease>,
        /// Longest time of each.
        limit: Option<Duration>,
        /// Values of each, where a search chose them; empty where they follow from the points' numbers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        values: Vec<Vec<Value>>,
    },
    /// Nothing is to be done: end.
    End,
}

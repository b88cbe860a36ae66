//! How far a campaign is, from its folder: whether or not a coordinator runs it.

use std::path::PathBuf;

use serde::Serialize;
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Counts, Point, Spent, State, Store as _};

use super::{CampaignError, Study, results};

/// Failures that are told.
const LATEST: usize = 5;

/// Progress of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// Its name.
    pub campaign: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Its state.
    pub state: State,
    /// Whether a coordinator runs it now, or its lab still goes down.
    pub runs: bool,
    /// Counts of points.
    #[serde(flatten)]
    pub counts: Counts,
    /// Workers that have points.
    pub workers: u32,
    /// Results a second of late; `None` before there are two.
    pub rate: Option<f64>,
    /// Seconds until all points have ended, at that rate; `None` where no coordinator runs the campaign.
    pub left: Option<f64>,
    /// Time of workers over all runs, in seconds.
    pub seconds: Spent,
    /// Points whose last attempt failed, the latest first: at most five.
    pub failures: Vec<Point>,
}

impl Standing {
    /// Looks at a campaign.
    ///
    /// # Errors
    /// Where there is none, or its queue cannot be read.
    pub fn of(study: &Study) -> Result<Self, CampaignError> {
        let store = results::store(study)?;
        let (counts, rate) = (store.counts()?, store.rate()?);
        let runs = Folder::open(study.folder())?.is_running()?;
        let state = store.state()?;
        let goes_on = runs && state == State::Running;
        Ok(Self {
            campaign: study.campaign.name.clone(),
            folder: study.folder().to_owned(),
            state,
            runs,
            counts,
            workers: store.busy()?,
            rate,
            left: rate.filter(|_| goes_on).map(|rate| (counts.waiting + counts.running) as f64 / rate),
            seconds: store.spent()?,
            failures: store.failures(LATEST)?,
        })
    }

    /// Whether all points have ended, or will never run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.counts.waiting + self.counts.running == 0 || self.state == State::Cancelled
    }
}

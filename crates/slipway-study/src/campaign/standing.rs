//! How far a campaign is, from its folder: whether or not a coordinator runs it.

use std::path::PathBuf;

use serde::Serialize;
use slipway_coordinator::Folder;
use slipway_coordinator::store::{Counts, History as _, Point, PointState, Spent, Sqlite, State, Step, Store as _};

use super::{CampaignError, Study, layout, results};

/// Failures that are told.
const LATEST: usize = 5;

/// Progress of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// Its name.
    pub campaign: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The lab of its workers, while it runs; on Slurm, the name of their jobs.
    pub lab: String,
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
    /// The last batch that a search has learnt from; `None` before the first, and for other designs.
    pub step: Option<Step>,
    /// The point that all others wait for, where the campaign has one.
    pub baseline: Option<Baseline>,
    /// Points whose last attempt failed, the latest first: at most five.
    pub failures: Vec<Point>,
}

/// The baseline: point 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// Its state. Where it failed, no other point runs.
    pub state: PointState,
    /// The reason of its last failure, in the program's own words; `None` where it did not fail.
    pub message: Option<String>,
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
            lab: layout::lab_name(&study.campaign, study.folder()),
            state,
            runs,
            counts,
            workers: store.busy()?,
            rate,
            left: rate.filter(|_| goes_on).map(|rate| (counts.waiting + counts.running) as f64 / rate),
            seconds: store.spent()?,
            step: if study.plan.is_search() { store.step()? } else { None },
            baseline: baseline(study, &store)?,
            failures: store.failures(LATEST)?,
        })
    }

    /// Whether the baseline failed, so that nothing else runs.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.baseline.as_ref().is_some_and(|baseline| baseline.state == PointState::Failed)
    }

    /// Whether all points have ended, or will never run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.counts.waiting + self.counts.running == 0 || self.state == State::Cancelled
    }
}

fn baseline(study: &Study, store: &Sqlite) -> Result<Option<Baseline>, CampaignError> {
    if study.campaign.baseline.is_none() {
        return Ok(None);
    }
    let of = |point: Point| Baseline { state: point.state, message: point.message };
    // A point that no worker had has no row.
    Ok(Some(store.point(0)?.map_or(Baseline { state: PointState::Waiting, message: None }, of)))
}

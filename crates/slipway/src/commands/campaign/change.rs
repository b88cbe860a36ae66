//! `slipway campaign pause|resume|cancel|retry`

use serde_json::json;
use slipway_coordinator::store::{Filter, State, Store as _};
use slipway_study::campaign::{CampaignError, results};

use super::Which;
use super::status::Choice;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Give out no more points; those that run end
#[derive(Debug, clap::Args)]
pub(super) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Give out points again, after a pause or a cancellation
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    #[command(flatten)]
    which: Which,
}

/// Give a campaign up: points that run are ended. Results stay
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    which: Which,
}

impl Pause {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        set(context, &self.which, State::Paused, "paused; `slipway campaign resume` goes on")
    }
}

impl Resume {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        set(context, &self.which, State::Running, "points are given out, as long as `slipway campaign run` runs")
    }
}

impl Cancel {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        set(context, &self.which, State::Cancelled, "cancelled; results stay")
    }
}

fn set(context: &Context, which: &Which, state: State, news: &str) -> Result<Exit, Failure> {
    let study = which.open()?;
    results::store(&study)?.set_state(state).map_err(CampaignError::from)?;
    let name = &study.campaign.name;
    context.tell(&json!({"campaign": name, "state": state}), |_| format!("campaign {name}: {news}\n"))?;
    Ok(Exit::Success)
}

/// Have points that failed run again, with all their attempts
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  slipway campaign retry                     all that failed
  slipway campaign retry --failure timeout
  slipway campaign retry --point 7 --point 9 study.yaml")]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    choice: Choice,
    /// This point alone; may be repeated
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<u64>,
}

impl Retry {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = self.which.open()?;
        let filter = Filter { state: None, failure: self.choice.failure, points: self.points };
        let again = results::store(&study)?.retry(&filter).map_err(CampaignError::from)?;
        context.tell(&json!({"campaign": study.campaign.name, "retried": again}), |_| match again {
            0 => "no point that failed is meant\n".to_owned(),
            _ => format!("{} will run again\n", view::count(again, "point")),
        })?;
        Ok(Exit::Success)
    }
}

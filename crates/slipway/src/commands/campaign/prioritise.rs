//! `slipway campaign prioritise`

use std::ops::RangeInclusive;

use serde_json::json;
use slipway_campaign::condition::Condition;
use slipway_coordinator::store::FailureKind;
use slipway_study::campaign::priority::{self, MOST, Wanted};

use super::Which;
use super::status::word;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Have points run before others, or after them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each point has priority 0; of those that wait, the greatest runs first. Points that
run are not interrupted, and a campaign that runs takes it up with the next point.
All that is said must hold of a point. The baseline stays the first point.

Examples:
  slipway campaign prioritise --points 7,100-199
  slipway campaign prioritise --where 'speed > 25' --where 'glass = double'
  slipway campaign prioritise --failure timeout --priority=-1     the last ones")]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// These points: numbers and ranges, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range, required_unless_present_any = ["conditions", "failure"])]
    points: Vec<RangeInclusive<u64>>,
    /// Points whose variable is so: NAME=VALUE, or !=, <, <=, >, >=; may be repeated
    #[arg(long = "where", value_name = "FILTER")]
    conditions: Vec<String>,
    /// Points whose last attempt failed so: fatal, timeout, lost-worker, storage or output
    #[arg(long, value_name = "KIND", value_parser = word::<FailureKind>)]
    failure: Option<FailureKind>,
    /// The priority, from -1000 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-i64::from(MOST)..=i64::from(MOST)))]
    priority: i32,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self { which, points, conditions, failure, priority } = self;
        let study = which.open()?;
        let conditions = Condition::read_all(&conditions, &study.campaign.variables).map_err(Failure::usage)?;
        let count = priority::prioritise(&study, &Wanted { points, conditions, failure }, priority)?;
        context.tell(&json!({"campaign": study.campaign.name, "prioritised": count}), |_| match count {
            0 => "no point that waits is meant\n".to_owned(),
            _ => format!("{} with priority {priority} now\n", view::count(count, "point")),
        })?;
        Ok(Exit::Success)
    }
}

/// `7` or `7-20`.
fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("`{text}` is no number of a point"));
    match text.split_once('-') {
        Some((first, last)) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Ok(first..=last),
            _ => Err("the range ends before it begins".to_owned()),
        },
        None => number(text).map(|point| point..=point),
    }
}

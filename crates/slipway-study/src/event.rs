//! The progress of a study.

use std::time::Duration;

use slipway_coordinator::Progress as Points;
use slipway_engine::job;
use slipway_engine::lab::Progress;
use slipway_lab::model::{DriverWord, Lab};
use slipway_lab::scenario::Schedule;
use slipway_measure::check::CheckedPath;
use slipway_measure::play;
use slipway_measure::record::Measurement;

/// A step of a study, told as it takes place.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A scenario was planned for a lab that a comparison is about to bring up.
    ScenarioPlanned {
        /// The lab.
        lab: &'a Lab,
        /// The file of the scenario, or the lab.
        scenario: &'a str,
        /// The events.
        schedule: &'a Schedule,
    },
    /// A lab begins to come up.
    LabStarting {
        /// The lab's name.
        lab: &'a str,
    },
    /// A lab is on its way up.
    LabProgress(Progress),
    /// A lab is up, or has failed to come up.
    LabDone,
    /// A comparison goes on without a driver, whose lab did not come up.
    DriverLeftOut {
        /// The driver.
        driver: DriverWord,
        /// The error; it fits "failed to …".
        why: &'a str,
    },
    /// The measurement of links begins.
    CheckStarting {
        /// The number of paths.
        paths: usize,
        /// About how long it takes.
        lasts: Duration,
    },
    /// A part of the measurement of links is done, per mille.
    CheckProgress(u16),
    /// The measurement of links has ended, or was interrupted.
    CheckDone,
    /// Links were measured before a study.
    Checked {
        /// The driver and setting of a comparison; empty elsewhere.
        under: &'a str,
        /// The results.
        paths: &'a [CheckedPath],
    },
    /// Links were to be measured, and none is under conditions.
    NothingToCheck {
        /// The lab's name.
        lab: &'a str,
    },
    /// The links of a comparison could not be measured under one driver and setting.
    CheckFailed {
        /// The driver and setting.
        under: &'a str,
        /// The error; it fits "failed to …".
        why: &'a str,
    },
    /// The Python environment of a campaign's engine is on its way.
    Python(slipway_python::Step<'a>),
    /// The weather file of a campaign is of another place than its model.
    WeatherElsewhere {
        /// The model's place.
        model: &'a str,
        /// The weather file's place.
        weather: &'a str,
        /// The distance between them in km.
        km: f64,
    },
    /// A campaign is on its way.
    Points(Points),
    /// A program printed a line.
    Line(job::Line<'a>),
    /// The log of a scenario has a new line.
    Played(&'a play::Line),
    /// One measurement of a comparison was taken, or failed.
    Measured {
        /// The number of rounds, those of the warm-up included.
        rounds: u32,
        /// The measurement.
        measurement: &'a Measurement,
    },
}

/// An event sink. It is called between the steps of a study, so it must not take long.
pub type Events<'s> = dyn FnMut(Event<'_>) + 's;

//! Reports that a model must ask for, so that EnergyPlus writes the results that a campaign reads.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::idf::{Idf, IdfError, check_value};

/// Frequency of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Frequency")]
pub enum Reporting {
    /// Each iteration of the system.
    Detailed,
    /// Each time step of the zones.
    Timestep,
    /// Each hour.
    Hourly,
    /// Each day.
    Daily,
    /// Each month.
    Monthly,
    /// Once for each run period.
    RunPeriod,
}

impl Reporting {
    /// EnergyPlus' word for it, in models.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Detailed => "Detailed",
            Self::Timestep => "Timestep",
            Self::Hourly => "Hourly",
            Self::Daily => "Daily",
            Self::Monthly => "Monthly",
            Self::RunPeriod => "RunPeriod",
        }
    }

    /// EnergyPlus' words for it in `eplusout.sql`. Those of the finest differ between meters and variables.
    pub(crate) fn stored(self) -> &'static [&'static str] {
        match self {
            Self::Detailed => &["HVAC System Timestep", "Zone Timestep"],
            Self::Timestep => &["Zone Timestep"],
            Self::Hourly => &["Hourly"],
            Self::Daily => &["Daily"],
            Self::Monthly => &["Monthly"],
            Self::RunPeriod => &["Run Period"],
        }
    }
}

/// A report that an output reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A meter, such as `Electricity:Facility`.
    Meter(String),
    /// A variable of some objects, such as `Zone Mean Air Temperature`.
    Variable(String),
    /// The summary tables.
    Tables,
}

/// The model with what it needs to write these reports to `eplusout.sql`. `all`: the frequency that the model's own reports
/// get too.
///
/// # Errors
/// Where the result is no model: a report's name has a character that ends a field.
pub fn add_reports(idf: &Idf, reports: &[Report], reporting: Reporting, all: bool) -> Result<Idf, IdfError> {
    let mut changes = Vec::new();
    // One object at most may ask for the database.
    for object in idf.of_class("Output:SQLite") {
        changes.push((Idf::whole(object), String::new()));
    }
    if all {
        for (class, number) in [("Output:Variable", 3), ("Output:Meter", 2), ("Output:Meter:MeterFileOnly", 2)] {
            let places = idf.of_class(class).filter_map(|object| Idf::value_place(object, number));
            changes.extend(places.map(|place| (place, reporting.word().to_owned())));
        }
    }
    let mut text = idf.with(changes);
    text.push_str("\nOutput:SQLite,SimpleAndTabular;\n");
    let word = reporting.word();
    for report in reports {
        if let Report::Meter(name) | Report::Variable(name) = report {
            check_value(name, name)?;
        }
        let _ = match report {
            Report::Meter(name) => writeln!(text, "Output:Meter,{name},{word};"),
            Report::Variable(name) => writeln!(text, "Output:Variable,*,{name},{word};"),
            Report::Tables if idf.of_class("Output:Table:SummaryReports").next().is_some() => Ok(()),
            Report::Tables => writeln!(text, "Output:Table:SummaryReports,AllSummary;"),
        };
    }
    Idf::parse(text)
}

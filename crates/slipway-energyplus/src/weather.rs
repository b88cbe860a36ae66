//! Weather files (EPW), and the run periods of models that they are for.
//!
//! The form is that of EnergyPlus' "Auxiliary Programs", chapter "EnergyPlus Weather File (EPW) Data Dictionary".

use std::fmt;

use crate::idf::Idf;

/// Values of a row that EnergyPlus needs: five of its time, a text about uncertainty, and twenty of the weather.
const NEEDED: usize = 26;
/// Fields of a `RunPeriod`, from 1: month and day of its begin, month and day of its end, whether years count.
const BEGIN: [usize; 3] = [2, 3, 4];
const END: [usize; 3] = [5, 6, 7];
const ACTUAL: usize = 14;
/// The field of `SimulationControl` that has run periods run.
const RUNS: usize = 5;

/// The reason why a text is no weather file, or not for a model. Each is a clause for a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeatherError {
    /// The first line is not that of a weather file.
    #[error("it is no weather file: its first line does not begin with `LOCATION`\nHint: name an EPW file")]
    NoLocation,
    /// The header does not end.
    #[error("it is no weather file: it has no line `DATA PERIODS`")]
    NoPeriods,
    /// There are fewer hours than a year has.
    #[error("it has {0} hours, and a year has 8760\nHint: write `annual: false`, and the model's run period is taken")]
    Short(usize),
    /// A line is no row of weather.
    #[error("line {line}: {what}")]
    Row {
        /// The line, from 1.
        line: usize,
        /// The fault.
        what: &'static str,
    },
    /// The model runs design days only.
    #[error(
        "the model runs design days only, which say nothing of a year\nHint: leave `annual: false` out, or set `SimulationControl/Run Simulation for Weather File Run Periods: 'Yes'`"
    )]
    DesignDays,
    /// The model has no run period.
    #[error(
        "the model has no `RunPeriod`\nHint: leave `annual: false` out, and the whole year of the weather file is run"
    )]
    NoRunPeriod,
    /// The model runs days that the weather file lacks.
    #[error(
        "it has {has}, and the model's `RunPeriod` is {wanted}\nHint: set `RunPeriod/{name}/…`, or name another weather file"
    )]
    Outside {
        /// The period of the weather file.
        has: Period,
        /// The run period.
        wanted: Period,
        /// Its name.
        name: String,
    },
}

/// Days from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The first day.
    pub begin: Day,
    /// The last day.
    pub end: Day,
}

/// A day. Years count only where both sides give one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// The year, where it counts.
    pub year: Option<i32>,
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.month, self.day)?;
        self.year.map_or(Ok(()), |year| write!(f, "/{year}"))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.begin, self.end)
    }
}

/// A weather file: the days that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weather {
    periods: Vec<Period>,
}

/// Looks at a weather file. `annual`: it must have a year.
///
/// # Errors
/// Where EnergyPlus would refuse it.
pub fn check(text: &str, annual: bool) -> Result<Weather, WeatherError> {
    let begins = |line: &str, word: &str| line.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let mut lines = text.lines().zip(1..);
    if !lines.next().is_some_and(|(line, _)| begins(line.trim_start_matches('\u{feff}'), "LOCATION,")) {
        return Err(WeatherError::NoLocation);
    }
    let (head, _) = lines.find(|(line, _)| begins(line, "DATA PERIODS,")).ok_or(WeatherError::NoPeriods)?;
    let mut rows = 0;
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        row(line).map_err(|what| WeatherError::Row { line: number, what })?;
        rows += 1;
    }
    let words: Vec<&str> = head.split(',').map(str::trim).collect();
    let a_day: usize = words.get(2).and_then(|word| word.parse().ok()).filter(|count| *count > 0).unwrap_or(1);
    let hours = rows / a_day;
    if annual && hours < 8760 {
        return Err(WeatherError::Short(hours));
    }
    // Name, weekday, first and last day of each.
    let period = |part: &[&str]| Some(Period { begin: day(part.get(2)?)?, end: day(part.get(3)?)? });
    Ok(Weather { periods: words.get(3..).unwrap_or_default().chunks(4).filter_map(period).collect() })
}

/// Whether a line is a row of weather. The error is a clause.
fn row(line: &str) -> Result<(), &'static str> {
    let mut values = line.split(',').map(str::trim);
    let time = [1..=9999, 1..=12, 1..=31, 1..=24];
    for range in time {
        let number = values.next().and_then(|word| word.parse::<f64>().ok());
        if !number.is_some_and(|number| (f64::from(*range.start())..=f64::from(*range.end())).contains(&number)) {
            return Err("a row of weather begins with year, month, day and hour");
        }
    }
    if values.count() + 4 < NEEDED { Err("a row of weather has at least 26 values") } else { Ok(()) }
}

/// A day as headers have it: ` 1/ 1` or `1/1/2017`.
fn day(word: &str) -> Option<Day> {
    let mut parts = word.split('/').map(str::trim);
    let (month, day) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Day { month, day, year: parts.next().and_then(|year| year.parse().ok()) })
}

impl Weather {
    /// Looks whether a model's own run periods can run. `has_results`: whether results are read that only they give.
    ///
    /// # Errors
    /// The first run period that EnergyPlus would refuse; with `has_results`, a model without any.
    pub fn covers(&self, model: &Idf, has_results: bool) -> Result<(), WeatherError> {
        let is = |text: Option<&str>, word: &str| text.is_some_and(|text| text.eq_ignore_ascii_case(word));
        if model.of_class("SimulationControl").any(|control| is(model.field(control, RUNS), "No")) {
            return if has_results { Err(WeatherError::DesignDays) } else { Ok(()) };
        }
        let mut count = 0;
        for run in model.of_class("RunPeriod") {
            count += 1;
            let years_count = is(model.field(run, ACTUAL), "Yes");
            let day = |[month, day, year]: [usize; 3]| {
                let number = |field| model.field(run, field)?.parse::<u32>().ok();
                let year = number(year).and_then(|year| i32::try_from(year).ok()).filter(|_| years_count);
                Some(Day { month: number(month)?, day: number(day)?, year })
            };
            let (Some(begin), Some(end)) = (day(BEGIN), day(END)) else { continue };
            let wanted = Period { begin, end };
            let Some(&has) = self.periods.first() else { continue };
            if !self.periods.iter().any(|period| period.has(begin) && period.has(end)) {
                let name = model.field(run, 1).unwrap_or_default().to_owned();
                return Err(WeatherError::Outside { has, wanted, name });
            }
        }
        if count == 0 && has_results { Err(WeatherError::NoRunPeriod) } else { Ok(()) }
    }
}

impl Period {
    fn has(&self, day: Day) -> bool {
        if let (Some(first), Some(last), Some(_)) = (self.begin.year, self.end.year, day.year) {
            let key = |day: Day, year: i32| (day.year.unwrap_or(year), day.month, day.day);
            return (key(self.begin, first)..=key(self.end, last)).contains(&key(day, first));
        }
        let key = |day: Day| (day.month, day.day);
        let (first, last, wanted) = (key(self.begin), key(self.end), key(day));
        // A period may pass the end of the year; one of several years has every day.
        let is_long = self.begin.year.zip(self.end.year).is_some_and(|(first, last)| last > first + 1);
        is_long || if first <= last { (first..=last).contains(&wanted) } else { wanted >= first || wanted <= last }
    }
}

//! A campaign as one HTML page of the same kind as the comparison's: how it went, what its workers' time was spent on,
//! and what its results say. Each picture has a table that says the same.

mod pictures;

use askama::Template;

use crate::format;

/// Dots of all scatter plots together: a page stays small, however many results there are.
const DOTS: usize = 60_000;
/// Dots of one plot.
const FEWEST: usize = 100;
const MOST: usize = 1500;

/// Everything that the page shows of a campaign. Times are seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Campaign {
    /// Its name.
    pub name: String,
    /// State of the campaign, in words.
    pub state: String,
    /// Names and values of facts about it.
    pub facts: Vec<(String, String)>,
    /// Results so far over the time of its runs, rising.
    pub progress: Vec<(f64, f64)>,
    /// Times at which a run ended and the next began, on the axis of `progress`.
    pub breaks: Vec<f64>,
    /// The time of its workers.
    pub time: Time,
    /// Kinds of failures, and points that failed so.
    pub failures: Vec<(String, u64)>,
    /// Points that failed of late: number, kind and reason.
    pub latest: Vec<(u64, String, String)>,
    /// The results.
    pub outputs: Vec<Output>,
}

/// Time of workers in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Time {
    /// For attempts that gave a result.
    pub used: f64,
    /// For attempts that failed.
    pub lost: f64,
    /// Without a program.
    pub idle: f64,
    /// Worker time of a fixed cluster, in seconds.
    pub fixed: f64,
}

/// One result of all points.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its unit; empty without one.
    pub unit: String,
    /// All its values.
    pub values: Vec<f64>,
    /// It against each variable, the variable that matters most first.
    pub scatter: Vec<Scatter>,
    /// How much each variable matters.
    pub sensitivity: Result<Bars, String>,
}

impl Default for Output {
    fn default() -> Self {
        let (name, unit, values, scatter) = Default::default();
        Self { name, unit, values, scatter, sensitivity: Err(String::new()) }
    }
}

/// A result against a variable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scatter {
    /// The variable.
    pub variable: String,
    /// Texts that the variable's values are the numbers of; empty where it has numbers itself.
    pub words: Vec<String>,
    /// Pairs of the variable's value and the result.
    pub points: Vec<(f64, f64)>,
}

/// Measures of sensitivity.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// Results that they come from.
    pub used: u64,
    /// Names of the measures.
    pub measures: Vec<String>,
    /// A variable, and for each measure its value with the ends of its interval, if it has them.
    pub rows: Vec<(String, Vec<Option<Bar>>)>,
}

/// A value with the ends of its interval.
pub type Bar = (f64, Option<(f64, f64)>);

/// An output, drawn.
struct Drawn {
    name: String,
    unit: String,
    histogram: String,
    figures: Vec<(&'static str, String)>,
    scatter: Vec<String>,
    thirds: Vec<[String; 4]>,
    bars: String,
    used: u64,
    measures: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    why: String,
}

#[derive(Template)]
#[template(path = "campaign.html")]
struct Page<'a> {
    campaign: &'a Campaign,
    version: &'a str,
    progress: String,
    steps: Vec<[String; 2]>,
    time: String,
    times: Vec<[String; 3]>,
    saved: String,
    failures: String,
    outputs: Vec<Drawn>,
}

/// The page for a campaign.
///
/// # Panics
/// Never: rendering into a string has no way to fail.
#[must_use]
pub fn campaign(campaign: &Campaign) -> String {
    let plots: usize = campaign.outputs.iter().map(|output| output.scatter.len()).sum();
    let most = (DOTS / plots.max(1)).clamp(FEWEST, MOST);
    let unit = Unit::of(campaign.progress.last().map_or(0.0, |(at, _)| *at));
    let workers = Unit::of(campaign.time.used + campaign.time.lost + campaign.time.idle);
    let page = Page {
        campaign,
        version: env!("CARGO_PKG_VERSION"),
        progress: pictures::progress(campaign, unit),
        steps: steps(&campaign.progress, unit),
        time: pictures::time(campaign.time, workers),
        times: times(campaign.time, workers),
        saved: saved(campaign.time),
        failures: pictures::failures(&campaign.failures),
        outputs: campaign.outputs.iter().map(|output| drawn(output, most)).collect(),
    };
    page.render().expect("rendering into a string cannot fail")
}

/// A unit of time that gives numbers which people read.
#[derive(Debug, Clone, Copy)]
struct Unit {
    seconds: f64,
    name: &'static str,
}

impl Unit {
    fn of(seconds: f64) -> Self {
        let (seconds, name) = match seconds {
            s if s < 300.0 => (1.0, "s"),
            s if s < 4.0 * 3600.0 => (60.0, "min"),
            s if s < 96.0 * 3600.0 => (3600.0, "h"),
            _ => (86400.0, "days"),
        };
        Self { seconds, name }
    }

    fn number(self, seconds: f64) -> String {
        format::number(seconds / self.seconds)
    }
}

/// When tenths of the results were there.
fn steps(progress: &[(f64, f64)], unit: Unit) -> Vec<[String; 2]> {
    let last = progress.last().map_or(0.0, |(_, count)| *count);
    let step = |tenth: u32| {
        let (at, count) = progress.iter().find(|(_, count)| *count >= last * f64::from(tenth) / 10.0)?;
        Some([format!("{count:.0}"), format!("{} {}", unit.number(*at), unit.name)])
    };
    let mut steps: Vec<[String; 2]> = (1..=10).filter_map(step).collect();
    steps.dedup();
    steps
}

fn times(time: Time, unit: Unit) -> Vec<[String; 3]> {
    let all = time.used + time.lost + time.idle;
    let row = |name: &str, seconds: f64| {
        let share = if all > 0.0 { format::percent(seconds / all) } else { String::new() };
        [name.to_owned(), format!("{} {}", unit.number(seconds), unit.name), share]
    };
    vec![
        row("for results", time.used),
        row("lost to failures", time.lost),
        row("idle", time.idle),
        row("all of it", all),
        row("a fixed number of workers", time.fixed),
    ]
}

fn saved(time: Time) -> String {
    let all = time.used + time.lost + time.idle;
    if all <= 0.0 || time.fixed <= 0.0 {
        return String::new();
    }
    let share = all / time.fixed;
    if share > 0.995 {
        return "Workers were needed all the time: a fixed number of them would have cost the same.".to_owned();
    }
    format!(
        "A fixed cluster of the greatest number of workers would have cost {}; workers that come and go took {} less.",
        format::ratio(1.0 / share),
        format::percent(1.0 - share)
    )
}

fn drawn(output: &Output, most: usize) -> Drawn {
    let (used, measures, rows, bars, why) = match &output.sensitivity {
        Ok(bars) => {
            let cell = |bar: &Option<Bar>| bar.as_ref().map_or_else(|| "–".to_owned(), cell);
            let rows = bars.rows.iter().map(|(name, row)| (name.clone(), row.iter().map(cell).collect()));
            (bars.used, bars.measures.clone(), rows.collect(), pictures::bars(&output.name, bars), String::new())
        }
        Err(why) => (0, Vec::new(), Vec::new(), String::new(), why.clone()),
    };
    Drawn {
        name: output.name.clone(),
        unit: output.unit.clone(),
        histogram: pictures::histogram(output),
        figures: figures(&output.values),
        scatter: output.scatter.iter().map(|scatter| pictures::scatter(output, scatter, most)).collect(),
        thirds: output.scatter.iter().map(thirds).collect(),
        bars,
        used,
        measures,
        rows,
        why,
    }
}

fn cell((value, interval): &Bar) -> String {
    match interval {
        Some((low, high)) => format!("{value:.3} [{low:.3}, {high:.3}]"),
        None => format!("{value:.3}"),
    }
}

fn figures(values: &[f64]) -> Vec<(&'static str, String)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() {
        return Vec::new();
    }
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let square = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let deviation = if sorted.len() > 1 { (square / (count - 1.0)).sqrt() } else { 0.0 };
    vec![
        ("results", sorted.len().to_string()),
        ("mean", format::number(mean)),
        ("standard deviation", format::number(deviation)),
        ("least", format::number(sorted[0])),
        ("5 % are below", format::number(quantile(&sorted, 0.05))),
        ("median", format::number(quantile(&sorted, 0.5))),
        ("5 % are above", format::number(quantile(&sorted, 0.95))),
        ("greatest", format::number(sorted[sorted.len() - 1])),
    ]
}

/// A quantile of sorted values, which there are.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - place.floor())
}

/// The mean result where a variable is low, in the middle and high: a scatter plot in numbers.
fn thirds(scatter: &Scatter) -> [String; 4] {
    let mut points = scatter.points.clone();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let length = points.len();
    let third = |number: usize| {
        let part = &points[length * number / 3..length * (number + 1) / 3];
        let mean = part.iter().map(|(_, result)| result).sum::<f64>() / part.len() as f64;
        if part.is_empty() { "–".to_owned() } else { format::number(mean) }
    };
    [scatter.variable.clone(), third(0), third(1), third(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_text_and_few_results_are_no_fault() {
        let bad = "\"><script>alert(1)</script>".to_owned();
        let output = Output {
            name: bad.clone(),
            unit: bad.clone(),
            values: vec![1.0],
            scatter: vec![Scatter { variable: bad.clone(), words: vec![bad.clone()], points: vec![(0.0, 1.0)] }],
            sensitivity: Err(bad.clone()),
        };
        let page = campaign(&Campaign {
            name: bad.clone(),
            state: bad.clone(),
            facts: vec![(bad.clone(), bad.clone())],
            failures: vec![(bad.clone(), 1)],
            latest: vec![(1, bad.clone(), bad)],
            outputs: vec![output, Output { sensitivity: Ok(Bars::default()), ..Output::default() }],
            ..Campaign::default()
        });
        assert!(!page.contains("<script>"), "{page}");
        assert!(!page.contains("NaN"), "{page}");
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert!((quantile(&[1.0, 2.0, 4.0], 0.75) - 3.0).abs() < 1e-12);
        assert!((quantile(&[7.0], 0.05) - 7.0).abs() < 1e-12);
    }

    #[test]
    fn what_elastic_workers_save_is_said() {
        let time = Time { used: 40.0, lost: 5.0, idle: 5.0, fixed: 100.0 };
        assert!(saved(time).contains("cost 2×") && saved(time).contains("50"), "{}", saved(time));
        assert!(saved(Time { fixed: 50.0, ..time }).contains("the same"));
    }
}

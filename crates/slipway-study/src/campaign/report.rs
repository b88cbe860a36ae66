//! A campaign's page, from its folder alone.

use slipway_campaign::sensitivity::{Analysis, Estimate, Measures, Named};
use slipway_campaign::value::Value;
use slipway_coordinator::store::{State, Stint, Store as _};
use slipway_measure::report::{self, Bar, Bars, Campaign, Output, Scatter, Time};

use super::{CampaignError, Standing, Study, results};

/// Points of the curve of progress.
const STEPS: usize = 500;
/// Most variables that an output is drawn against: those that matter most.
const DRAWN: usize = 12;
/// Most outputs that are drawn against variables.
const OUTPUTS: usize = 12;
/// Results whose points are drawn: an even choice of all.
const DOTS: u64 = 4000;
/// Results that are read at once.
const PAGE: usize = 1000;

/// Numbers of results by seconds.
type Curve = Vec<(f64, f64)>;

/// The HTML page of a campaign.
///
/// # Errors
/// Where its queue cannot be read.
pub fn page(study: &Study) -> Result<String, CampaignError> {
    let standing = Standing::of(study)?;
    let store = results::store(study)?;
    let stints = store.stints()?;
    let (progress, breaks) = progress(study, &stints)?;
    let kinds = store.kinds()?;
    let word = |kind| serde_json::to_value(kind).ok().and_then(|word| Some(word.as_str()?.to_owned()));
    let latest = standing
        .failures
        .iter()
        .map(|point| (point.point, point.failure.and_then(word).unwrap_or_default(), point.reason()));
    let spent = standing.seconds;
    let campaign = Campaign {
        name: standing.campaign.clone(),
        state: state(&standing),
        facts: facts(study, &standing, &stints),
        progress,
        breaks,
        time: Time { used: spent.used, lost: spent.lost, idle: spent.idle, fixed: spent.fixed },
        failures: kinds.into_iter().map(|(kind, count)| (word(kind).unwrap_or_default(), count)).collect(),
        latest: latest.collect(),
        outputs: outputs(study, standing.counts.done)?,
    };
    Ok(report::campaign(&campaign))
}

fn state(standing: &Standing) -> String {
    let counts = standing.counts;
    let state = match (standing.state, standing.is_over()) {
        (State::Cancelled, _) => ", cancelled",
        (_, true) => "",
        (State::Paused, _) => ", paused",
        (State::Running, _) => ", not all have ended",
    };
    let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
    format!("{} of {} points have a result{failed}{state}", counts.done, counts.points)
}

fn facts(study: &Study, standing: &Standing, stints: &[Stint]) -> Vec<(String, String)> {
    let campaign = &study.campaign;
    let names: Vec<Value> =
        campaign.variables.iter().map(|variable| Value::Text(format!("{{{}}}", variable.name))).collect();
    let command: Vec<String> = campaign.run.command.iter().map(|word| word.fill(&names)).collect();
    let began =
        stints.first().map(|stint| std::time::UNIX_EPOCH + std::time::Duration::from_secs_f64(stint.began.max(0.0)));
    let elapsed: f64 = stints.iter().map(|stint| stint.elapsed).sum();
    let facts = [
        ("program", command.join(" ")),
        ("variables", campaign.variables.len().to_string()),
        ("seed", campaign.seed.to_string()),
        ("began", began.map_or_else(String::new, |at| humantime::format_rfc3339_seconds(at).to_string())),
        ("runs", format!("{}, {elapsed:.0} s together", stints.len())),
        ("workers", format!("{} at most", stints.iter().map(|stint| stint.most).max().unwrap_or(0))),
        ("folder", standing.folder.display().to_string()),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The number of results over the time of runs: time without a coordinator is left out. Beside it, where runs end.
fn progress(study: &Study, stints: &[Stint]) -> Result<(Curve, Vec<f64>), CampaignError> {
    let mut begins = Vec::with_capacity(stints.len());
    let mut total = 0.0;
    for stint in stints {
        begins.push((stint.began, total));
        total += stint.elapsed;
    }
    let store = results::store(study)?;
    let every = (store.counts()?.done / STEPS as u64).max(1);
    let (mut line, mut count, mut after) = (vec![(0.0, 0.0)], 0_u64, 0);
    let mut last = None;
    loop {
        let page = store.results(after, PAGE)?;
        let Some(end) = page.last() else { break };
        after = end.seq;
        for row in page {
            count += 1;
            // The run that it came in: the last one that had begun.
            let (began, before) = begins.iter().rfind(|(began, _)| *began <= row.at).copied().unwrap_or((row.at, 0.0));
            last = Some((before + row.at - began, count as f64));
            if count.is_multiple_of(every) {
                line.extend(last);
            }
        }
    }
    line.extend(last);
    Ok((line, begins.into_iter().skip(1).map(|(_, at)| at).collect()))
}

fn outputs(study: &Study, done: u64) -> Result<Vec<Output>, CampaignError> {
    let variables = &study.campaign.variables;
    let first = 1 + variables.len();
    let mut outputs: Vec<Output> = Vec::new();
    for (index, output) in study.campaign.outputs.iter().enumerate() {
        let (name, unit) = (output.name.clone(), output.unit.clone());
        let sensitivity = match results::analyse(study, index)? {
            Ok(analysis) => Ok(bars(analysis)),
            Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
        };
        outputs.push(Output { name, unit, sensitivity, ..Output::default() });
    }
    let varied: Vec<usize> = (0..variables.len()).filter(|index| variables[*index].distribution.varies()).collect();
    for output in outputs.iter_mut().take(OUTPUTS) {
        output.scatter = varied
            .iter()
            .map(|index| Scatter { variable: variables[*index].name.clone(), ..Scatter::default() })
            .collect();
    }
    let every = (done / DOTS).max(1);
    let mut row = 0_u64;
    results::sample::<CampaignError>(study, &mut |cells| {
        let is_drawn = row.is_multiple_of(every);
        row += 1;
        for (index, output) in outputs.iter_mut().enumerate() {
            let Some(value) = cells[first + index].as_ref().and_then(Value::number) else { continue };
            output.values.push(value);
            for (scatter, variable) in output.scatter.iter_mut().zip(&varied).filter(|_| is_drawn) {
                if let Some(input) = &cells[1 + variable] {
                    let input = place(scatter, input);
                    scatter.points.push((input, value));
                }
            }
        }
        Ok(())
    })?;
    for output in &mut outputs {
        if let Ok(bars) = &output.sensitivity {
            let rank = |name: &str| bars.rows.iter().position(|(variable, _)| variable == name).unwrap_or(usize::MAX);
            output.scatter.sort_by_key(|scatter| rank(&scatter.variable));
        }
        output.scatter.truncate(DRAWN);
    }
    Ok(outputs)
}

/// The place of a variable's value on its axis: a number, or the number of a text.
fn place(scatter: &mut Scatter, value: &Value) -> f64 {
    if let (Some(number), true) = (value.number(), scatter.words.is_empty()) {
        return number;
    }
    let text = value.to_string();
    let place = scatter.words.iter().position(|word| *word == text).unwrap_or_else(|| {
        scatter.words.push(text);
        scatter.words.len() - 1
    });
    place as f64
}

/// Measures for bars, the variable that matters most first.
fn bars(Analysis { used, measures, .. }: Analysis) -> Bars {
    let some = |estimate: Estimate| Some((estimate.value, Some((estimate.low, estimate.high))));
    let plain = |value: f64| Some((value, None));
    let (names, mut rows) = match measures {
        Measures::Morris(effects) => {
            (["μ*: mean effect", "σ: its deviation"], rows(effects, |of| [some(of.mu_star), plain(of.sigma)]))
        }
        Measures::Variance { variables, .. } => {
            (["S1: alone", "ST: with interactions"], rows(variables, |of| [some(of.first), some(of.total)]))
        }
        Measures::Fast(variables) => {
            (["S1: alone", "ST: with interactions"], rows(variables, |of| [plain(of.first), plain(of.total)]))
        }
        Measures::Sample { variables, .. } => {
            (["rank correlation", "S1: alone"], rows(variables, |of| [some(of.spearman), some(of.first)]))
        }
    };
    let weight = |row: &(String, Vec<Option<Bar>>)| row.1[0].map_or(0.0, |(value, _)| value.abs());
    rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    Bars { used, measures: names.map(str::to_owned).to_vec(), rows }
}

fn rows<T>(list: Vec<Named<T>>, bars: impl Fn(T) -> [Option<Bar>; 2]) -> Vec<(String, Vec<Option<Bar>>)> {
    list.into_iter().map(|Named { name, of }| (name, bars(of).to_vec())).collect()
}

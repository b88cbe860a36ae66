//! `slipway campaign run`

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;
use slipway_campaign::model::Place;
use slipway_coordinator::Summary;
use slipway_coordinator::store::State;
use slipway_study::campaign::results::{self, Figure};
use slipway_study::campaign::{self, Study, tables};

use super::number::number;
use super::{best, read};
use crate::context::{Context, DryRun};
use crate::events::{Steps, say};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};

/// Rows of a dry run.
const SHOWN: u64 = 10;

/// Run a campaign, or go on with one that was interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ctrl-C lets the points that run end, and gives out no more. A second Ctrl-C ends
them; they run again when the campaign goes on. The exit code is 5 where points
failed with all their attempts.

Examples:
  slipway campaign run                       campaign.yaml in this folder
  slipway campaign run --workers 4 study.yaml
  slipway campaign run --dry-run             the first points, and their values")]
pub(super) struct Args {
    /// Campaign file, or the folder of a campaign to go on with
    #[arg(default_value = "campaign.yaml")]
    file: PathBuf,
    /// Most workers at once [default: the file's, or as many as processors and memory allow]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Ran {
    campaign: String,
    folder: PathBuf,
    #[serde(flatten)]
    summary: Summary,
    outputs: Vec<Figure>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let study = if self.file.is_dir() { Study::open(&self.file)? } else { read(&self.file)? };
        study.check()?;
        if self.dry_run.dry_run {
            return dry(context, &study);
        }
        // Workers elsewhere need it there, and say so.
        if study.campaign.workers.place == Place::Here {
            labs::need_privilege()?;
        }
        let machine = context.machine()?;
        let mut steps = Steps::new(&context.global);
        let mut closing = false;
        let mut batch = None;
        let summary = campaign::run(&machine, &study, self.workers, &mut |event| {
            if let slipway_study::Event::Points(progress) = event {
                if progress.closing && !std::mem::replace(&mut closing, true) {
                    say(&context.global, "points that run will end; Ctrl-C again ends them now");
                }
                if let Some(step) = progress.step.filter(|step| batch.replace(step.batch) != Some(step.batch))
                    && let Some(text) = best::step(&study.campaign, &step)
                {
                    say(&context.global, &text);
                }
            }
            steps.show(event);
        });
        steps.finish();
        let summary = summary?;
        if let Err(error) = tables::update(&study) {
            say(&context.global, &format!("the tables of results are not up to date, and a query brings them there: {error}"));
        }
        let ran = Ran {
            campaign: study.campaign.name.clone(),
            folder: study.folder().to_owned(),
            summary,
            outputs: results::figures(&study)?,
        };
        context.answer(&ran, text)?;
        Ok(match ran.summary {
            Summary { interrupted: true, .. } => Exit::Program(130),
            Summary { counts, .. } if counts.failed > 0 => Exit::Strained,
            Summary { .. } => Exit::Success,
        })
    }
}

fn text(ran: &Ran) -> String {
    let Ran { campaign, folder, summary, outputs } = ran;
    let counts = summary.counts;
    let mut text = format!("campaign {campaign}: {} of {} points done", counts.done, counts.points);
    if counts.failed > 0 {
        let _ = write!(text, ", {} failed (`slipway campaign points --state failed` says why)", counts.failed);
    }
    if summary.state == State::Cancelled {
        text.push_str(", cancelled");
    } else if counts.waiting > 0 {
        let _ = write!(text, ", {} wait for the next `slipway campaign run`", counts.waiting);
    }
    let time = summary.workers;
    let _ = write!(
        text,
        "\ntook {:.1} s; workers: {:.1} s of points, {:.1} s of failed attempts, {:.1} s idle (always {:.1} s with all)\n",
        summary.elapsed, time.used, time.lost, time.idle, time.fixed
    );
    if !outputs.is_empty() {
        text.push('\n');
        text.push_str(&view::table(
            ["OUTPUT", "RESULTS", "MEAN", "DEVIATION", "LEAST", "GREATEST"],
            outputs.iter().map(|figure| {
                let name = if figure.unit.is_empty() {
                    figure.name.clone()
                } else {
                    format!("{} [{}]", figure.name, figure.unit)
                };
                let numbers = [figure.mean, figure.deviation, figure.least, figure.greatest].map(number);
                let [mean, deviation, least, greatest] = numbers;
                [name, figure.count.to_string(), mean, deviation, least, greatest]
            }),
        ));
    }
    let _ = writeln!(text, "\nresults are in {}", folder.display());
    text
}

/// Shows the first points.
fn dry(context: &Context, study: &Study) -> Result<Exit, Failure> {
    let names: Vec<&str> = study.campaign.variables.iter().map(|variable| variable.name.as_str()).collect();
    let shown = if study.plan.is_search() { study.plan.lead() } else { study.plan.len().min(SHOWN) };
    let points: Vec<_> = (0..shown).map(|point| study.plan.point(point)).collect();
    let rows: Vec<_> = points
        .iter()
        .map(|values| names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect())
        .collect::<Vec<serde_json::Map<_, _>>>();
    let answer = json!({"campaign": study.campaign.name, "points": study.plan.len(), "first": rows, "dry_run": true});
    context.answer(&answer, |_| {
        if let Some(search) = study.campaign.search() {
            let (word, batches) = (search.method.word(), search.batches());
            let baseline = if study.plan.lead() > 0 { "the baseline, then " } else { "" };
            return format!(
                "{baseline}{} points at most, in {batches} batches that {word} chooses as results come\n",
                search.points
            );
        }
        let first = if study.plan.lead() > 0 { "the baseline, and the first" } else { "the first" };
        let mut text = format!("{} points; {first}:\n", study.plan.len());
        let _ = writeln!(text, "{}", names.join(","));
        for values in &points {
            let words: Vec<String> = values.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "{}", words.join(","));
        }
        text
    })?;
    Ok(Exit::Success)
}

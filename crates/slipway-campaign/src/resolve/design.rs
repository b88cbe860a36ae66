//! The design of the experiment.

use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};

use super::{MOST, search};
use crate::file::{Design as Written, Fast, Lhs, Morris, Saltelli, Settings, Word};
use crate::model::{Design, Distribution, Method, Variable};

/// Levels of a continuous variable where the file gives none.
const LEVELS: u32 = 3;

pub(super) fn design(
    written: Option<&Spanned<Written>>,
    variables: &[Variable],
    base_dir: &Path,
    report: &mut Report,
) -> Design {
    let varied = variables.iter().any(|variable| !matches!(variable.distribution, Distribution::Fixed(_)));
    let Some(written) = written else { return Design::Repeat { points: 1 } };
    let design = match &written.value {
        Written::Word(Word::Grid) => Some(Design::Grid { levels: LEVELS }),
        Written::Word(Word::Oat) => Some(Design::Oat { levels: LEVELS }),
        Written::Settings(settings) => {
            let in_doubt = report.touches(written.whole);
            one(settings, written.at, in_doubt, base_dir, report)
        }
    };
    let design = design.unwrap_or(Design::Repeat { points: 1 });
    if !varied && !matches!(design, Design::Repeat { .. } | Design::List { .. }) {
        report.add(
            written.at,
            "no variable has more than one value",
            "add `variables:`, or write `design: {repeat: N}`",
        );
    }
    design
}

/// The one design that is written.
fn one(settings: &Settings, at: Span, in_doubt: bool, base_dir: &Path, report: &mut Report) -> Option<Design> {
    let found = [
        settings.grid.as_ref().map(|of| Design::Grid { levels: count(of.at, of.value.0, report) }),
        settings.oat.as_ref().map(|of| Design::Oat { levels: count(of.at, of.value.0, report) }),
        settings.random.as_ref().map(|of| Design::Random { points: count(of.at, of.value.0, report) }),
        settings.sobol.as_ref().map(|of| Design::Sobol { points: count(of.at, of.value.0, report) }),
        settings.halton.as_ref().map(|of| Design::Halton { points: count(of.at, of.value.0, report) }),
        settings.repeat.as_ref().map(|of| Design::Repeat { points: count(of.at, of.value.0, report) }),
        settings.lhs.as_ref().map(|of| {
            let (points, maximin) = match &of.value {
                Lhs::Points(points) => (*points, false),
                Lhs::Settings(of) => (of.points, of.maximin.unwrap_or(false)),
            };
            Design::Lhs { blocks: vec![count(of.at, points, report)], maximin }
        }),
        settings.morris.as_ref().map(|of| morris(of, report)),
        settings.saltelli.as_ref().map(|of| {
            let (samples, second_order) = match &of.value {
                Saltelli::Samples(samples) => (*samples, false),
                Saltelli::Settings(of) => (of.samples, of.second_order.unwrap_or(false)),
            };
            Design::Saltelli { samples: count(of.at, samples, report), second_order }
        }),
        settings.fast.as_ref().map(|of| fast(of, report)),
        settings.nsga2.as_ref().map(|of| search::generations(Method::Nsga2, of, report)),
        settings.spea2.as_ref().map(|of| search::generations(Method::Spea2, of, report)),
        settings.pso.as_ref().map(|of| search::generations(Method::Pso, of, report)),
        settings.bayesian.as_ref().map(|of| search::bayesian(of, report)),
        settings.list.as_ref().map(|path| Design::List { source: base_dir.join(&path.value) }),
    ];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (Some(design), None) => Some(design),
        (None, _) if in_doubt => None,
        (None, _) => {
            report.add(at, "the design has no size", "write for example `lhs: 200` or `grid`");
            None
        }
        _ => {
            report.add(at, "the campaign has more than one design", "keep one");
            None
        }
    }
}

fn morris(written: &Spanned<Morris>, report: &mut Report) -> Design {
    let (trajectories, levels) = match &written.value {
        Morris::Trajectories(trajectories) => (*trajectories, None),
        Morris::Settings(of) => (of.trajectories, of.levels),
    };
    let levels = levels.unwrap_or(4);
    if levels < 2 || !levels.is_multiple_of(2) {
        report.add(written.at, "Morris' grid needs an even number of levels", "write 4, 6 or 8");
    }
    Design::Morris { trajectories: count(written.at, trajectories, report), levels }
}

fn fast(written: &Spanned<Fast>, report: &mut Report) -> Design {
    let (samples, harmonics) = match &written.value {
        Fast::Samples(samples) => (*samples, None),
        Fast::Settings(of) => (of.samples, of.harmonics),
    };
    let harmonics = harmonics.unwrap_or(4);
    // Saltelli, Tarantola and Chan 1999: N > 4 M², so that the curve's frequency resolves its harmonics.
    let least = 4 * u64::from(harmonics).pow(2) + 1;
    if harmonics == 0 || samples < least {
        let message = format!("{samples} points of a curve are too few for {harmonics} harmonics");
        report.add(written.at, message, format!("write at least {}", least.max(65)));
    }
    Design::Fast { samples, harmonics }
}

fn count<N: Copy + Into<u64>>(at: Span, number: N, report: &mut Report) -> N {
    if !(1..=MOST).contains(&number.into()) {
        report.add(at, format!("a design cannot have {} of them", number.into()), format!("write 1 to {MOST}"));
    }
    number
}

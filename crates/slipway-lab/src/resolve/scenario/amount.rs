//! Amounts, fixed or drawn.

use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;

use super::Context;
use crate::change::{Change, Keys, NONE};
use crate::file::{Amount, Draw, Number, Set, Value};
use crate::resolve::mount::path;
use crate::scenario::{Drawn, Generator, Quantity, Setting};

/// The word for a duration without an end.
const ALWAYS: &str = "always";

/// Reports what a text's own reader says: what is wrong, then what to do.
pub(super) fn refuse(at: Span, message: &str, report: &mut Report) {
    let (message, help) = message.split_once("; ").unwrap_or((message, "see `slipway set --help`"));
    report.add(at, message, help);
}

/// A duration, in seconds.
pub(super) fn duration(written: &Spanned<Amount>, context: &Context, report: &mut Report) -> Option<Generator> {
    match &written.value {
        Amount::Fixed(Value(text)) if text == ALWAYS => Some(Generator::Always),
        Amount::Fixed(value) => number(value, written.at, Quantity::Time, report).map(Generator::Constant),
        Amount::Drawn(drawn) => generator(drawn, written, Quantity::Time, Some(context.base_dir), report),
    }
}

fn number(value: &Value, at: Span, quantity: Quantity, report: &mut Report) -> Option<f64> {
    quantity.read(&value.0).map_err(|message| refuse(at, &message, report)).ok()
}

/// The one distribution that is written. `base_dir` is there where a file may be.
fn generator(
    drawn: &Draw,
    written: &Spanned<Amount>,
    quantity: Quantity,
    base_dir: Option<&Path>,
    report: &mut Report,
) -> Option<Generator> {
    let Draw { uniform, exponential, weibull, lognormal, pareto, normal, trace } = drawn;
    let count = [
        uniform.is_some(),
        exponential.is_some(),
        weibull.is_some(),
        lognormal.is_some(),
        pareto.is_some(),
        normal.is_some(),
        trace.is_some(),
    ];
    if count.into_iter().filter(|is| *is).count() != 1 {
        if !report.touches(written.whole) {
            let help = "write exactly one of uniform, exponential, weibull, lognormal, pareto, normal";
            report.add(written.at, "not one distribution", help);
        }
        return None;
    }
    let mut positive = |value: &Spanned<Value>| {
        let number = number(&value.value, value.at, quantity, report)?;
        if number <= 0.0 {
            report.add(value.at, "a distribution of nothing but 0", "write more than 0");
        }
        Some(number)
    };
    let plain = |number: &Spanned<Number>| number.value.0;
    if let Some(of) = exponential {
        return Some(Generator::Exponential { mean: positive(&of.mean)? });
    }
    if let Some(of) = weibull {
        return Some(Generator::Weibull { shape: plain(&of.shape), scale: positive(&of.scale)? });
    }
    if let Some(of) = lognormal {
        return Some(Generator::LogNormal { median: positive(&of.median)?, sigma: plain(&of.sigma) });
    }
    if let Some(of) = pareto {
        return Some(Generator::Pareto { shape: plain(&of.shape), least: positive(&of.minimum)? });
    }
    if let Some(of) = normal {
        let mean = number(&of.mean.value, of.mean.at, quantity, report);
        let deviation = number(&of.deviation.value, of.deviation.at, quantity, report);
        return Some(Generator::Normal { mean: mean?, deviation: deviation? });
    }
    if let Some(file) = trace {
        let Some(base_dir) = base_dir else {
            let help = "use the event `trace: {file: …, format: csv, of: …}`";
            report.add(file.at, "a file of durations is no distribution of values", help);
            return None;
        };
        return Some(Generator::Trace(path(file, base_dir, report)?));
    }
    uniform_of(uniform.as_deref().unwrap_or_default(), written.at, quantity, report)
}

fn uniform_of(ends: &[Spanned<Value>], at: Span, quantity: Quantity, report: &mut Report) -> Option<Generator> {
    let [least, most] = ends else {
        report.add(at, "a uniform distribution lies between two values", "write two, such as `[10ms, 30ms]`");
        return None;
    };
    let from = number(&least.value, least.at, quantity, report);
    let to = number(&most.value, most.at, quantity, report);
    let (from, to) = (from?, to?);
    if from > to {
        report.add(least.at, format!("{} is more than {}", least.value.0, most.value.0), "write the smaller one first");
        return None;
    }
    Some(Generator::Uniform { least: from, most: to })
}

/// Conditions that change: of links, or of nodes.
pub(super) enum Keyed {
    Link(Setting<crate::condition::LinkConditions>),
    Node(Setting<crate::condition::Limits>),
}

pub(super) fn setting(set: &Spanned<Set>, report: &mut Report) -> Option<Keyed> {
    use crate::condition::{Limits, LinkConditions};

    let entries = &set.value.0.0;
    if entries.is_empty() {
        if !report.touches(set.whole) {
            report.add(set.at, "nothing is set", "write for example `set: {delay: 20ms}`");
        }
        return None;
    }
    let mut kinds = [false, false];
    for name in entries.iter().map(|entry| &entry.name) {
        let of = [LinkConditions::NAMES.contains(&name.value.as_str()), Limits::NAMES.contains(&name.value.as_str())];
        if of == [false, false] {
            let known: Vec<_> = LinkConditions::NAMES.iter().chain(Limits::NAMES).collect();
            let message = format!("there is no condition `{}`", name.value.chars().take(60).collect::<String>());
            report.add(name.at, message, suggest(&name.value, &known));
        }
        kinds = [kinds[0] || of[0], kinds[1] || of[1]];
    }
    match kinds {
        [true, false] => Some(Keyed::Link(keys(set, report))),
        [false, true] => Some(Keyed::Node(keys(set, report))),
        [true, true] => {
            let help = "write two events, one for the link and one for the node";
            report.add(set.at, "conditions of links and of nodes in one event", help);
            None
        }
        [false, false] => None,
    }
}

fn keys<T: Keys>(set: &Spanned<Set>, report: &mut Report) -> Setting<T> {
    let mut setting = Setting::<T>::fixed(Change::default());
    let entries = &set.value.0.0;
    for (name, amount) in entries.iter().map(|entry| (&entry.name, &entry.value)) {
        if let Some((_, why)) = T::FIXED.iter().find(|(fixed, _)| *fixed == name.value) {
            refuse(name.at, &format!("`{}` cannot change: {why}", name.value), report);
            continue;
        }
        match &amount.value {
            Amount::Fixed(Value(text)) if text.is_empty() => {
                let help = format!("write a value, or `{NONE}` to take it away");
                report.add(name.at, format!("`{}` has no value", name.value), help);
            }
            Amount::Fixed(Value(text)) => {
                if let Err(error) = setting.change.put(&name.value, text) {
                    let message = error.to_string();
                    refuse(amount.at, message.strip_prefix(&format!("{}: ", name.value)).unwrap_or(&message), report);
                }
            }
            Amount::Drawn(drawn) => match Quantity::of_key(&name.value) {
                Some(quantity) => {
                    let drawn = generator(drawn, amount, quantity, None, report);
                    let key = name.value.clone();
                    setting.drawn.extend(drawn.map(|generator| Drawn { key, quantity, generator }));
                }
                None => report.add(amount.at, format!("`{}` is not drawn", name.value), "write a value"),
            },
        }
    }
    for problem in setting.change.set.problems() {
        // A problem that another value would solve may be gone when the event is due.
        if problem.needs.is_none() {
            let place = entries.iter().find(|entry| entry.name.value == problem.key).map(|entry| entry.value.at);
            report.add(place.unwrap_or(set.at), problem.message, problem.help);
        }
    }
    setting
}

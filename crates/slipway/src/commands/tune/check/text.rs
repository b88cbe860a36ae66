//! Advice as text.

use std::fmt::Write as _;

use slipway_host::check::{Advice, Checked, Target, Verdict};
use slipway_host::facts::{Fact, Facts};
use slipway_host::rules::Effect;

use crate::view;

pub(super) fn text(facts: &Facts, checked: &Checked, assumed: &[String], all: bool) -> String {
    let Target { profile, rtt, rate, .. } = &checked.target;
    let flight = checked.target.bdp() / 1_048_576.0;
    let mut text = format!(
        "machine: {}\nprofile {}: {} Gbit/s over {} ms, {flight:.1} MiB in flight\n",
        machine(facts),
        profile.name(),
        rate / 1e9,
        rtt * 1e3,
    );
    if !assumed.is_empty() {
        let _ = writeln!(text, "assumed: {}", assumed.join(", "));
    }
    section(&mut text, checked, Verdict::Advised, "advised", advised);
    if !checked.conflicts.is_empty() {
        text.push_str("\nrules in conflict\n");
        for conflict in &checked.conflicts {
            let _ = writeln!(
                text,
                "  {}: {} wants `{}`, which {} does not accept",
                conflict.key, conflict.rule, conflict.want, conflict.against
            );
        }
    }
    cannot_tell(&mut text, checked);
    if all {
        section(&mut text, checked, Verdict::Good, "good", good);
        section(&mut text, checked, Verdict::NotApplicable, "does not apply", reason);
    }
    let count = |verdict| checked.count(verdict);
    let _ = writeln!(
        text,
        "\n{} advised, {} good, {} cannot tell, {} not for this machine or use",
        count(Verdict::Advised),
        count(Verdict::Good),
        count(Verdict::CannotTell),
        count(Verdict::NotApplicable),
    );
    next(&mut text, checked);
    text
}

/// The machine in a line, so that nobody takes a recording for another.
fn machine(facts: &Facts) -> String {
    let (system, cpu) = (&facts.system, &facts.cpu);
    let model: Vec<&str> = [&system.vendor, &system.product].into_iter().filter_map(|fact| fact.known().map(String::as_str)).collect();
    let kind = match (system.is_container, system.is_virtual.known()) {
        (true, _) => Some("a container"),
        (false, Some(true)) => Some("virtual"),
        _ => None,
    };
    let links = facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true)).map(|nic| match nic.speed.known() {
        Some(speed) => format!("{} with {} Gbit/s", nic.name, speed / 1e9),
        None => nic.name.clone(),
    });
    let parts = [
        (!model.is_empty()).then(|| model.join(" ")),
        kind.map(str::to_owned),
        system.kernel.known().map(|kernel| format!("kernel {kernel}")),
        cpu.online.known().map(|cpus| view::count(cpus.0.len(), "processor")),
    ];
    parts.into_iter().flatten().chain(links).collect::<Vec<_>>().join(", ")
}

/// The next steps: who follows the advice, and how anybody sees whether it helps.
fn next(text: &mut String, checked: &Checked) {
    let advised: Vec<&Advice> = checked.advised().collect();
    let Some(first) = advised.iter().find(|advice| advice.key.is_some()) else {
        if !advised.is_empty() {
            text.push_str("Hint: `slipway tune rules RULE` gives the source of an advice\n");
        }
        return;
    };
    let by_hand = advised.iter().filter(|advice| advice.key.is_none()).count();
    let _ = writeln!(text, "{} for `slipway tune apply`, {by_hand} by hand", advised.len() - by_hand);
    let _ = writeln!(
        text,
        "Hint: with the same --rtt and --rate, `slipway tune apply --group {group} --dry-run` plans a group, \
         `slipway tune try --group {group} --peer HOST` measures whether it helps; `slipway tune rules {rule}` gives a source",
        group = first.group,
        rule = first.rule,
    );
}

/// Rules whose facts are missing, by what is missing: that is one thing to mend.
fn cannot_tell(text: &mut String, checked: &Checked) {
    let unknown = checked.advices.iter().filter(|advice| advice.verdict == Verdict::CannotTell);
    let mut causes: Vec<(String, Vec<&str>)> = Vec::new();
    for advice in unknown {
        let on = if advice.subject == "machine" { String::new() } else { format!(" ({})", advice.subject) };
        let cause = format!("{}{on}", value(advice.reason.as_ref()));
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, rules)) => rules.push(&advice.rule),
            None => causes.push((cause, vec![&advice.rule])),
        }
    }
    if !causes.is_empty() {
        text.push_str("\ncannot tell\n");
    }
    for (cause, rules) in causes {
        let _ = writeln!(text, "  {cause}\n    {}", rules.join(", "));
    }
}

/// Advices of one verdict, by group. The group of the advice that changes most comes first; one rule's advices on many like
/// things are one.
fn section(text: &mut String, checked: &Checked, verdict: Verdict, heading: &str, show: fn(&Advice, &str) -> String) {
    let advices: Vec<&Advice> = checked.advices.iter().filter(|advice| advice.verdict == verdict).collect();
    let mut groups: Vec<&str> = Vec::new();
    for advice in &advices {
        if !groups.contains(&advice.group.as_str()) {
            groups.push(&advice.group);
        }
    }
    if !groups.is_empty() {
        let _ = write!(text, "\n{heading}\n");
    }
    for group in groups {
        let _ = writeln!(text, "  {group}");
        let mut shown: Vec<(&Advice, Vec<String>)> = Vec::new();
        for advice in advices.iter().filter(|advice| advice.group == group) {
            let same = |(other, _): &&mut (&Advice, Vec<String>)| {
                other.rule == advice.rule && other.want == advice.want && other.reason == advice.reason
            };
            match shown.iter_mut().find(same) {
                Some((_, subjects)) => subjects.push(advice.subject.clone()),
                None => shown.push((advice, vec![advice.subject.clone()])),
            }
        }
        for (advice, subjects) in shown {
            let subjects = if subjects.len() > 3 {
                format!("{} and {} more", subjects[0], subjects.len() - 1)
            } else {
                subjects.join(", ")
            };
            text.push_str(&show(advice, &subjects));
        }
    }
}

fn value(value: Option<&String>) -> &str {
    value.map_or("?", String::as_str)
}

fn advised(advice: &Advice, subjects: &str) -> String {
    let (is, want) = (value(advice.is.as_ref()), value(advice.want.as_ref()));
    let what = advice.key.as_ref().map_or_else(|| advice.title.clone(), ToString::to_string);
    let on = if subjects == "machine" || advice.key.is_some() && !subjects.contains(" and ") && !subjects.contains(", ") {
        String::new()
    } else {
        format!(" ({subjects})")
    };
    let by_hand = if advice.key.is_some() { String::new() } else { format!("      By hand: {}\n", advice.how) };
    let unit = advice.key.as_ref().and_then(slipway_host::setting::Key::unit).map_or_else(String::new, |unit| format!(" {unit}"));
    let effect = match advice.effect {
        Effect::Large => "large",
        Effect::Some => "some",
        Effect::Small => "small",
    };
    format!(
        "    {}: {what}{on}\n      {is} → {want}{unit}, {effect} effect\n      {} Gain: {}. Risk: {}.\n{by_hand}",
        advice.rule, advice.why, advice.gain, advice.risk
    )
}

fn good(advice: &Advice, subjects: &str) -> String {
    format!("    {}: {} ({subjects})\n", advice.rule, value(advice.is.as_ref()))
}

fn reason(advice: &Advice, subjects: &str) -> String {
    format!("    {}: {} ({subjects})\n", advice.rule, value(advice.reason.as_ref()))
}

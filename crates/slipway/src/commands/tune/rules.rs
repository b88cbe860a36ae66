//! `slipway tune rules`

use std::path::PathBuf;

use serde::Serialize;
use slipway_document::text::printable;
use slipway_host::facts::SYSCTLS;
use slipway_host::names;
use slipway_host::rules::{Apply, BUILT_IN, Effect, Origin, Per, Profile, Rule, Rules};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// List the rules, or show one with its reason and its source
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rules are files. --yaml prints one, to begin a rule of your own from; `check`
and `rules` take a folder of them with --rules.

Examples:
  slipway tune rules
  slipway tune rules ring-rx
  slipway tune rules ring-rx --yaml > rules/my-ring.yaml
  slipway tune rules --names               facts that formulas can read")]
pub(crate) struct Args {
    /// A rule
    rule: Option<String>,
    /// Add the rules of a folder
    #[arg(long, value_name = "FOLDER")]
    rules: Option<PathBuf>,
    /// Print the file of the rule
    #[arg(long, requires = "rule", conflicts_with = "names")]
    yaml: bool,
    /// List the facts that formulas of rules can read
    #[arg(long, conflicts_with = "rule")]
    names: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    title: &'a str,
    group: &'a str,
    effect: Effect,
    profiles: &'a [Profile],
    per: Per,
    kernel: String,
    drivers: &'a [String],
    why: &'a str,
    gain: &'a str,
    risk: &'a str,
    key: Option<&'a str>,
    advice: Option<&'a str>,
    verify: &'a str,
    persist: &'a str,
    source: &'a Origin,
}

impl<'a> Answer<'a> {
    fn of(rule: &'a Rule) -> Self {
        let (key, advice) = match &rule.apply {
            Apply::Key(key) => (Some(key.as_str()), None),
            Apply::Advice(advice) => (None, Some(advice.as_str())),
        };
        Self {
            id: &rule.id,
            title: &rule.title,
            group: &rule.group,
            effect: rule.effect,
            profiles: &rule.profiles,
            per: rule.per,
            kernel: rule.kernel.to_string(),
            drivers: &rule.drivers,
            why: &rule.why,
            gain: &rule.gain,
            risk: &rule.risk,
            key,
            advice,
            verify: &rule.verify,
            persist: &rule.persist,
            source: &rule.source,
        }
    }
}

/// The built-in rules, and those of the folder.
pub(super) fn load(folder: Option<&PathBuf>) -> Result<Rules, Failure> {
    let rules = Rules::built_in()?;
    Ok(match folder {
        Some(folder) => rules.with_folder(folder)?,
        None => rules,
    })
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if self.names {
            let mut all: Vec<String> =
                [Per::Nic, Per::Irq, Per::Block].into_iter().flat_map(names::all).map(str::to_owned).collect();
            all.extend(SYSCTLS.iter().map(|name| format!("sysctl.{name}")));
            all.sort();
            all.dedup();
            context.answer(&all, |all| all.join("\n") + "\n")?;
            return Ok(Exit::Success);
        }
        let rules = load(self.rules.as_ref())?;
        let Some(id) = &self.rule else {
            let all: Vec<Answer<'_>> = rules.0.iter().map(Answer::of).collect();
            context.answer(&all, |all| list(all))?;
            return Ok(Exit::Success);
        };
        let Some(rule) = rules.0.iter().find(|rule| rule.id == *id) else {
            let known: Vec<&str> = rules.0.iter().map(|rule| rule.id.as_str()).collect();
            let help = slipway_document::suggest(id, &known);
            return Err(Failure::new(Exit::NotFound, &format!("find a rule `{id}`\nHint: {help}")));
        };
        let file = format!("rules/{id}.yaml");
        if self.yaml {
            let text = BUILT_IN.iter().find(|(name, _)| *name == file).map(|(_, text)| *text);
            let text = text.ok_or_else(|| Failure::usage(format!("print the file of `{id}`: it is one of your own")))?;
            context.print(&printable(text))?;
        } else {
            context.answer(&Answer::of(rule), one)?;
        }
        Ok(Exit::Success)
    }
}

fn list(all: &[Answer<'_>]) -> String {
    view::table(
        ["RULE", "GROUP", "KERNELS", "STATE WANTED"],
        all.iter().map(|rule| [rule.id.to_owned(), rule.group.to_owned(), rule.kernel.clone(), rule.title.to_owned()]),
    )
}

fn one(rule: &Answer<'_>) -> String {
    let profiles: Vec<&str> = rule.profiles.iter().map(|profile| profile.name()).collect();
    let mut facts = vec![
        ("rule", format!("{}: {}", rule.id, rule.title)),
        ("group", rule.group.to_owned()),
        ("profiles", profiles.join(", ")),
        ("kernels", rule.kernel.clone()),
    ];
    if !rule.drivers.is_empty() {
        facts.push(("drivers", rule.drivers.join(", ")));
    }
    facts.extend([
        ("why", rule.why.to_owned()),
        ("gain", rule.gain.to_owned()),
        ("risk", rule.risk.to_owned()),
        (if rule.key.is_some() { "setting" } else { "by hand" }, rule.key.or(rule.advice).unwrap_or_default().to_owned()),
        ("verify", rule.verify.to_owned()),
        ("persist", rule.persist.to_owned()),
        ("source", format!("{} ({})", rule.source.title, rule.source.date)),
        ("", held_against(rule.source)),
        ("", rule.source.url.clone().unwrap_or_default()),
    ]);
    view::facts(&facts)
}

/// Whether somebody has held the rule against its source.
fn held_against(source: &Origin) -> String {
    match &source.checked {
        Some(day) => format!("held against it on {day}"),
        None => "not held against it lately".to_owned(),
    }
}

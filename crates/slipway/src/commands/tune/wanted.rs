//! Settings that a caller wants, by name or as rules advise, and the plan of their change.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use slipway_host::check::Verdict;
use slipway_host::setting::{Change, Entry, Journal, Key, Machine, Owners, Plan, Scope, Wish, plan};

use super::check::Aim;
use super::{Place, Where, cell};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Settings that a caller wants, and whether they may change.
#[derive(Debug, clap::Args)]
pub(super) struct Wanted {
    /// Settings, such as `sysctl net.core.rmem_max=67108864`
    #[arg(value_name = "SETTING=VALUE", value_parser = wish, required_unless_present_any = ["rule", "group"])]
    settings: Vec<Wish>,
    /// Follow the advice of this rule; may be repeated
    #[arg(long, value_name = "RULE")]
    rule: Vec<String>,
    /// Follow the advice of this group of rules; may be repeated
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    #[command(flatten)]
    aim: Aim,
    /// Change them without a question
    #[arg(long, short)]
    yes: bool,
    /// Change settings that other tools set too, and files of theirs
    #[arg(long = "override")]
    pub(super) over: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

fn wish(text: &str) -> Result<Wish, String> {
    let (key, want) = text.split_once('=').ok_or("it has no `=`\nHint: write `sysctl net.core.rmem_max=67108864`")?;
    let key: Key = key.parse().map_err(|error: slipway_host::setting::KeyError| error.to_string())?;
    Ok(Wish { key, want: want.to_owned(), rule: "asked".to_owned(), why: "asked for on the command line".to_owned() })
}

/// The plan, and what carrying it out takes.
pub(super) struct Planned {
    pub(super) scope: Scope,
    pub(super) plan: Plan,
    /// Settings of all wishes.
    pub(super) keys: Vec<Key>,
    /// The journal; `None` where a caller who is not root only asks for the plan.
    pub(super) journal: Option<Journal>,
}

impl Wanted {
    /// Plans the change. Nothing changes.
    pub(super) fn planned(&self, dry_run: bool) -> Result<Planned, Failure> {
        let scope = Scope::find();
        // The files of a machine say nothing about a network namespace.
        let owners = match (&self.place.root, &scope) {
            (None, Scope::Namespace(_)) => Owners::nobody(),
            _ => Owners::find(self.place.root()),
        };
        let is_root = rustix::process::geteuid().is_root();
        let journal = (is_root || !dry_run).then(|| self.place.journal()).transpose()?;
        let entries: &[Entry] = journal.as_ref().map_or(&[], |journal| journal.entries());
        let wishes = self.wishes()?;
        let keys: Vec<Key> = wishes.iter().map(|wish| wish.key.clone()).collect();
        let plan = plan(&Machine, &scope, &owners, entries, wishes);
        // Advice that cannot be followed here is told, and the rest is followed. A setting that was asked for is not left out.
        if let Some(refused) = plan.refused.iter().find(|refused| self.settings.contains(&refused.wish)) {
            let account = format!("plan {}={}: {}", refused.wish.key, refused.wish.want, refused.obstacle);
            return Err(Failure::new(Exit::Unable, &account));
        }
        Ok(Planned { scope, plan, keys, journal })
    }

    /// The settings that were asked for, and those that the rules advise.
    fn wishes(&self) -> Result<Vec<Wish>, Failure> {
        let mut wishes = self.settings.clone();
        if self.rule.is_empty() && self.group.is_empty() {
            return Ok(wishes);
        }
        let checked = self.aim.check(&Where { root: None })?;
        for (words, word, what) in [(&self.rule, "rule", 0), (&self.group, "group", 1)] {
            let known = |name: &String| {
                checked.advices.iter().any(|advice| [&advice.rule, &advice.group][what] == name)
            };
            if let Some(unknown) = words.iter().find(|name| !known(name)) {
                return Err(Failure::usage(format!(
                    "find a {word} called {unknown}\nHint: `slipway tune check --all` lists rules, `slipway tune rules` their groups"
                )));
            }
        }
        let chosen = checked.advices.iter().filter(|advice| {
            advice.verdict == Verdict::Advised && (self.rule.contains(&advice.rule) || self.group.contains(&advice.group))
        });
        wishes.extend(chosen.filter_map(slipway_host::check::Advice::wish));
        Ok(wishes)
    }

    /// Whether the caller wants this plan.
    pub(super) fn agreed(&self, context: &Context, plan: &Plan) -> Result<bool, Failure> {
        if plan.changes.is_empty() {
            return Ok(true);
        }
        if self.yes && plan.takes_over() && !self.over {
            let owners = plan.changes.iter().filter_map(|change| Some((&change.wish.key, change.owners.first()?)));
            let owners: Vec<String> = owners.map(|(key, owner)| format!("{key} ({})", owner.who)).collect();
            let account = format!(
                "change settings: other tools set {} too\nHint: change it there, or add --override",
                view::listed(&owners)
            );
            return Err(Failure::usage(account));
        }
        if self.yes {
            return Ok(true);
        }
        if context.global.json || !std::io::stdin().is_terminal() {
            return Err(Failure::usage(
                "change settings: nobody can be asked here\nHint: --dry-run shows the plan, --yes agrees to it",
            ));
        }
        let mut error = std::io::stderr().lock();
        let text = slipway_document::text::printable(&plan_text(plan));
        let question = view::count(plan.changes.len(), "setting");
        write!(error, "{text}\nchange {question}? [y/N] ").map_err(Failure::io("ask"))?;
        error.flush().map_err(Failure::io("ask"))?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(Failure::io("read the answer"))?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    }
}

/// The plan as a table, then other tools' words.
pub(super) fn plan_text(plan: &Plan) -> String {
    let mut text = String::new();
    if !plan.changes.is_empty() {
        text = view::table(
            ["SETTING", "IS", "WANT", "WHY"],
            plan.changes.iter().map(|Change { wish, is, .. }| {
                [wish.key.to_string(), cell(is), cell(&wish.want), format!("{}: {}", wish.rule, wish.why)]
            }),
        );
    }
    for change in &plan.changes {
        for owner in &change.owners {
            let file = owner.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
            let value = owner.value.as_ref().map_or_else(String::new, |value| format!(", to `{value}`"));
            let _ = writeln!(text, "{} is set by {}{file}{value}", change.wish.key, owner.who);
        }
    }
    if !plan.same.is_empty() {
        let _ = writeln!(text, "{} already as wanted", are(plan.same.len()));
    }
    for refused in &plan.refused {
        let _ = writeln!(text, "left out: {}, wanted by {}: {}", refused.wish.key, refused.wish.rule, refused.obstacle);
    }
    text
}

pub(super) fn are(count: usize) -> String {
    format!("{} {}", view::count(count, "setting"), if count == 1 { "is" } else { "are" })
}

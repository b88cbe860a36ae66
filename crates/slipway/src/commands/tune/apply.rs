//! `slipway tune apply`

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use serde::Serialize;
use slipway_host::check::Verdict;
use slipway_host::setting::{
    Applied, Change, Entry, Key, Machine, Owners, Plan, Scope, Wish, apply, persist, plan, unchanged,
};

use super::check::Aim;
use super::{Place, Where, cell};
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view;

/// Change settings, after the former values are noted on disk
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command prints its plan first, and asks. Either all settings change, or
none: where the kernel refuses one, those before it get their values back. Each
value is read back. `slipway tune rollback` undoes the change, also after a
crash in the middle.

Other tools may set the same: sysctl.d, tuned, NetworkManager, systemd-networkd,
irqbalance. The plan names them, and --yes alone does not go over their word.

Examples:
  slipway tune apply 'sysctl net.ipv4.tcp_rmem=4096 131072 67108864'
  slipway tune apply 'nic eth0 ring-rx=4096' 'nic eth0 mtu=9000' --yes
  slipway tune apply 'block sda readahead=4096' --persist
  slipway tune apply 'cpu governor=performance' --dry-run
  slipway tune apply --rule tcp-receive-buffer --rtt 80ms --rate 10gbit"
)]
pub(super) struct Args {
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
    over: bool,
    /// Set them again after each reboot: sysctl.d, udev rules, tmpfiles.d, modules-load.d
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    dry_run: DryRun,
}

fn wish(text: &str) -> Result<Wish, String> {
    let (key, want) = text.split_once('=').ok_or("it has no `=`\nHint: write `sysctl net.core.rmem_max=67108864`")?;
    let key: Key = key.parse().map_err(|error: slipway_host::setting::KeyError| error.to_string())?;
    Ok(Wish { key, want: want.to_owned(), rule: "asked".to_owned(), why: "asked for on the command line".to_owned() })
}

#[derive(Serialize)]
struct Answer {
    scope: Scope,
    plan: Plan,
    /// `None` with --dry-run.
    applied: Option<Vec<Applied>>,
    /// Settings that no file can set again after a reboot, with the reason.
    lost: Vec<(Key, &'static str)>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let scope = Scope::find();
        // The files of a machine say nothing about a network namespace.
        let owners = match (&self.place.root, &scope) {
            (None, Scope::Namespace(_)) => Owners::nobody(),
            _ => Owners::find(self.place.root()),
        };
        let is_root = rustix::process::geteuid().is_root();
        let journal = (is_root || !self.dry_run.dry_run).then(|| self.place.journal()).transpose()?;
        let entries: &[Entry] = journal.as_ref().map_or(&[], |journal| journal.entries());
        let wishes = self.wishes()?;
        let keys: Vec<Key> = wishes.iter().map(|wish| wish.key.clone()).collect();
        let plan = plan(&Machine, &scope, &owners, entries, wishes);
        // Advice that cannot be followed here is told, and the rest is followed. A setting that was asked for is not left out.
        if let Some(refused) = plan.refused.iter().find(|refused| self.settings.contains(&refused.wish)) {
            let account = format!("plan {}={}: {}", refused.wish.key, refused.wish.want, refused.obstacle);
            return Err(Failure::new(Exit::Unable, &account));
        }
        let mut answer = Answer { scope, plan, applied: None, lost: Vec::new() };
        let (Some(mut journal), false) = (journal, self.dry_run.dry_run) else {
            context.answer(&answer, |answer| plan_text(&answer.plan))?;
            return Ok(Exit::Success);
        };
        if !self.agreed(context, &answer.plan)? {
            return Err(Failure::new(Exit::Failed, &"change settings: the answer was no"));
        }
        let applied = apply(&mut Machine, &mut journal, &answer.plan)?;
        if self.persist {
            answer.lost = persist(&mut journal, self.place.root(), &keys, self.over)?;
        }
        answer.applied = Some(applied);
        context.tell(&answer, |answer| outcome(answer, self.persist))?;
        Ok(Exit::Success)
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
    fn agreed(&self, context: &Context, plan: &Plan) -> Result<bool, Failure> {
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
fn plan_text(plan: &Plan) -> String {
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

fn are(count: usize) -> String {
    format!("{} {}", view::count(count, "setting"), if count == 1 { "is" } else { "are" })
}

fn outcome(answer: &Answer, persisted: bool) -> String {
    let applied = answer.applied.as_deref().unwrap_or_default();
    let mut text = String::new();
    for Applied { change, now } in applied {
        let key = &change.wish.key;
        let rounded = !unchanged(key, &change.wish.want, now);
        let note =
            if rounded { format!(" (asked for {}; the kernel rounds it)", change.wish.want) } else { String::new() };
        let _ = writeln!(text, "{key}: {} -> {now}{note}", change.is);
    }
    if !answer.plan.same.is_empty() {
        let _ = writeln!(text, "{} already as wanted", are(answer.plan.same.len()));
    }
    for (key, why) in &answer.lost {
        let _ = writeln!(text, "{key} lasts until the next reboot: {why}");
    }
    if persisted {
        text.push_str("files set these values again after a reboot\n");
    }
    text.push_str("`slipway tune rollback` restores the former values\n");
    text
}

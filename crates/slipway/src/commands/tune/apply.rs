//! `slipway tune apply`

use std::fmt::Write as _;

use serde::Serialize;
use slipway_host::setting::{
    Applied, Key, Machine, Plan, Scope, TunedProfile, apply, persist, tuned_profile, unchanged,
};

use super::wanted::{Planned, Wanted, are, plan_text};
use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;

/// Change settings, after the former values are noted on disk
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command prints its plan first, and asks. Either all settings change, or
none: where the kernel refuses one, those before it get their values back. Each
value is read back. `slipway tune rollback` undoes the change, also after a
crash in the middle.

Other tools may set the same: sysctl.d, tuned, NetworkManager, systemd-networkd,
irqbalance. The plan names them, and --yes alone does not go over their word.

With --persist, the answer names those that set a value again after Slipway's
files do. Where tuned is installed there is a profile for it too, which takes
effect with `tuned-adm profile slipway`.

Examples:
  slipway tune apply 'sysctl net.ipv4.tcp_rmem=4096 131072 67108864'
  slipway tune apply 'nic eth0 ring-rx=4096' 'nic eth0 mtu=9000' --yes
  slipway tune apply 'block sda readahead=4096' --persist
  slipway tune apply 'cpu governor=performance' --dry-run
  slipway tune apply --rule tcp-receive-buffer --rtt 80ms --rate 10gbit"
)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Set them again after each reboot: sysctl.d, udev rules, tmpfiles.d, modules-load.d, a profile of tuned
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Answer {
    scope: Scope,
    plan: Plan,
    /// `None` with --dry-run.
    applied: Option<Vec<Applied>>,
    /// Settings that no file can set again after a reboot, with the reason.
    lost: Vec<(Key, &'static str)>,
    /// The standing of Slipway's profile of tuned.
    tuned: Option<TunedProfile>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Planned { scope, plan, keys, journal } = self.wanted.planned(self.dry_run.dry_run)?;
        let mut answer = Answer { scope, plan, applied: None, lost: Vec::new(), tuned: None };
        let (Some(mut journal), false) = (journal, self.dry_run.dry_run) else {
            context.answer(&answer, |answer| {
                let later = if self.persist { overruled(&answer.plan) } else { String::new() };
                plan_text(&answer.plan) + &later
            })?;
            return Ok(Exit::Success);
        };
        if !self.wanted.agreed(context, &answer.plan)? {
            return Err(Failure::new(Exit::Failed, &"change settings: the answer was no"));
        }
        let applied = apply(&mut Machine, &mut journal, &answer.plan)?;
        if self.persist {
            answer.lost = persist(&mut journal, self.wanted.place.root(), &keys, self.wanted.over)?;
            answer.tuned = tuned_profile(&journal, self.wanted.place.root());
        }
        answer.applied = Some(applied);
        context.tell(&answer, |answer| outcome(answer, self.persist))?;
        Ok(Exit::Success)
    }
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
        text.push_str(&overruled(&answer.plan));
        text.push_str(match answer.tuned {
            Some(TunedProfile::Written) => "tuned has them as a profile: `tuned-adm profile slipway` chooses it\n",
            Some(TunedProfile::Active) => "tuned has them in its profile: `tuned-adm profile slipway` reads it again\n",
            Some(TunedProfile::Lost) => "tuned is told to use the profile slipway, which is not there\n",
            None => "",
        });
    }
    text.push_str("`slipway tune rollback` restores the former values\n");
    text
}

/// Settings that another tool sets after Slipway's files have, at each boot.
fn overruled(plan: &Plan) -> String {
    let mut text = String::new();
    for change in &plan.changes {
        for owner in change.owners.iter().filter(|owner| owner.later) {
            let value = owner.value.as_ref().map_or_else(String::new, |value| format!(" to `{value}`"));
            let file = owner.file.as_ref().map_or_else(String::new, |file| format!(": change {}", file.display()));
            let key = &change.wish.key;
            let _ = writeln!(text, "after a reboot {} sets {key}{value}, later than Slipway's files{file}", owner.who);
        }
    }
    text
}

//! `slipway move`

use std::fmt::Write as _;

use serde::Serialize;
use slipway_document::suggest;
use slipway_document::units::Seconds;
use slipway_engine::lab::Running;
use slipway_lab::id::{HostId, NodeId};
use slipway_lab::scenario::Order;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parts::{Elsewhere, option};
use crate::{labs, parts, view};

/// Move nodes that do not run to another virtual host
#[derive(Debug, clap::Args)]
#[command(override_usage = "slipway move [OPTIONS] --to <HOST> [LAB] <NODE>...", after_help = "\
The node keeps its files, its name, its addresses, its limits and the conditions
of its links. Its peers find it under the same address, on any of its networks:
the other hosts learn where it is.

A node moves while it is stopped or dead. With --stop, nodes that run are
stopped first and started again afterwards. Nodes on drivers bridge, vxlan and
fast move. The exit code is 1 where a node runs, or something ties it to its
host; the command says what.

Examples:
  slipway move demo n3 --to host2
  slipway move demo:n3 --to host2 --stop
  slipway move demo 'db*' --to rack2 --stop --grace 1min
  slipway move demo n3 --to host2 --json | jq .moved

Units of --grace: us, ms, s, min, h")]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then nodes, groups or patterns, also as LAB:NODE
    #[arg(value_names = ["LAB", "NODE"], num_args = 1.., required = true)]
    words: Vec<String>,
    /// The virtual host to move to
    #[arg(long, value_name = "HOST")]
    to: String,
    /// Stop nodes that run, and start them again on the new host
    #[arg(long)]
    stop: bool,
    /// Time that programs have to end
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "stop")]
    grace: Seconds,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Moves {
    lab: String,
    to: String,
    moved: Vec<Moved>,
    /// Nodes that are on that host already.
    unchanged: Vec<String>,
    dry_run: bool,
}

#[derive(Serialize)]
struct Moved {
    node: String,
    from: String,
    /// Whether it was stopped for this, and started again.
    restarted: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let words: Vec<String> =
            self.words.iter().flat_map(|word| word.split(':')).map(str::to_owned).collect();
        let (running, nodes) = labs::nodes(&context.root, &words)?;
        let to = host(&running, &self.to)?;
        let lab = &running.lab;
        if !context.global.part
            && let Some(failure) = self.elsewhere(&running, &nodes, context.global.json)?
        {
            return Err(failure);
        }
        let all = labs::names(lab, &nodes);
        let (unchanged, moving): (Vec<NodeId>, Vec<NodeId>) =
            nodes.into_iter().partition(|&node| lab.nodes[node].host == to);
        let mut alive = Vec::new();
        for &node in moving.iter().filter(|&&node| lab.has_here(node)) {
            let runs = ["running", "frozen"].contains(&running.row(node)?.status.as_str());
            if runs && !self.stop {
                let name = &lab.nodes[node].name;
                return Err(Failure::new(
                    Exit::Failed,
                    &format!("move node {name}: it runs\nHint: add --stop, or stop it first: `slipway stop {} {name}`", lab.name),
                ));
            }
            alive.extend(runs.then_some(node));
        }
        let moved = |node: &NodeId| Moved {
            node: lab.nodes[*node].name.clone(),
            from: lab.hosts[lab.nodes[*node].host].name.clone(),
            restarted: alive.contains(node),
        };
        let done = Moves {
            lab: lab.name.clone(),
            to: self.to.clone(),
            moved: moving.iter().map(moved).collect(),
            unchanged: labs::names(lab, &unchanged),
            dry_run: self.dry_run.dry_run,
        };
        if self.dry_run.dry_run {
            context.answer(&done, text)?;
            return Ok(Exit::Success);
        }
        if !alive.is_empty() {
            running.stop(&alive, self.grace.duration())?;
        }
        let outcome = moving.iter().try_for_each(|&node| running.relocate(node, to)).map_err(Failure::from);
        // Also of nodes that moved before: another machine may not have heard of it.
        let outcome = outcome.and_then(|()| tell(context, &running, &all, &self.to));
        // Also those that could not move: they ran before.
        if !alive.is_empty() {
            running.give(Order::Start { nodes: alive })?;
        }
        outcome?;
        context.tell(&done, text)?;
        Ok(Exit::Success)
    }
}

impl Args {
    /// Has the machine of the nodes move them, in the place of this process. `None`: they are on this machine.
    fn elsewhere(&self, running: &Running, nodes: &[NodeId], json: bool) -> Result<Option<Failure>, Failure> {
        let lab = &running.lab;
        let Some((&first, rest)) = nodes.split_first() else { return Ok(None) };
        if rest.iter().any(|&node| lab.machine_of(node) != lab.machine_of(first)) {
            let account = "move nodes of several machines at once\nHint: move those of each machine by themselves";
            return Err(Failure::usage(account));
        }
        let flags = [(json, "--json"), (self.stop, "--stop"), (self.dry_run.dry_run, "--dry-run")];
        let mut options = option("--to", Some(&self.to));
        if self.stop {
            options.extend(option("--grace", Some(self.grace.to_string())));
        }
        options.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()));
        let elsewhere = Elsewhere::find(running, first, "move", options)?;
        Ok(elsewhere.map(|elsewhere| elsewhere.instead(labs::names(lab, rest).into_iter().map(Into::into))))
    }
}

/// Has the lab's other machines know where nodes are.
fn tell(context: &Context, running: &Running, nodes: &[String], to: &str) -> Result<(), Failure> {
    let mut words = vec!["move", "--to", to, &running.lab.name];
    words.extend(nodes.iter().map(String::as_str));
    parts::answers::<serde_json::Value>(context, &running.lab, &words).map(drop)
}

/// The lab's host of that name.
fn host(running: &Running, name: &str) -> Result<HostId, Failure> {
    let lab = &running.lab;
    lab.hosts.position(|host| host.name == name).ok_or_else(|| {
        let known: Vec<&str> = lab.hosts.iter().map(|host| host.name.as_str()).collect();
        let help = suggest(name, &known);
        Failure::new(Exit::NotFound, &format!("find host `{name}` of lab `{}`\nHint: {help}", lab.name))
    })
}

fn text(done: &Moves) -> String {
    let verb = if done.dry_run { "would move" } else { "moved" };
    let line = |moved: &Moved| {
        let how = match (moved.restarted, done.dry_run) {
            (false, _) => "",
            (true, true) => ", and stop and start it for that",
            (true, false) => ", where it runs again",
        };
        format!("{verb} {} of lab {} from {} to {}{how}\n", moved.node, done.lab, moved.from, done.to)
    };
    let mut text: String = done.moved.iter().map(line).collect();
    if !done.unchanged.is_empty() {
        let _ = writeln!(text, "unchanged: {} of lab {}", view::listed(&done.unchanged), done.lab);
    }
    text
}

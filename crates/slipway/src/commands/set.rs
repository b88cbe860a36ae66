//! `slipway set`

use serde::Serialize;
use slipway_lab::change::{LinkChange, NodeChange, is_of_nodes};
use slipway_lab::model::Lab;
use slipway_lab::scenario::{Direction, LinkAction, Order, Pair};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::targets::{self, Target};
use crate::{labs, parts, short, view};

/// Set conditions of links, or limits of nodes, while the lab runs
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway set [OPTIONS] [LAB] <TARGET>... <KEY=VALUE>...",
    after_help = "\
A TARGET is the packets that a node sends through its interfaces (`n1`) or one of
them (`n1:eth0`), those that it receives (`n1:eth0/ingress`), or those that some
nodes send to others (`n1->n2`, in quotes). Nodes may be names, groups and
patterns, also as n1,n2. Other keys stay as they are; `none` takes one away.

Keys of links, as in tc-netem(8):
  delay=20ms jitter=2ms distribution=normal delay_correlation=25%
  loss=0.5%  loss='gemodel 1% 10%'  loss_correlation=25%
  corrupt=0.1% duplicate=0.1% reorder=1% reorder_correlation=25% gap=5
  rate=100mbit limit=1000 queue=100
Keys of nodes:
  cpu=50% cpu='2 cores' cpu='1200 MHz' cpu_period=10ms
  memory=512MiB memory_soft=256MiB swap=1GiB pids=100
  disk.read=20MB/s disk.write=20MB/s disk.read_iops=500 disk.write_iops=500

Examples:
  slipway set demo n1:eth0 delay=20ms loss=0.5%
  slipway set demo n1:eth0 delay=none            loss stays
  slipway set demo 'n*' --ingress rate=10mbit
  slipway set demo 'site1->site2' delay=80ms     one way
  slipway set demo n1 cpu=50% memory=1GiB"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), then targets and keys
    #[arg(value_names = ["LAB", "TARGET", "KEY=VALUE"], num_args = 1.., required = true)]
    words: Vec<String>,
    /// Packets that the nodes receive, where a target does not say it
    #[arg(long)]
    ingress: bool,
    /// Only on this network
    #[arg(long, value_name = "NETWORK")]
    network: Option<String>,
    /// Only packets that the nodes send to these
    #[arg(long, value_name = "NODES", conflicts_with = "ingress")]
    to: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

/// The answer: the keys that were set, and their targets.
#[derive(Serialize)]
struct Set {
    lab: String,
    /// As they can be written on the command line.
    targets: Vec<String>,
    change: String,
    dry_run: bool,
    /// Connections that were on the fast path.
    ended: u64,
    /// Notes on conditions that hold differently than one might expect.
    notes: Vec<String>,
}

enum Change {
    Link(LinkChange),
    Node(NodeChange),
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (running, words) = targets::lab_and_words(&context.root, &self.words)?;
        let (keys, words): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.contains('='));
        let lab = &running.lab;
        let name = &lab.name;
        if words.is_empty() {
            return Err(Failure::usage(format!(
                "set conditions: there is no target\nHint: name nodes or interfaces, as in `slipway set {name} n1:eth0 delay=20ms`"
            )));
        }
        let change = change(&keys, name)?;
        let orders = self.orders(lab, &words, &change)?;
        let mut set = Set {
            lab: name.clone(),
            targets: orders.iter().flat_map(|order| named(lab, order)).collect(),
            change: change.to_string(),
            dry_run: self.dry_run.dry_run,
            ended: 0,
            notes: Vec::new(),
        };
        let links = orders.iter().any(|order| matches!(order, Order::Links(_))).then(|| running.links()).transpose()?;
        for order in &orders {
            if let Order::Links(action) = order {
                set.notes.extend(short::of_action(lab, links.as_ref(), action));
            }
        }
        let noted = |set: &Set| set.notes.iter().fold(String::new(), |text, note| format!("{text}note: {note}\n"));
        let what = |set: &Set| format!("{} for {} of lab {}", set.change, view::listed(&set.targets), set.lab);
        if self.dry_run.dry_run {
            context.answer(&set, |set| format!("would set {}\n{}", what(set), noted(set)))?;
            return Ok(Exit::Success);
        }
        for order in orders {
            let given = parts::give(context, &running, &order)?;
            set.ended += given.connections;
            set.notes.extend(given.notes);
        }
        context.tell(&set, |set| {
            format!("set {}\n{}{}", what(set), view::ended(set.ended), noted(set))
        })?;
        Ok(Exit::Success)
    }

    fn orders(&self, lab: &Lab, words: &[&String], change: &Change) -> Result<Vec<Order>, Failure> {
        let network = targets::network(lab, self.network.as_deref())?;
        let receivers = self.to.as_ref().map(|to| lab.select(&[to])).transpose()?;
        let mut orders: Vec<Order> = Vec::new();
        for word in words {
            let target = targets::target(lab, word)?;
            orders.push(match (target, change) {
                (Target::Interfaces { nodes, interface: None, direction: None }, Change::Node(change)) => {
                    Order::Node { nodes, change: change.clone() }
                }
                (_, Change::Node(change)) => {
                    return Err(Failure::usage(format!(
                        "set {change} for `{word}`: that is a limit of nodes, and this is a link\nHint: name nodes alone, such as n1"
                    )));
                }
                (Target::Pair { from, to }, Change::Link(change)) if receivers.is_none() => {
                    LinkAction::Pair(Pair { from, to, network, change: change.clone() }).into()
                }
                (Target::Interfaces { nodes, interface: None, direction: None }, Change::Link(change))
                    if receivers.is_some() =>
                {
                    let to = receivers.clone().unwrap_or_default();
                    LinkAction::Pair(Pair { from: nodes, to, network, change: change.clone() }).into()
                }
                (Target::Interfaces { nodes, interface, direction }, Change::Link(change)) if receivers.is_none() => {
                    let interfaces = targets::interfaces(lab, &nodes, interface.as_deref(), network)?;
                    let otherwise = if self.ingress { Direction::Ingress } else { Direction::Egress };
                    let direction = direction.unwrap_or(otherwise);
                    LinkAction::Link { interfaces, direction, change: change.clone() }.into()
                }
                _ => {
                    return Err(Failure::usage(format!(
                        "set conditions for `{word}` with --to: it names the senders\nHint: name nodes alone, such as n1, or write `n1->n2` without --to"
                    )));
                }
            });
        }
        Ok(orders)
    }
}

/// Reads the keys: of links, or of nodes.
fn change(words: &[&String], lab: &str) -> Result<Change, Failure> {
    let nodes = words.iter().filter(|word| is_of_nodes(word)).count();
    let wrong = |error: slipway_lab::change::WordError| {
        Failure::usage(format!("set conditions: {error}\nHint: `slipway set --help` lists the keys"))
    };
    match nodes {
        _ if words.is_empty() => Err(Failure::usage(format!(
            "set conditions: no key is named\nHint: name a key and its value, as in `slipway set {lab} n1:eth0 delay=20ms`"
        ))),
        0 => Ok(Change::Link(LinkChange::parse(words).map_err(wrong)?)),
        all if all == words.len() => Ok(Change::Node(NodeChange::parse(words).map_err(wrong)?)),
        _ => Err(Failure::usage(
            "set conditions: some of these keys are of links, others of nodes\nHint: write a `slipway set` for each",
        )),
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link(change) => change.fmt(f),
            Self::Node(change) => change.fmt(f),
        }
    }
}

/// The targets of an order, as they can be written on the command line.
fn named(lab: &Lab, order: &Order) -> Vec<String> {
    match order {
        Order::Links(LinkAction::Link { interfaces, direction, .. }) => {
            let end = if *direction == Direction::Ingress { "/ingress" } else { "" };
            interfaces.iter().map(|&place| format!("{}{end}", lab.port_name(place))).collect()
        }
        Order::Links(LinkAction::Pair(pair)) => vec![targets::pair_named(lab, pair)],
        Order::Links(_) => Vec::new(),
        order => labs::names(lab, order.nodes()),
    }
}

//! A schedule in words.

use std::fmt;

use crate::id::NodeId;
use crate::model::Lab;
use crate::scenario::{Action, Due, Event, Kill, LinkAction, Order, Pair, Port, Schedule};

/// A schedule as `slipway play --plan` shows it.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    schedule: &'a Schedule,
    lab: &'a Lab,
}

impl Schedule {
    /// As a table: when, which entry of the file it is from, and what happens to whom.
    #[must_use]
    pub fn table<'a>(&'a self, lab: &'a Lab) -> Table<'a> {
        Table { schedule: self, lab }
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { seed, length, events } = self.schedule;
        writeln!(f, "seed {seed}, {length} long, events: {}", events.len())?;
        for Event { number, due, entry, action } in events {
            writeln!(f, "{number:>7}  {:>15}  entry {:<4} {}", due.to_string(), entry + 1, action.words(self.lab))?;
        }
        Ok(())
    }
}

impl fmt::Display for Due {
    /// Seconds, to the nanosecond where it is no whole millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match rest % 1_000_000 {
            0 => write!(f, "{seconds}.{:03}s", rest / 1_000_000),
            _ => write!(f, "{seconds}.{rest:09}s"),
        }
    }
}

impl Action {
    /// The change and its targets, in words: `set delay=20ms for what n1:eth0 sends`.
    #[must_use]
    pub fn words(&self, lab: &Lab) -> String {
        match self {
            Self::Order(order) => order.words(lab),
            Self::Restore { event } => format!("restore what event {event} changed"),
            Self::Run { nodes, command } => format!("run `{}` in {}", command.join(" "), names(lab, nodes)),
        }
    }
}

impl Order {
    /// As [`Action::words`].
    #[must_use]
    pub fn words(&self, lab: &Lab) -> String {
        let nodes = |nodes: &[NodeId]| names(lab, nodes);
        match self {
            Self::Links(action) => action.words(lab),
            Self::Node { nodes: which, change } => format!("set {change} for {}", nodes(which)),
            Self::Kill { nodes: which, how } => format!("kill {} {how}", nodes(which)),
            Self::Start { nodes: which } => format!("start {}", nodes(which)),
            Self::Freeze { nodes: which } => format!("freeze {}", nodes(which)),
            Self::Thaw { nodes: which } => format!("thaw {}", nodes(which)),
        }
    }
}

impl LinkAction {
    /// As [`Action::words`].
    #[must_use]
    pub fn words(&self, lab: &Lab) -> String {
        let nodes = |nodes: &[NodeId]| names(lab, nodes);
        let ports = |ports: &[Port]| list(ports, |port| lab.port_name(*port));
        match self {
            Self::Link { interfaces, direction, change } => {
                format!("set {change} for what {} {}", ports(interfaces), direction.verb(interfaces.len()))
            }
            Self::Pair(Pair { from, to, network, change }) => {
                let on = network.map(|network| format!(" on {}", lab.networks[network].name)).unwrap_or_default();
                format!("set {change} from {} to {}{on}", nodes(from), nodes(to))
            }
            Self::Cut { interfaces } => format!("cut {}", ports(interfaces)),
            Self::Heal { interfaces } => format!("heal {}", ports(interfaces)),
            Self::Partition { groups } => {
                let sides: Vec<_> = groups.iter().map(|group| nodes(group)).collect();
                format!("partition {}", sides.join(" | "))
            }
            Self::Join => "join all partitions".to_owned(),
        }
    }
}

fn names(lab: &Lab, nodes: &[NodeId]) -> String {
    list(nodes, |node| lab.nodes[*node].name.clone())
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graceful { grace } => write!(f, "gracefully ({grace} to end)"),
            Self::Soft => f.write_str("softly"),
            Self::Hard => f.write_str("hard"),
        }
    }
}

/// The first names, and how many more there are.
fn list<T>(items: &[T], name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<String> = items.iter().take(SHOWN).map(name).collect();
    if items.len() > SHOWN {
        names.push(format!("{} more", items.len() - SHOWN));
    }
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

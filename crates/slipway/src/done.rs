//! The account of a command that changed nodes or links.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use slipway_engine::condition::Place;
use slipway_engine::lab::Running;
use slipway_lab::id::NodeId;
use slipway_lab::model::{DriverKind, Lab};

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};

/// A change of nodes or interfaces, done or only planned.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    lab: String,
    action: &'static str,
    #[serde(skip)]
    participle: &'static str,
    #[serde(flatten)]
    which: Which,
    /// Those of them that were so already.
    unchanged: Vec<String>,
    /// Connections that were on the fast path, where it is about interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    dry_run: bool,
}

/// The names of all that were named.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Which {
    Nodes(Vec<String>),
    Interfaces(Vec<String>),
}

impl Done {
    /// `action` is a verb, `participle` what the nodes are afterwards, and `already` the statuses of nodes that it leaves as
    /// they are.
    pub(crate) fn to_nodes(
        (action, participle): (&'static str, &'static str),
        already: &[&str],
        running: &Running,
        nodes: &[NodeId],
        DryRun { dry_run }: DryRun,
    ) -> Result<Self, Failure> {
        let lab = &running.lab;
        let mut unchanged = Vec::new();
        // Other machines leave alone what is so already, and do not say so.
        for &node in nodes.iter().filter(|&&node| lab.has_here(node)) {
            let row = running.row(node)?;
            if already.contains(&row.status.as_str()) {
                unchanged.push(row.name);
            }
        }
        let which = Which::Nodes(labs::names(lab, nodes));
        Ok(Self { lab: lab.name.clone(), action, participle, which, unchanged, ended: None, dry_run })
    }

    /// `action` is a verb, `participle` what the links are afterwards; links that are `cut` to the same end stay as they are.
    pub(crate) fn to_links(
        (action, participle): (&'static str, &'static str),
        cut: bool,
        running: &Running,
        places: &[Place],
        DryRun { dry_run }: DryRun,
    ) -> Result<Self, Failure> {
        let named = |places: &[Place]| places.iter().map(|&place| running.lab.port_name(place)).collect();
        let are_cut: BTreeSet<Place> = running
            .links()?
            .interfaces
            .iter()
            .filter(|interface| interface.cut)
            .map(|interface| (interface.node, interface.slot))
            .collect();
        let so: Vec<Place> = places.iter().copied().filter(|place| are_cut.contains(place) == cut).collect();
        let (which, unchanged) = (Which::Interfaces(named(places)), named(&so));
        Ok(Self { lab: running.lab.name.clone(), action, participle, which, unchanged, ended: Some(0), dry_run })
    }

    /// Does it, unless it is only to be said, and says so. `act` gives how many fast connections ended, where it counts them.
    pub(crate) fn make<T: Into<Ended>>(
        mut self,
        context: &Context,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Exit, Failure> {
        if self.dry_run {
            context.answer(&self, |done| done.text(&format!("would {}", done.action)))?;
        } else {
            self.ended = act()?.into().0;
            context.tell(&self, |done| done.text(done.participle) + &view::ended(done.ended.unwrap_or(0)))?;
        }
        Ok(Exit::Success)
    }

    /// The targets that the command changed, and those that were so already.
    fn text(&self, what: &str) -> String {
        let Self { lab, unchanged, which: Which::Nodes(all) | Which::Interfaces(all), .. } = self;
        // A lab has up to ten thousand nodes: no list is searched for each.
        let same: BTreeSet<&String> = unchanged.iter().collect();
        let changed: Vec<String> = all.iter().filter(|name| !same.contains(name)).cloned().collect();
        let mut text = String::new();
        if !changed.is_empty() {
            text = format!("{what} {} of lab {lab}\n", view::listed(&changed));
        }
        if !unchanged.is_empty() || all.is_empty() {
            let which = if unchanged.is_empty() { "nothing".to_owned() } else { view::listed(unchanged) };
            let _ = writeln!(text, "unchanged: {which} of lab {lab}");
        }
        text
    }
}

/// Fast connections that ended with it; `None` where nobody counts.
pub(crate) struct Ended(Option<u64>);

impl From<()> for Ended {
    fn from((): ()) -> Self {
        Self(None)
    }
}

impl From<u64> for Ended {
    fn from(ended: u64) -> Self {
        Self(Some(ended))
    }
}

/// Warns of nodes whose network is their host's, and so does not die or freeze with them.
pub(crate) fn warn_of_hosts_network(lab: &Lab, nodes: &[NodeId]) {
    let on_host = |node: &&NodeId| {
        let of = lab.nodes[**node].interfaces.iter().map(|interface| lab.networks[interface.network].driver);
        of.into_iter().any(|driver| driver == DriverKind::Host)
    };
    let names = labs::names(lab, &nodes.iter().filter(on_host).copied().collect::<Vec<_>>());
    if !names.is_empty() {
        tracing::warn!(
            "on driver host, {} shares its host's network, which goes on answering and forwarding",
            view::listed(&names)
        );
    }
}

//! `slipway policy`

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use slipway_lab::id::NodeId;
use slipway_lab::model::{Lab, Network};
use slipway_lab::policy::{Rule, Verdict};
use slipway_document::units::Rate;

use crate::context::{Context, DryRun};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, parts, view};

/// Show or replace the policy: which nodes may connect over fast networks
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slipway policy [OPTIONS] [LAB] [FILE]",
    after_help = "\
A FILE is a list of rules, or a lab file, of which the command reads only
`policy`. Its rules replace all others at once, for new connections. The command
ends live connections that the rules forbid, and those that need a rate that
they cannot have as they are. Without a FILE it shows the rules in force.

Examples:
  slipway policy demo                        the rules in force
  slipway policy demo closed.yaml            others in their place
  slipway policy demo demo.yaml              those of the lab file again
  slipway policy demo closed.yaml --dry-run"
)]
pub(crate) struct Args {
    /// Lab (name or file; may be left out where one runs), and a file of rules
    #[arg(value_names = ["LAB", "FILE"], num_args = 0..=2)]
    words: Vec<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

#[derive(Serialize)]
struct Policy {
    lab: String,
    rules: Vec<Shown>,
    /// Fast connections that were ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    dry_run: bool,
}

/// A rule in the words of the lab file.
#[derive(Serialize)]
struct Shown {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
    verdict: Verdict,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rate: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u32>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let (lab, file) = match self.words.as_slice() {
            [] => (None, None),
            [file] if labs::is_file(file) => (None, Some(file)),
            [lab] => (Some(lab), None),
            [lab, file, ..] => (Some(lab), Some(file)),
        };
        let running = labs::running(&context.root, lab.map(String::as_str))?;
        let name = &running.lab.name;
        let DryRun { dry_run } = self.dry_run;
        let shown = |rules: &[Rule], ended| Policy {
            lab: name.clone(),
            rules: rules.iter().map(|rule| Shown::of(&running.lab, rule)).collect(),
            ended,
            dry_run,
        };
        let Some(file) = file else {
            context.answer(&shown(&running.policy()?, None), Policy::table)?;
            return Ok(Exit::Success);
        };
        if !running.lab.networks.iter().any(Network::keeps_policy) {
            return Err(Failure::usage(format!(
                "set the policy of lab {name}: none of its networks is fast\nHint: write `driver: fast`"
            )));
        }
        let rules = labs::source(Some(Path::new(file)))?.policy(&running.lab)?;
        if dry_run {
            context.answer(&shown(&rules, None), |policy| format!("would set the policy of lab {name}:\n{}", policy.table()))?;
        } else {
            let ended = parts::set_policy(context, &running, &rules)?;
            context.tell(&shown(&rules, Some(ended)), |policy| {
                let rules = view::count(policy.rules.len(), "rule");
                format!("lab {name} has a policy of {rules}; {} ended\n", view::count(ended, "fast connection"))
            })?;
        }
        Ok(Exit::Success)
    }
}

impl Shown {
    fn of(lab: &Lab, rule: &Rule) -> Self {
        let named = |nodes: &Option<Vec<NodeId>>| nodes.as_ref().map(|nodes| labs::names(lab, nodes));
        let ports = rule.ports.iter().map(|ports| match (ports.start(), ports.end()) {
            (from, to) if from == to => from.to_string(),
            (from, to) => format!("{from}-{to}"),
        });
        let rates = [("flow", rule.rates.flow), ("pair", rule.rates.pair), ("node", rule.rates.node)];
        let rate = |(of, rate): (&'static str, Option<Rate>)| Some((of, rate?.to_string()));
        Self {
            name: rule.name.clone(),
            from: named(&rule.from),
            to: named(&rule.to),
            ports: ports.collect(),
            verdict: rule.verdict,
            rate: rates.into_iter().filter_map(rate).collect(),
            priority: rule.priority,
            connections: rule.connections,
        }
    }

    fn limits(&self) -> String {
        let rates = self.rate.iter().map(|(of, rate)| format!("{rate} a {of}"));
        let priority = self.priority.map(|priority| format!("priority {priority}"));
        let connections = self.connections.map(|most| format!("at most {most} to each"));
        rates.chain(priority).chain(connections).collect::<Vec<_>>().join(", ")
    }
}

impl Policy {
    fn table(&self) -> String {
        if self.rules.is_empty() {
            return "no rules: everybody talks to everybody\n".to_owned();
        }
        let nodes = |nodes: &Option<Vec<String>>| nodes.as_ref().map_or_else(|| "all".to_owned(), |nodes| view::listed(nodes));
        let rows = self.rules.iter().map(|rule| {
            let verdict = if rule.verdict == Verdict::Deny { "deny" } else { "allow" };
            let ports = if rule.ports.is_empty() { "all".to_owned() } else { rule.ports.join(",") };
            [rule.name.clone(), nodes(&rule.from), nodes(&rule.to), ports, verdict.to_owned(), rule.limits()]
        });
        view::table(["RULE", "FROM", "TO", "PORTS", "VERDICT", "LIMITS"], rows.collect::<Vec<_>>())
    }
}

//! The fast path of a lab on all of its machines, as one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slipway_engine::fast::{Connection, FastReport};
use slipway_engine::lab::Running;
use slipway_lab::id::{HostId, MachineId};
use slipway_lab::model::Lab;

use crate::context::Context;
use crate::failure::Failure;
use crate::parts;

/// The fast path, from all machines that a command asks.
#[derive(Debug)]
pub(super) struct Whole {
    /// Routers and brokers, in the hosts' order.
    pub(super) report: FastReport,
    /// Connections that live, where they were asked for. One between two machines stands once.
    pub(super) flows: Option<Vec<Connection>>,
}

/// The same of one machine, from its answer to `fast status --json`.
#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    report: FastReport,
    flows: Option<Vec<Connection>>,
}

/// Something of a host, with the name of its machine where the lab has several.
#[derive(Debug, Serialize)]
pub(super) struct Placed<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a str>,
    #[serde(flatten)]
    pub(super) of: T,
}

impl<'a, T> Placed<'a, T> {
    pub(super) fn new(lab: &'a Lab, host: HostId, of: T) -> Self {
        let machine = lab.hosts.get(host).map(|host| host.machine).and_then(|machine| lab.machines.get(machine));
        Self { machine: machine.map(|machine| machine.name.as_str()), of }
    }

    /// A host's name, with its machine's where the lab has several.
    pub(super) fn host(&self, name: &str) -> String {
        match self.machine {
            Some(machine) if machine != name => format!("{name} on machine {machine}"),
            _ => name.to_owned(),
        }
    }
}

impl Whole {
    /// Asks all machines of a lab, with their connections where `flows`.
    pub(super) fn ask(context: &Context, running: &Running, flows: bool) -> Result<Self, Failure> {
        let lab = &running.lab;
        let mut words = vec!["fast", "status", &lab.name];
        words.extend(flows.then_some("--flows"));
        let there = parts::answers::<Answer>(context, lab, &words)?;
        let mut report = running.fast()?;
        let mut all = Merge::new(lab);
        // A machine none of whose nodes is on a fast network has no router, and nothing to look at.
        if flows && !running.state.routers.is_empty() {
            all.add(lab.part.machine, running.flows()?);
        }
        for (machine, answer) in there {
            report.routers.extend(answer.report.routers);
            report.brokers.extend(answer.report.brokers);
            all.add(machine, answer.flows.unwrap_or_default());
        }
        report.routers.sort_by_key(|one| one.router.host);
        report.brokers.sort_by_key(|one| one.host);
        Ok(Self { report, flows: flows.then(|| all.flows.into_values().collect()) })
    }
}

/// The connections of several machines, by their numbers.
struct Merge<'a> {
    /// Names of nodes, and their machines.
    places: BTreeMap<&'a str, MachineId>,
    flows: BTreeMap<u64, Connection>,
}

impl<'a> Merge<'a> {
    fn new(lab: &'a Lab) -> Self {
        let places = lab.nodes.enumerate().map(|(node, of)| (of.name.as_str(), lab.machine_of(node))).collect();
        Self { places, flows: BTreeMap::new() }
    }

    /// Adds those of a machine. Of a connection between two each sees an end, and the client's knows its figures.
    fn add(&mut self, machine: MachineId, flows: Vec<Connection>) {
        for flow in flows {
            let is_clients = self.places.get(flow.client.as_str()) == Some(&machine);
            if is_clients || !self.flows.contains_key(&flow.number) {
                self.flows.insert(flow.number, flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slipway_engine::fast::Path;

    use super::*;

    #[test]
    fn a_connection_between_machines_stands_once_with_its_clients_figures() {
        let text = "machines: {a: 192.0.2.1, b: 192.0.2.2}\nnetworks: {net: fast}\nnodes: {n: {count: 2}}\n";
        let lab = slipway_lab::parse("lab.yaml", text, std::path::Path::new("/")).expect("it is right");
        let flow = |number, sent| {
            let text = format!(
                "{{\"number\": {number}, \"client\": \"n2\", \"client_port\": 1, \"server\": \"n1\", \"server_port\": 2, \"path\": \"tcp\", \"sent\": {sent}}}"
            );
            serde_json::from_str::<Connection>(&text).expect("a connection")
        };
        let mut all = Merge::new(&lab);
        all.add(MachineId(0), vec![flow(1, 10), flow(2, 20)]);
        all.add(MachineId(1), vec![flow(1, 11)]);
        all.add(MachineId(0), vec![flow(1, 12)]);
        let merged: Vec<_> = all.flows.into_values().map(|flow| (flow.number, flow.path, flow.figures.sent)).collect();
        assert_eq!(merged, [(1, Path::Tcp, Some(11)), (2, Path::Tcp, Some(20))]);
    }
}

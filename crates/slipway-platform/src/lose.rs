//! Parts for which an export has no word, by kind.

use std::collections::BTreeMap;

use slipway_lab::model::{DeviceCaps, Lab};

/// Kinds of what was lost; for each how often, and of what first.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<String, (usize, String)>);

impl Kinds {
    pub(super) fn lose(&mut self, what: &str, of: &str) {
        self.0.entry(what.to_owned()).or_insert_with(|| (0, of.to_owned())).0 += 1;
    }

    pub(super) fn lines(self) -> Vec<String> {
        let line = |(what, (count, first)): (String, (usize, String))| match count {
            _ if first == "all" => what,
            1 => format!("{what} ({first})"),
            _ => format!("{what} ({first} and {} more)", count - 1),
        };
        self.0.into_iter().map(line).collect()
    }

    /// Programs in nodes, and changes of the lab.
    pub(super) fn lose_programs(&mut self, lab: &Lab) {
        for node in &lab.nodes {
            let those = [
                ("mounts", !node.mounts.is_empty()),
                ("environment", !node.env.is_empty()),
                ("kernel settings", !node.sysctls.is_empty()),
                ("capabilities", node.rules_its_network()),
                ("routing by nodes' own programs", node.own_routes()),
                ("commands of nodes", node.command.is_some()),
                ("MPI slots", node.slots != 1),
                ("sshd", node.sshd),
                ("read-only roots", node.read_only),
                ("caps of RDMA devices", node.rdma != DeviceCaps::default()),
                ("limits of processes", node.limits.pids.is_some()),
                ("sets of processors", node.limits.cpuset.is_some()),
                ("groups", node.group != node.name),
            ];
            for (what, _) in those.into_iter().filter(|(_, is)| *is) {
                self.lose(what, &node.name);
            }
        }
        let those = [
            ("the job", lab.job.is_some()),
            ("the scenario", lab.scenario.is_some()),
            ("the policy", !lab.policy.is_empty()),
            ("the seed", lab.seed != 0),
        ];
        for (what, _) in those.into_iter().filter(|(_, is)| *is) {
            self.lose(what, "all");
        }
    }

    /// Adds the placement of nodes to the losses.
    pub(super) fn lose_hosts(&mut self, lab: &Lab) {
        if lab.hosts.len() > 1 {
            self.lose("virtual hosts", "all");
        }
    }
}

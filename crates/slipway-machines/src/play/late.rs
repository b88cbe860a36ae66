//! Logs of machines whose connection was lost while they played.

use std::io;

use slipway_engine::rsh::Rsh;
use slipway_lab::id::MachineId;
use slipway_measure::play::Line;

use super::clock::now;
use super::coordinate::{Desk, LEAD};
use super::seat::Stand;
use crate::ask::each;
use crate::channel::Channel;

impl Desk<'_, '_> {
    /// Fetches the logs of machines whose connection was lost, once their parts are over by this machine's clock.
    pub(super) fn late_logs(&mut self, rsh: &Rsh, start: u64) -> io::Result<Vec<String>> {
        let lost: Vec<MachineId> =
            (0..self.seats.len()).filter(|&seat| self.seats[seat].stand == Stand::Lost).map(MachineId).collect();
        let mut alarms = Vec::new();
        if lost.is_empty() {
            return Ok(alarms);
        }
        let end = start + self.score.schedule.length.0 + LEAD;
        while self.why.is_none() && now() < end {
            self.wait(end)?;
            if self.signal.is_some() {
                self.stop("interrupted while a machine could not be reached");
            }
        }
        let lab = self.score.lab;
        let fetched = each(lost, |machine| {
            let channel = Channel::open(rsh, &lab.machines[machine]);
            (machine, channel.and_then(|mut channel| channel.log(&lab.name)))
        });
        for (machine, fetched) in fetched {
            let name = &lab.machines[machine].name;
            let lines = match fetched {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::debug!(%error, "no log of machine {name}");
                    self.missing = true;
                    self.why.get_or_insert_with(|| {
                        format!(
                            "machine {name} is out of reach and plays its part to the end by itself; `slipway play --resume {}` fetches its log",
                            lab.name
                        )
                    });
                    continue;
                }
            };
            if !matches!(lines.last(), Some(Line::End(_))) {
                self.missing = true;
                alarms.push(format!(
                    "the connection to machine {name} was lost, and its log is not whole: it plays its part to the end by itself"
                ));
            }
            // The log's first line did not come by itself.
            let known = self.seats[machine.0].lines + 1;
            for line in lines.into_iter().skip(known) {
                alarms.extend(self.take(machine, line)?);
            }
        }
        Ok(alarms)
    }
}

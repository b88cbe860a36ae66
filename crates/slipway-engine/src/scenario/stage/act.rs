//! What a player's acts come to: requests to the anchor, processes beside, control groups.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use slipway_lab::change::{Keys as _, LinkChange};
use slipway_lab::id::NodeId;
use slipway_lab::model::Job;
use slipway_lab::scenario::{Action, Kill, LinkAction, Order, Pair, Schedule};
use slipway_sys::process::ProcessId;

use super::super::ask::Asked;
use super::super::beside::{Bond, News, Teller};
use super::super::error::{Account, ActError};
use super::super::platform::Begun;
use super::{Helper, Stage};
use crate::job;
use crate::lab::freeze::Patience;
use crate::lab::{LabError, Running};
use crate::protocol::{self, CallError, Change, Lift, Operation, Pending, Prepare, Request, Settle};

impl Stage {
    /// Has the anchor put in place what the schedule will ask of links, so that an event is not late for it: of many that
    /// change the same keys of the same interfaces, for one.
    pub(in super::super) fn prepare(&self, schedule: &Schedule) {
        // What cannot be is told by the event that asks for it.
        let prepare = |order| drop(protocol::ask(&self.running.dir().control(), Prepare { order }));
        let orders = || {
            schedule.events.iter().filter_map(|event| match &event.action {
                Action::Order(order) => Some(order),
                Action::Run { .. } | Action::Restore { .. } => None,
            })
        };
        let freezes = orders().filter(|order| matches!(order, Order::Freeze { .. }));
        let frozen: BTreeSet<NodeId> = freezes.flat_map(Order::nodes).copied().collect();
        if !frozen.is_empty() {
            prepare(Order::Freeze { nodes: frozen.into_iter().collect() });
        }
        let mut seen = BTreeSet::new();
        for order in orders() {
            if let Order::Links(action) = order
                && seen.insert(likeness(action))
            {
                prepare(order.clone());
            }
        }
    }

    /// Has the anchor take away what was prepared and is not needed any more.
    pub(in super::super) fn settle(&self) {
        // Where there is no lab any more, there is nothing to take away.
        let _ = protocol::ask(&self.running.dir().control(), Settle {});
    }

    /// As [`beside`](Self::beside), for an event.
    fn beside_for(
        &mut self,
        number: usize,
        bond: Bond,
        work: impl FnOnce(Result<Running, LabError>, &mut Teller),
    ) -> Begun {
        match self.beside(bond, work) {
            Ok(process) => {
                self.beside.push(Helper { event: number, process, told: false });
                Begun::UnderWay
            }
            Err(error) => Begun::Failed(ActError::Start(error)),
        }
    }

    /// Asks the anchor, and notes why.
    pub(super) fn ask<O: Operation<Service = Request>>(
        &mut self,
        operation: O,
        purpose: impl FnOnce(Pending<O::Reply>) -> Asked,
    ) -> Begun {
        match protocol::begin(&self.running.dir().control(), operation) {
            Ok(pending) => {
                self.asked.push(purpose(pending));
                Begun::UnderWay
            }
            Err(CallError::Unreachable(error)) => Begun::Failed(ActError::Ask(error)),
            Err(CallError::Refused(error)) => Begun::Failed(ActError::Unsent(error)),
        }
    }

    /// As [`Running::give`], without waiting: what takes its time goes on beside.
    pub(super) fn give(&mut self, number: usize, order: &Order) -> Begun {
        let change = |overlay| Change { order: order.clone(), overlay };
        match order {
            Order::Links(_) => self.ask(change(Some(number)), |pending| Asked::Change(number, pending)),
            Order::Start { .. } => self.ask(change(None), |pending| Asked::Nodes(number, pending)),
            Order::Thaw { nodes } => {
                self.ask(change(None), |pending| Asked::Thaw { number, nodes: nodes.clone(), pending })
            }
            Order::Freeze { nodes } => self.freeze(number, nodes, change(None)),
            Order::Kill { nodes, how } => {
                if let Err(error) = self.watch.forget(nodes) {
                    return Begun::Failed(ActError::Watch(error));
                }
                match how {
                    Kill::Soft | Kill::Hard => self.ask(change(None), |pending| Asked::Nodes(number, pending)),
                    Kill::Graceful { .. } => self.beside_for(number, Bond::Free, |running, teller| {
                        let given = running.and_then(|running| running.give(order.clone()));
                        teller.tell(&News::Finished(given.map(drop).map_err(|error| Account::of(&error))));
                    }),
                }
            }
            Order::Node { nodes, change } => match self.running.set_node(nodes, change) {
                Ok(_) => {
                    self.limits.lay(number, nodes, change);
                    Begun::Done
                }
                Err(error) => Begun::Failed(error.into()),
            },
        }
    }

    /// The programs stop here and now; the anchor sees to the interfaces.
    fn freeze(&mut self, number: usize, nodes: &[NodeId], change: Change) -> Begun {
        let stopped = match self.running.stop_programs(nodes, Patience::Short) {
            Ok(stopped) => stopped,
            Err(error) => return Begun::Failed(error.into()),
        };
        let asked = stopped.clone();
        match self.ask(change, |pending| Asked::Freeze { number, stopped: asked, pending }) {
            Begun::Failed(error) => {
                let failure = LabError::Refused(error.to_string());
                Begun::Failed(self.running.with_programs_back(failure, &stopped).into())
            }
            begun => begun,
        }
    }

    pub(super) fn run(&mut self, number: usize, nodes: &[NodeId], command: &[String]) -> Begun {
        let output = self.output.join(format!("event-{number}"));
        let job = Job {
            command: command.to_vec(),
            mpi: None,
            ranks: None,
            nodes: nodes.to_vec(),
            timeout: None,
            workdir: None,
            env: BTreeMap::new(),
            figure: None,
        };
        let begun = self.beside_for(number, Bond::Free, |running, teller| {
            teller.tell(&News::Finished(running.as_ref().map(drop).map_err(Account::of)));
            let Ok(running) = running else { return };
            let ended = match job::run(&running, &job, &output, &mut |_| {}) {
                Ok(outcome) => outcome.programs.into_iter().map(|ran| (ran.node, ran.code)).collect(),
                Err(error) => {
                    // Its words belong with what the programs say.
                    let _ = std::fs::write(output.join("failure"), format!("failed to {error}\n"));
                    let code = error.code();
                    job.nodes.iter().map(|&node| (running.lab.nodes[node].name.clone(), code)).collect()
                }
            };
            teller.tell(&News::Ended(ended));
        });
        if let Some(Helper { process, .. }) = self.beside.last().filter(|_| matches!(begun, Begun::UnderWay))
            && let Ok(id) = ProcessId::of(process.pid())
            && let Err(error) = self.folder.note_program(number, id)
        {
            process.signal(Signal::TERM);
            return Begun::Failed(ActError::Note(error));
        }
        begun
    }

    pub(super) fn end_programs(&mut self, number: usize, of: usize) -> Begun {
        if let Some(helper) = self.beside.iter().find(|helper| helper.event == of) {
            helper.process.signal(Signal::TERM);
            self.ending.push((number, of));
            return Begun::UnderWay;
        }
        // Ended by now, or started by a player that was killed.
        match self.folder.program(of).map(|process| process.signal(Signal::TERM)) {
            Some(Err(error)) => Begun::Failed(ActError::End(error)),
            _ => Begun::Done,
        }
    }

    pub(super) fn undo(&mut self, number: usize, change: usize) -> Begun {
        let Some(back) = self.limits.lift(change) else {
            return self.ask(Lift { overlay: change }, |pending| Asked::Change(number, pending));
        };
        let done = back.iter().try_for_each(|(node, change)| self.running.set_node(&[*node], change).map(drop));
        done.map_or_else(|error| Begun::Failed(error.into()), |()| Begun::Done)
    }
}

/// The same for actions that are prepared by the same.
fn likeness(action: &LinkAction) -> String {
    let keys = |change: &LinkChange| change.set.words().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    match action {
        LinkAction::Link { interfaces, direction, change } => {
            format!("{direction:?} {interfaces:?} {:?}", keys(change))
        }
        LinkAction::Pair(Pair { from, network, .. }) => format!("pair {from:?} {network:?}"),
        LinkAction::Cut { interfaces } => format!("cut {interfaces:?}"),
        LinkAction::Partition { groups } => format!("partition {groups:?}"),
        // What is already cut or parted has what they need.
        LinkAction::Heal { .. } | LinkAction::Join => String::new(),
    }
}

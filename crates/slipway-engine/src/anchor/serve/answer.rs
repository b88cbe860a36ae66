//! What an anchor does for each request.

use std::os::fd::OwnedFd;

use slipway_sys::clone::SingleThread;

use crate::anchor::Blueprint;
use crate::anchor::birth::Nodes;
use crate::condition::Links;
use crate::protocol::{self, Answer, Code, Ended, Error, Request, Responder};

pub(super) fn answer(
    alone: SingleThread,
    blueprint: &Blueprint,
    nodes: &mut Nodes,
    request: Request,
    descriptor: Option<OwnedFd>,
    to: Responder,
) -> Answer {
    if let Err(error) = check(blueprint, &request) {
        return to.refuse(error);
    }
    let about_nodes = |done: Result<(), String>| done.map_err(Error::of(Code::Nodes));
    match request {
        Request::Start(of) => to.answer::<protocol::Start>(about_nodes(nodes.start_asked(alone, blueprint, &of.nodes))),
        Request::Halt(of) => to.answer::<protocol::Halt>(about_nodes(nodes.halt(alone, blueprint, &of.nodes))),
        Request::Kill(of) => {
            to.answer::<protocol::Kill>(about_nodes(nodes.crash(alone, blueprint, &of.nodes, of.how.into())))
        }
        Request::Freeze(of) => {
            to.answer::<protocol::Freeze>(about_links(nodes.still(alone, blueprint, &of.nodes, true)))
        }
        Request::Thaw(of) => to.answer::<protocol::Thaw>(about_links(nodes.still(alone, blueprint, &of.nodes, false))),
        Request::PrepareFreeze(of) => {
            to.answer::<protocol::PrepareFreeze>(about_links(nodes.prepare_still(alone, blueprint, &of.nodes)))
        }
        Request::ChangeLinks(of) => {
            let done = nodes.with_links(alone, blueprint, |links, around| links.change(around, of.overlay, of.action));
            to.answer::<protocol::ChangeLinks>(ended(Code::Links, done))
        }
        Request::LiftLinks(of) => {
            let done = nodes.with_links(alone, blueprint, |links, around| links.lift(around, of.overlay));
            to.answer::<protocol::LiftLinks>(ended(Code::Links, done))
        }
        Request::PrepareLinks(of) => {
            let done = nodes.with_links(alone, blueprint, |links, around| links.prepare(around, of.action));
            to.answer::<protocol::PrepareLinks>(ended(Code::Links, done))
        }
        Request::SettleLinks(_) => {
            let done = nodes.with_links(alone, blueprint, Links::settle);
            to.answer::<protocol::SettleLinks>(ended(Code::Links, done))
        }
        Request::RestoreLinks(_) => {
            let done = nodes.with_links(alone, blueprint, Links::restore);
            to.answer::<protocol::RestoreLinks>(ended(Code::Links, done))
        }
        Request::ReadLinks(_) => to.answer::<protocol::ReadLinks>(Ok(nodes.report_links(blueprint))),
        Request::SetPolicy(of) => {
            let done = nodes.set_policy(alone, blueprint, of.rules);
            to.answer::<protocol::SetPolicy>(ended(Code::Policy, done))
        }
        Request::ReadPolicy(_) => to.answer::<protocol::ReadPolicy>(Ok(nodes.policy.clone())),
        Request::HearProgram(of) => {
            let listener = descriptor.ok_or_else(|| "have a program heard: no listener came along".to_owned());
            let done = listener.and_then(|listener| nodes.hear(alone, blueprint, of.node, listener));
            to.answer::<protocol::HearProgram>(done.map_err(Error::of(Code::FastPath)))
        }
        Request::ReadFast(_) => to.answer::<protocol::ReadFast>(Ok(nodes.report_fast(alone, blueprint))),
        Request::ReadSockets(_) => to.hand::<protocol::ReadSockets>(nodes.notes().map_err(Error::of(Code::FastPath))),
        Request::ReadState(_) => to.answer::<protocol::ReadState>(Ok(nodes.state.clone())),
        Request::FollowLog(of) => {
            let pipe = nodes.logs.follow(of.node).map_err(|error| format!("follow the log: {error}"));
            to.hand::<protocol::FollowLog>(pipe.map_err(Error::of(Code::Log)))
        }
    }
}

/// Refuses nodes that the lab does not have.
fn check(blueprint: &Blueprint, request: &Request) -> Result<(), Error> {
    let there = blueprint.lab.nodes.len();
    let unknown = request.nodes().iter().find(|&&node| node >= there);
    unknown.map_or(Ok(()), |node| {
        Err(Error::new(Code::UnknownNode, format!("find node number {node}: the lab has {there}")))
    })
}

fn about_links(done: Result<(), String>) -> Result<(), Error> {
    done.map_err(Error::of(Code::Links))
}

fn ended(code: Code, done: Result<u64, String>) -> Result<Ended, Error> {
    done.map(|connections| Ended { connections }).map_err(Error::of(code))
}

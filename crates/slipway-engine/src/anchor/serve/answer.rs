//! What an anchor does for each request.

use std::os::fd::OwnedFd;

use slipway_lab::scenario::Order;
use slipway_sys::clone::SingleThread;

use crate::anchor::Blueprint;
use crate::anchor::birth::Nodes;
use crate::anchor::error::AnchorError;
use crate::anchor::orphan::Watch;
use crate::condition::Links;
use crate::protocol::{self, Answer, Code, Ended, Error, Request, Responder};

pub(super) fn answer(
    alone: SingleThread,
    blueprint: &mut Blueprint,
    (nodes, watch): (&mut Nodes, &mut Watch),
    request: Request,
    descriptor: Option<OwnedFd>,
    to: Responder,
) -> Answer {
    if let Err(error) = check(blueprint, &request) {
        return to.refuse(error);
    }
    match request {
        Request::Change(of) => to.answer::<protocol::Change>(change(alone, blueprint, nodes, of)),
        Request::Prepare(of) => to.answer::<protocol::Prepare>(prepare(alone, blueprint, nodes, of.order)),
        Request::Lift(of) => {
            let done = nodes.with_links(alone, blueprint, |links, around| links.lift(around, of.overlay));
            to.answer::<protocol::Lift>(ended(Code::Links, done))
        }
        Request::Settle(_) => {
            let done = nodes.with_links(alone, blueprint, Links::settle);
            to.answer::<protocol::Settle>(ended(Code::Links, done))
        }
        Request::RestoreLinks(_) => {
            let done = nodes.with_links(alone, blueprint, Links::restore);
            to.answer::<protocol::RestoreLinks>(ended(Code::Links, done))
        }
        Request::Halt(of) => {
            to.answer::<protocol::Halt>(nodes.halt(alone, blueprint, &of.nodes).map_err(Error::of(Code::Nodes)))
        }
        Request::HoldAnswers(of) => {
            nodes.hold_answers(alone, blueprint, &of.nodes);
            to.answer::<protocol::HoldAnswers>(Ok(()))
        }
        Request::Relocate(of) => {
            let done = nodes.relocate(alone, blueprint, of.node, of.host);
            to.answer::<protocol::Relocate>(done.map_err(Error::of(Code::Nodes)))
        }
        Request::ReadLinks(_) => to.answer::<protocol::ReadLinks>(Ok(nodes.report_links(blueprint))),
        Request::SetPolicy(of) => {
            let done = nodes.set_policy(alone, blueprint, of.rules);
            to.answer::<protocol::SetPolicy>(ended(Code::Policy, done))
        }
        Request::ReadGraph(_) => to.answer::<protocol::ReadGraph>(Ok(nodes.graph(blueprint))),
        Request::ReadPolicy(_) => to.answer::<protocol::ReadPolicy>(Ok(nodes.policy.clone())),
        Request::HearProgram(of) => {
            let listener = descriptor.ok_or(AnchorError::NoListener);
            let done = listener.and_then(|listener| Ok(nodes.hear(alone, blueprint, of.node, listener)?));
            to.answer::<protocol::HearProgram>(done.map_err(Error::of(Code::FastPath)))
        }
        Request::ReadFast(_) => to.answer::<protocol::ReadFast>(Ok(nodes.report_fast(alone, blueprint))),
        Request::ReadSockets(_) => to.hand::<protocol::ReadSockets>(nodes.notes().map_err(Error::of(Code::FastPath))),
        Request::ReadState(_) => to.answer::<protocol::ReadState>(Ok(nodes.state.clone())),
        Request::ReadLog(of) => {
            let piece = nodes.logs.read(of.node, of.from).map_err(AnchorError::system("read the log"));
            to.answer::<protocol::ReadLog>(piece.map_err(Error::of(Code::Log)))
        }
        Request::Keep(_) => {
            watch.keep();
            to.answer::<protocol::Keep>(Ok(()))
        }
        Request::FollowLog(of) => {
            let pipe = nodes.logs.follow(of.node).map_err(AnchorError::system("follow the log"));
            to.hand::<protocol::FollowLog>(pipe.map_err(Error::of(Code::Log)))
        }
    }
}

/// Refuses nodes that the lab does not have.
fn check(blueprint: &Blueprint, request: &Request) -> Result<(), Error> {
    let nodes = &blueprint.lab.nodes;
    let unknown = request.nodes().iter().find(|&&node| nodes.get(node).is_none());
    unknown.map_or(Ok(()), |node| {
        Err(Error::new(Code::UnknownNode, format!("find node number {node}: the lab has {}", nodes.len())))
    })
}

/// The anchor's part of an order.
fn change(
    alone: SingleThread,
    blueprint: &Blueprint,
    nodes: &mut Nodes,
    protocol::Change { order, overlay }: protocol::Change,
) -> Result<Ended, Error> {
    let about_nodes = |done: Result<(), AnchorError>| done.map(|()| Ended::default()).map_err(Error::of(Code::Nodes));
    let (still, which) = match order {
        Order::Links(action) => {
            let done = nodes.with_links(alone, blueprint, |links, around| links.change(around, overlay, action));
            return ended(Code::Links, done);
        }
        _ if overlay.is_some() => {
            return Err(Error::new(Code::Malformed, "lay an order over others: only changes of links can be"));
        }
        Order::Start { nodes: which } => return about_nodes(nodes.start_asked(alone, blueprint, &which)),
        Order::Kill { nodes: which, how } => return about_nodes(nodes.crash(alone, blueprint, &which, how.into())),
        Order::Node { .. } => return Ok(Ended::default()),
        Order::Freeze { nodes: which } => {
            nodes.release_answers(&which);
            (true, which)
        }
        Order::Thaw { nodes: which } => (false, which),
    };
    let done = nodes.with_links(alone, blueprint, |links, around| links.still(around, &which, still));
    ended(Code::Links, done)
}

/// Puts in place what an order will need of links.
fn prepare(alone: SingleThread, blueprint: &Blueprint, nodes: &mut Nodes, order: Order) -> Result<Ended, Error> {
    let done = nodes.with_links(alone, blueprint, |links, around| match order {
        Order::Links(action) => links.prepare(around, action),
        Order::Freeze { nodes } => links.prepare_still(around, &nodes),
        Order::Node { .. } | Order::Kill { .. } | Order::Start { .. } | Order::Thaw { .. } => Ok(()),
    });
    ended(Code::Links, done)
}

fn ended(code: Code, done: Result<u64, AnchorError>) -> Result<Ended, Error> {
    done.map(|connections| Ended { connections }).map_err(Error::of(code))
}

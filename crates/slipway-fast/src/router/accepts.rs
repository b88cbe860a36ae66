//! The thread of a node's blocked accepts. It serves calls whose listeners became readable, hands connections over that others left
//! to it, and announces those that no call came for.

use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::{Event, EventData, EventFlags};

use slipway_lab::id::NodeId;

use super::Router;
use crate::blocked_accepts::{BlockedAccepts, Ready, ReadyConnection};
use crate::call::{Trapped, complete};
use crate::delivery::{AnnounceError, Announced};
use crate::wakeup::PATIENCE;

/// Serves a node's blocked accepts, for ever.
pub(super) fn run(router: &Arc<Router>, node: NodeId, blocked_accepts: &Arc<BlockedAccepts>) {
    let delivery = &router.parts.delivery;
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
    while let Some(ready) = blocked_accepts.wait(&mut events) {
        for event in &events[..ready] {
            match BlockedAccepts::read(event) {
                Ready::Bell => {}
                Ready::Data(wakeup) => delivery.data_came(wakeup),
                Ready::Ended(wakeup) => delivery.wakeup_ended(wakeup),
                Ready::Listener(cookie) => serve(router, blocked_accepts, cookie),
            }
        }
        do_entrusted(router, node, blocked_accepts);
        blocked_accepts.expire();
        announce_late(router, blocked_accepts);
    }
}

fn serve(router: &Arc<Router>, blocked_accepts: &Arc<BlockedAccepts>, cookie: u64) {
    for (tree, call) in blocked_accepts.take_blocked(cookie) {
        // A call that is gone was interrupted, or killed. One that finds nothing blocks again.
        let call = Trapped { parts: &router.parts, tree: &tree, blocked_accepts, call };
        call.answer(&call.serve());
    }
}

fn do_entrusted(router: &Arc<Router>, node: NodeId, blocked_accepts: &BlockedAccepts) {
    let entrusted = blocked_accepts.take_entrusted();
    // All together have the time of one: the node's other programs wait meanwhile.
    let until = Instant::now() + PATIENCE;
    for request in entrusted.requests {
        router.answer_late(request, until);
    }
    for (expected, connection) in entrusted.connections {
        // Where nobody listens any more, the client sees its connection end.
        if let Ok(Announced::For(handoff)) = router.parts.delivery.announce_to(Some(expected), node, connection) {
            complete(&router.parts, handoff);
        }
    }
}

/// Announces, by wake-up sockets, the ready connections that no call came for.
fn announce_late(router: &Router, blocked_accepts: &BlockedAccepts) {
    let late = blocked_accepts.take_late(|node| router.nodes.is_silent(node));
    // All together have the time of one: the node's other programs wait meanwhile.
    let until = Instant::now() + PATIENCE;
    for (cookie, ReadyConnection { node, ipv6, connection, .. }) in late {
        match router.parts.delivery.wake_late(node, connection, until) {
            // Where nobody listens any more, the client sees its connection end.
            Ok(()) | Err((AnnounceError::Refused, _)) => {}
            // No wake-up socket is free, or there is no room: the program may come, or a socket later.
            Err((AnnounceError::Full | AnnounceError::Crowded | AnnounceError::Failed, connection)) => {
                blocked_accepts.keep(cookie, ReadyConnection::new(node, ipv6, *connection));
            }
        }
    }
}

#[cfg(test)]
mod tests;

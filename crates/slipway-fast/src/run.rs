//! The life of a router: its start, the anchor's orders, and its reports.

use std::io;
use std::sync::Arc;
use std::{panic, process};

use slipway_lab::policy::Rule;
use slipway_sys::notify::Listener;

use crate::channel::{Acceptor, Limits, Pool};
use crate::control::{Order, Report, RouterEnd};
use crate::peers::{Peers, WARM};
use crate::policy::Policy;
use crate::router::Router;
use crate::setup::RouterSetup;
use crate::wakeup::WakeupSocket;

/// Serves until the anchor ends.
///
/// # Errors
/// When the kernel lacks descriptors, threads or memory, or the anchor sends no valid order.
pub fn run(setup: RouterSetup) -> io::Result<()> {
    // A thread that ends would leave the programs that it serves waiting for ever; the anchor replaces a router as a whole.
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        told(info);
        process::abort();
    }));
    let RouterSetup { host, address_map, persistent, key: key_file, hello, listener, peers, outside, policy, control } =
        setup;
    let control = Arc::new(control);
    // This is done here, not where the router was made: the keeper process is a copy from before.
    let key = key_file.read()?;
    drop(key_file);
    let pool = if peers.is_empty() { None } else { Some(Pool::start(key.clone(), hello, peers, WARM)?) };
    let asking = Arc::clone(&control);
    let more = move |node, ipv6| {
        // An anchor that is gone ends the router soon.
        let _ = asking.report(&Report::MoreWakeupSockets { node, ipv6 });
    };
    let router = Router::start(host, address_map, policy, persistent, (Peers::new(pool), outside), more)?;
    let serving = Arc::clone(&router);
    let mut accept = listener.map(|listener| {
        move || Acceptor::start(listener, key, hello, Limits::default(), move |asked| serving.asked(asked))
    });
    let mut _acceptor = None;
    control.report(&Report::Ready)?;
    let mut rules = String::new();
    while let Some(order) = control.hear()? {
        let serves = matches!(order, Order::Serve);
        obey(&router, &control, order, &mut rules)?;
        // Other routers wait until this one has all that the one before had: the listeners of programs too.
        if serves && let Some(accept) = accept.take() {
            _acceptor = Some(accept()?);
        }
    }
    Ok(())
}

/// `rules` holds the pieces of a policy so far.
#[tracing::instrument(level = "debug", skip_all, fields(?order))]
fn obey(router: &Arc<Router>, control: &RouterEnd, order: Order, rules: &mut String) -> io::Result<()> {
    match order {
        Order::Listener { node, tree, namespace, listener } => {
            router.lives_in(node, namespace);
            router.introduce(node, tree, Listener::from(listener))?;
        }
        Order::Serve => router.serve()?,
        Order::Unaccepted { unaccepted, sockets } => {
            let mut sockets = sockets.into_iter();
            if let Some(end) = sockets.next() {
                router.take_up(unaccepted, end, sockets.next())?;
            }
        }
        Order::Recorded { record, descriptor } => router.parts.rdma.found(record, descriptor),
        Order::WakeupSockets { node, ipv6, sockets } => {
            // A node whose programs have taken all ports, or that ends, gets by with the wake-up sockets that it has: it is no
            // reason to end for all others.
            let ip = router.parts.address_map.addresses(node).find(|ip| ip.is_ipv6() == ipv6);
            let wakeup_sockets = sockets.into_iter().filter_map(|socket| WakeupSocket::new(socket, ip?).ok());
            router.add_wakeup_sockets(node, ipv6, wakeup_sockets.collect());
        }
        Order::Conditions { nodes } => {
            router.condition(nodes.into_iter().collect());
            control.report(&Report::Heeded)?;
        }
        Order::Policy { text, more } => {
            rules.push_str(&text);
            if !more {
                let whole: Vec<Rule> = serde_json::from_str(&std::mem::take(rules))?;
                router.set_policy(Policy::new(&whole, router.parts.address_map.nodes()));
                control.report(&Report::Heeded)?;
            }
        }
        Order::Silence { nodes } => {
            for node in nodes {
                router.silence(node);
            }
            control.report(&Report::Heeded)?;
        }
        Order::Hold { nodes } => {
            router.hold(&nodes);
            control.report(&Report::Heeded)?;
        }
        Order::Release { nodes } => router.release(&nodes),
        Order::Wake { nodes } => nodes.into_iter().for_each(|node| router.wake(node)),
        Order::Forget { nodes } => nodes.into_iter().for_each(|node| router.forget(node)),
        Order::Status => control.status(&serde_json::to_string(&router.status())?)?,
    }
    Ok(())
}

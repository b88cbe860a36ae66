//! What an anchor does once the lab is up: it waits, and serves requests.

mod answer;

use std::io;
use std::os::fd::AsFd as _;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipway_sys::clone::SingleThread;

use self::answer::answer;
use super::Blueprint;
use super::birth::Nodes;
use super::orphan::Watch;
use crate::protocol::{Interest, Request, Server};

/// What has happened.
struct Happened {
    signal: bool,
    /// In the order of [`Server::waits_for`].
    peers: Vec<bool>,
    /// In the order of [`Nodes::waits_for`].
    bypasses: Vec<bool>,
    /// Pipes that programs have printed to, by number.
    printed: Vec<usize>,
    /// Other machines of the lab said something.
    pulse: bool,
}

/// Serves until SIGTERM, or until the lab's other machines have been silent for too long.
pub(super) fn serve(
    alone: SingleThread,
    blueprint: &mut Blueprint,
    nodes: &mut Nodes,
    server: &mut Server<Request>,
    watch: &mut Watch,
) -> io::Result<()> {
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGCHLD);
    awaited.add(Signal::SIGTERM);
    let signals = SignalFd::with_flags(&awaited, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Whoever died while the lab was made has already said so to nobody.
    reap(alone, blueprint, nodes);
    loop {
        let happened = match wait(&signals, server, nodes, watch) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if watch.tend(happened.pulse, Instant::now()) {
            watch.clear_up(blueprint)?;
            nodes.end(alone, blueprint);
            return Ok(());
        }
        // Before anything else is done: it is about what there was to wait for.
        nodes.tend(alone, blueprint, &happened.bypasses);
        nodes.logs.tend(&happened.printed);
        // Before requests: one that asks for the nodes' state came after the ends that it asks about.
        if happened.signal {
            while let Some(signal) = signals.read_signal()? {
                if signal.ssi_signo == Signal::SIGTERM as u32 {
                    nodes.end(alone, blueprint);
                    return Ok(());
                }
            }
            reap(alone, blueprint, nodes);
        }
        server.tend(&happened.peers, |request, descriptor, to| {
            answer(alone, blueprint, (nodes, watch), request, descriptor, to)
        });
    }
}

/// Waits for signals, requests, what goes on with bypasses, and what programs print.
fn wait(signals: &SignalFd, server: &Server<Request>, nodes: &Nodes, watch: &Watch) -> io::Result<Happened> {
    let (of_bypasses, patience) = nodes.waits_for();
    let bypasses = of_bypasses.len();
    let peers = server.waits_for();
    let of_peers = peers.iter().map(|&(fd, interest)| match interest {
        Interest::Read => PollFd::from_borrowed_fd(fd, PollFlags::IN),
        Interest::Write => PollFd::from_borrowed_fd(fd, PollFlags::OUT),
    });
    let now = Instant::now();
    let logs = nodes.logs.waits_for(now);
    let of_logs = logs.iter().map(|&(fd, _)| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let signal = PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN);
    let pulse = watch.socket().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut waiting: Vec<PollFd<'_>> =
        std::iter::once(signal).chain(of_peers).chain(of_bypasses).chain(of_logs).chain(pulse).collect();
    let patience = patience.into_iter().chain(nodes.logs.patience(now)).chain(server.patience());
    let patience = patience.chain(watch.patience(now)).min();
    // One too long to be a number of seconds is none.
    let timeout = patience.and_then(|left| Timespec::try_from(left).ok());
    poll(&mut waiting, timeout.as_ref())?;
    let mut happened = waiting.iter().map(|fd| !fd.revents().is_empty());
    let signal = happened.next().unwrap_or(false);
    let peers = happened.by_ref().take(peers.len()).collect();
    let bypasses = happened.by_ref().take(bypasses).collect();
    let printed = logs.iter().zip(happened.by_ref()).filter(|(_, happened)| *happened).map(|(&(_, number), _)| number);
    let printed = printed.collect();
    Ok(Happened { signal, peers, bypasses, printed, pulse: happened.next().unwrap_or(false) })
}

fn reap(alone: SingleThread, blueprint: &Blueprint, nodes: &mut Nodes) {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
        nodes.ended(alone, blueprint, status);
    }
}

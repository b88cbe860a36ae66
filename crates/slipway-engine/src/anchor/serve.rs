//! What an anchor does once the lab is up: it waits.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use slipway_sys::clone::SingleThread;

use super::Blueprint;
use super::birth::Nodes;
use super::control::{self, Request};
use crate::condition::Links;
use crate::fast::Event;

/// Serves until SIGTERM.
pub(super) fn serve(
    alone: SingleThread,
    blueprint: &Blueprint,
    nodes: &mut Nodes,
    listener: &OwnedFd,
) -> io::Result<()> {
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGCHLD);
    awaited.add(Signal::SIGTERM);
    let signals = SignalFd::with_flags(&awaited, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    // Whoever died while the lab was made has already said so to nobody.
    reap(alone, blueprint, nodes);
    let mut before = None;
    // Most requests end no connections.
    let nothing = |()| 0;
    loop {
        let (ready, events, printed) = match wait(&signals, listener, nodes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        // Before anything else is done: events are about what there was to wait for.
        nodes.tend(alone, blueprint, &events);
        nodes.logs.tend(&printed);
        if ready[0] {
            while let Some(signal) = signals.read_signal()? {
                if signal.ssi_signo == Signal::SIGTERM as u32 {
                    nodes.end(alone, blueprint);
                    return Ok(());
                }
            }
            reap(alone, blueprint, nodes);
        }
        if ready[1] {
            // A caller that went away before its answer has only itself to tell.
            let _ = control::serve_one(listener, &mut before, |request, descriptor| match request {
                Request::Start(which) => nodes.start_asked(alone, blueprint, &which).map(nothing),
                Request::Halt(which) => nodes.halt(alone, blueprint, &which).map(nothing),
                Request::Kill { nodes: which, death } => nodes.crash(alone, blueprint, &which, death).map(nothing),
                Request::Still { nodes: which, still } => nodes.still(alone, blueprint, &which, still).map(nothing),
                Request::Links(number, action) => {
                    nodes.with_links(alone, blueprint, |links, around| links.change(around, number, *action))
                }
                Request::Lift(number) => nodes.with_links(alone, blueprint, |links, around| links.lift(around, number)),
                Request::Prepare(action) => {
                    nodes.with_links(alone, blueprint, |links, around| links.prepare(around, *action))
                }
                Request::PrepareStill(which) => nodes.prepare_still(alone, blueprint, &which).map(nothing),
                Request::Settle => nodes.with_links(alone, blueprint, Links::settle),
                Request::Restore => nodes.with_links(alone, blueprint, Links::restore),
                Request::Policy => nodes.set_policy(alone, blueprint),
                Request::Report => nodes.report_links(blueprint).map(nothing),
                Request::Listener(node) => nodes.hear(alone, blueprint, node, descriptor.take()).map(nothing),
                Request::Fast => nodes.report_fast(alone, blueprint).map(nothing),
                // Those that have ended were seen to above.
                Request::Programs => Ok(0),
                Request::Follow(node) => {
                    let bell = nodes.logs.follow(node).map_err(|error| format!("follow the log: {error}"));
                    bell.map(|bell| *descriptor = Some(bell)).map(nothing)
                }
                Request::Notes => nodes.notes().map(|notes| *descriptor = Some(notes)).map(nothing),
            });
        }
    }
}

/// Waits for signals, requests (whether there are any is told for each), what goes on with routers, and what programs print.
fn wait(signals: &SignalFd, listener: &OwnedFd, nodes: &Nodes) -> io::Result<([bool; 2], Vec<Event>, Vec<usize>)> {
    let (events, patience) = nodes.waits_for();
    let of_routers = events.iter().map(|&(fd, event)| match event {
        Event::Said(_) => PollFd::new(fd, PollFlags::POLLIN),
        Event::Deserted(_) => PollFd::new(fd, PollFlags::empty()),
    });
    let ours = [signals.as_fd(), listener.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let logs = nodes.logs.waits_for();
    let of_logs = logs.iter().map(|&(fd, _)| PollFd::new(fd, PollFlags::POLLIN));
    let mut waiting: Vec<PollFd<'_>> = ours.into_iter().chain(of_routers).chain(of_logs).collect();
    // Rounded up, or it would be asked again and again in the last millisecond.
    let patience = patience.into_iter().chain(nodes.logs.patience()).min();
    let patience = patience.map(|left| left + Duration::from_millis(1));
    let timeout = patience.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    poll(&mut waiting, timeout)?;
    let happened: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(false)).collect();
    let printed = logs.iter().zip(&happened[2 + events.len()..]).filter(|(_, happened)| **happened);
    let printed = printed.map(|((_, number), _)| *number).collect();
    let events = events.iter().zip(&happened[2..]).filter(|(_, happened)| **happened).map(|((_, event), _)| *event);
    Ok(([happened[0], happened[1]], events.collect(), printed))
}

fn reap(alone: SingleThread, blueprint: &Blueprint, nodes: &mut Nodes) {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
        nodes.ended(alone, blueprint, status);
    }
}

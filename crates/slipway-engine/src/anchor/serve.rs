//! What an anchor does once the lab is up: it waits.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use slipway_sys::clone::SingleThread;

use super::Blueprint;
use super::birth::Nodes;
use super::control::{self, Request};
use crate::condition::Links;

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
    reap(blueprint, nodes);
    let mut before = None;
    loop {
        let mut waiting =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let ready = waiting.map(|fd| fd.any().unwrap_or(false));
        if ready[0] {
            while let Some(signal) = signals.read_signal()? {
                if signal.ssi_signo == Signal::SIGTERM as u32 {
                    nodes.end(blueprint);
                    return Ok(());
                }
            }
            reap(blueprint, nodes);
        }
        if ready[1] {
            // A caller that went away before its answer has only itself to tell.
            let _ = control::serve_one(listener, &mut before, |request| match request {
                Request::Start(which) => nodes.start_asked(alone, blueprint, &which),
                Request::Halt(which) => nodes.halt(blueprint, &which),
                Request::Kill { nodes: which, hard } => nodes.crash(blueprint, &which, hard),
                Request::Links(number, action) => {
                    nodes.with_links(alone, blueprint, |links, around| links.change(around, number, *action))
                }
                Request::Lift(number) => nodes.with_links(alone, blueprint, |links, around| links.lift(around, number)),
                Request::Prepare(action) => {
                    nodes.with_links(alone, blueprint, |links, around| links.prepare(around, *action))
                }
                Request::Settle => nodes.with_links(alone, blueprint, Links::settle),
                Request::Restore => nodes.with_links(alone, blueprint, Links::restore),
                Request::Report => nodes.report_links(blueprint),
            });
        }
    }
}

fn reap(blueprint: &Blueprint, nodes: &mut Nodes) {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
        if let Some(pid) = status.pid() {
            nodes.ended(blueprint, pid.as_raw());
        }
    }
}

//! The thread of service: it does for a program that sleeps, or does something else, what its polls would do.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::client::Stage;
use super::connection::Connection;
use super::device::{BROKER, Device, State, WAKE};
use super::gateway::GATEWAY;
use super::waiters::Rest;

/// How often the thread looks whether a program that spins still does.
const LOOK: Duration = Duration::from_millis(2);
/// How often it looks at peers that are not ready, for whom time counts.
const COUNT: Duration = Duration::from_millis(50);
/// How long a peer of another host waits to be told that its request was consumed. An answer of the program's tells it too.
const TELL: Duration = Duration::from_micros(50);

/// Starts the thread where it does not run. It ends with the device.
pub(super) fn start(device: &Arc<Device>, state: &mut State) -> Result<(), Errno> {
    if state.has_service {
        return Ok(());
    }
    let weak = Arc::downgrade(device);
    let (epoll, park) = (state.epoll.clone(), state.park.clone());
    // Signals are for the program's own threads.
    let old = super::loader::block_signals();
    let thread = std::thread::Builder::new().name("slipway-verbs".into()).spawn(move || serve(&weak, &epoll, &park));
    super::loader::restore_signals(&old);
    thread.map_err(|_| Errno::AGAIN)?;
    state.has_service = true;
    Ok(())
}

fn serve(device: &Weak<Device>, epoll: &OwnedFd, park: &OwnedFd) {
    let mut patience = None;
    let (mut polls, mut rounds, mut rest) = (0_u64, 0_u64, Rest::No);
    let mut owes_since: Option<Instant> = None;
    loop {
        let mut events = [MaybeUninit::uninit(); 64];
        let timeout: Option<Timespec> = patience.and_then(|it: Duration| it.try_into().ok());
        let happened: Vec<u64> = if matches!(rest, Rest::No | Rest::Watch) {
            match epoll::wait(epoll, events.as_mut_slice(), timeout.as_ref()) {
                Ok((happened, _)) => happened.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
        } else {
            let _ = poll(&mut [PollFd::new(park, PollFlags::IN)], timeout.as_ref());
            let _ = rustix::io::read(park, &mut [0; 8]);
            Vec::new()
        };
        let Some(device) = device.upgrade() else { return };
        let mut state = device.lock();
        if state.is_ended {
            return;
        }
        state.is_serving = true;
        for event in happened {
            turn(&mut state, event, true);
        }
        state.is_serving = false;
        let was_long = rest == Rest::Long;
        // A thread that has just been woken looks once more before it takes over.
        rest = state.rest(if was_long { rounds.wrapping_sub(1) } else { rounds });
        rounds = state.direct.rounds;
        if state.is_spinning && state.polls == polls {
            state.misjudge();
            progress_all(&mut state);
        }
        polls = state.polls;
        let counts =
            state.queue_pairs.iter().flatten().any(|it| it.not_ready_since.is_some() || it.closed_since.is_some());
        if counts {
            progress_all(&mut state);
        }
        if state.client.stage == Stage::Lost {
            state.follow_broker();
        }
        let counts = counts || state.client.stage == Stage::Lost;
        if owes_since.is_some_and(|since| since.elapsed() >= TELL) {
            state.tell_peers();
        }
        let owes = state.queue_pairs.iter().flatten().flat_map(|it| &it.connections).any(Connection::owes);
        owes_since = owes.then(|| owes_since.unwrap_or_else(Instant::now));
        if owes {
            patience = Some(TELL);
            continue;
        }
        patience = match rest {
            Rest::No if state.is_spinning => Some(LOOK),
            Rest::Watch | Rest::Short => Some(LOOK),
            Rest::No | Rest::Long => counts.then_some(COUNT),
        };
    }
}

/// Acts on an event. Gives the place of a connection that has been rung, where it is not to ask for that again at once.
pub(super) fn turn(state: &mut State, event: u64, rearms: bool) -> Option<(usize, usize)> {
    match event {
        WAKE => {
            let _ = rustix::io::read(&*state.wake, &mut [0; 8]);
            state.hear_gateway_kept();
            progress_all(state);
        }
        BROKER => {
            state.hear();
            state.follow_broker();
        }
        GATEWAY => state.hear_gateway(),
        _ => {
            let (index, number) = (event >> 32, event & 0xffff_ffff);
            let (Ok(index), Ok(number)) = (usize::try_from(index), usize::try_from(number)) else { return None };
            let is_spinning = state.is_spinning;
            let epoll = state.epoll.clone();
            if let Some(Some(pair)) = state.queue_pairs.get_mut(index)
                && let Some(connection) = pair.connections.get_mut(number)
            {
                connection.silence(if rearms { 16 } else { 1 });
                if connection.is_cut {
                    let _ = epoll::delete(&*epoll, connection.bell());
                }
                if rearms {
                    connection.sleep(!is_spinning);
                }
            }
            state.progress(index);
            return (!rearms).then_some((index, number));
        }
    }
    None
}

fn progress_all(state: &mut State) {
    for index in 0..state.queue_pairs.len() {
        state.progress(index);
    }
}

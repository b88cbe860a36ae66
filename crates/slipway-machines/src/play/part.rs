//! A machine's part of a scenario: a player in a process of its own, and the relay between it and the coordinator.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal as Number;
use rustix::process::{Pid, Signal, kill_process};
use slipway_engine::lab::Running;
use slipway_engine::protocol::{Alone, End, JobEnded};
use slipway_engine::scenario::{Ends, Folder, Kept, play_on, play_part};
use slipway_engine::state::StateRoot;
use slipway_lab::scenario::Schedule;
use slipway_measure::play::Begin;
use slipway_sys::signals::Taken;

use super::clock::now;
use super::split;
use crate::input::Input;
use crate::message::{Answer, Order, receive, send};

/// Words of the hidden command that plays: [`player`].
pub const PLAYER: [&str; 2] = ["machine", "--player"];

/// A coordinator compares the clocks every second. One that says nothing for so long is out of reach.
const SILENCE: Duration = Duration::from_secs(10);

/// Starts the player, gives it `play`, and carries words between it and the coordinator until both have ended. Where the
/// coordinator is gone or out of reach, the player plays on to the scenario's end.
///
/// # Errors
/// When the player cannot be started, or the coordinator sends an order that is none to a player.
pub(crate) fn relay(
    labs: &StateRoot,
    play: &Order,
    from: &mut BufReader<Input>,
    to: &mut (impl Write + Send),
) -> io::Result<()> {
    let (Order::Play { lab, .. } | Order::Follow { lab, .. }) = play else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = Folder::of(&labs.lab(lab));
    from.get_mut().end_after(SILENCE);
    let mut command = Command::new(slipway_sys::exe::path()?);
    command.args(PLAYER).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Ctrl-C on this machine's terminal is the coordinator's, which tells all machines.
    let mut player = command.process_group(0).spawn()?;
    let (input, output) = (player.stdin.take(), player.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let pid = i32::try_from(player.id()).ok().and_then(Pid::from_raw);
    let to = Mutex::new(to);
    let relayed = std::thread::scope(|scope| {
        scope.spawn(|| tell(BufReader::new(output), &to));
        send(&mut input, play)?;
        while let Some(order) = receive::<Order>(from)? {
            match order {
                Order::Clock => {
                    let mut to = locked(&to);
                    send(&mut **to, &Answer::Clock { now: now() })?;
                }
                Order::Begin { .. } => send(&mut input, &order)?,
                // One that is over needs no news.
                Order::JobEnded => drop(folder.ask(JobEnded {})),
                // Its player may be another's.
                Order::Stop if matches!(play, Order::Follow { .. }) => drop(folder.ask(End {})),
                // It is waited for below, so the number is its own.
                Order::Stop => drop(pid.map(|pid| kill_process(pid, Signal::INT))),
                other => return Err(io::Error::other(format!("{other:?} is no order to a player"))),
            }
        }
        // A player that has not begun hears by this that it never will.
        drop(input);
        let _ = folder.ask(Alone {});
        Ok(())
    });
    player.wait()?;
    relayed
}

/// Carries the player's answers to the coordinator. One that is gone hears nothing, and the player goes on.
fn tell(mut output: impl BufRead, to: &Mutex<&mut (impl Write + Send)>) {
    let mut over = false;
    while let Ok(Some(answer)) = receive::<Answer>(&mut output) {
        over = matches!(answer, Answer::Done { .. } | Answer::Failed { .. });
        let _ = send(&mut **locked(to), &answer);
    }
    if !over {
        let message = "play the scenario: its player was killed".to_owned();
        let _ = send(&mut **locked(to), &Answer::Failed { message });
    }
}

/// The way to the coordinator, for a whole message.
fn locked<T>(to: &Mutex<T>) -> MutexGuard<'_, T> {
    to.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays a part: an [`Order::Play`] and an [`Order::Begin`] come, and the lines of the log go. The process must have one
/// thread only.
///
/// # Errors
/// When no order to play comes.
pub fn player(labs: &StateRoot, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let order = receive(from)?;
    // Until it ends: one that comes before the scenario or after it must not kill the player.
    let _signals = Taken::new(&[Number::SIGINT, Number::SIGTERM, Number::SIGHUP])?;
    let to = RefCell::new(to);
    let performed = match order {
        Some(Order::Play { lab, schedule, begin, ends, keep }) => {
            perform(labs, &lab, &schedule, *begin, (ends, keep), from, &to)
        }
        Some(Order::Follow { lab, schedule }) => follow(labs, &lab, &schedule, &to),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no order to play came")),
    };
    let answer = match performed {
        Ok(()) => Answer::done(),
        Err(message) => Answer::Failed { message },
    };
    // The log has it where nobody listens.
    let _ = send(&mut **to.borrow_mut(), &answer);
    Ok(())
}

fn perform(
    labs: &StateRoot,
    lab: &str,
    schedule: &Schedule,
    begin: Begin,
    (ends, keep): (Ends, bool),
    from: &mut impl BufRead,
    to: &RefCell<&mut impl Write>,
) -> Result<(), String> {
    let running = Running::open(labs, lab).map_err(|error| error.to_string())?;
    let claim = Folder::of(running.dir()).claim().map_err(|error| error.to_string())?;
    let limits = running.all_limits().map_err(|error| error.to_string())?;
    let folder = running.dir().join("scenario").join("output");
    std::fs::create_dir_all(&folder).map_err(|error| format!("make {}: {error}", folder.display()))?;
    let schedule = split::own(schedule, &running.lab, running.lab.part.machine);
    let kept = Kept { schedule, ends, keep, limits, folder, origin: None };
    let ready = || {
        send(&mut **to.borrow_mut(), &Answer::Prepared)?;
        match receive(from)? {
            Some(Order::Begin { at }) => Ok(at),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the coordinator has ended")),
        }
    };
    let mut show = |line: &_| {
        let line = Box::new(Clone::clone(line));
        let _ = send(&mut **to.borrow_mut(), &Answer::Played { line });
    };
    play_part(labs, running, claim, &kept, begin, ready, &mut show).map(drop).map_err(|error| error.to_string())
}

/// Waits until nobody plays the part, has it go on where it did not come to its end, and tells its log.
fn follow(labs: &StateRoot, lab: &str, schedule: &Schedule, to: &RefCell<&mut impl Write>) -> Result<(), String> {
    let running = Running::open(labs, lab).map_err(|error| error.to_string())?;
    let folder = Folder::of(running.dir());
    let claim = folder.claim_when_free().map_err(|error| error.to_string())?;
    if folder.schedule() != Some(split::own(schedule, &running.lab, running.lab.part.machine)) {
        return Err("go on with the scenario: another was played since".to_owned());
    }
    if folder.interrupted().is_ok() {
        play_on(labs, running, claim, &mut |_| ()).map_err(|error| error.to_string())?;
    }
    let played = folder.log().map_err(|error| error.to_string())?;
    for line in played.into_iter().flat_map(|played| played.lines) {
        send(&mut **to.borrow_mut(), &Answer::Played { line: Box::new(line) }).map_err(|error| error.to_string())?;
    }
    Ok(())
}

//! Hearing a program to its end.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipway_sys::signals::Taken;

/// More than any measuring program says; the rest of one that does not stop talking is lost.
const MOST_OUTPUT: usize = 64 * 1024 * 1024;

/// How often counters are looked at while a program runs: those of a socket end with it.
const PERIOD: Duration = Duration::from_millis(100);

/// Bounds of a program.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// The latest time at which the program ends.
    pub deadline: Instant,
    /// Signals that end it early.
    pub interrupt: &'a Taken,
}

/// The output of a program, or the reason why it was not read to its end.
#[derive(Debug)]
pub enum Heard {
    /// Standard output and standard error.
    All([Vec<u8>; 2]),
    /// A signal came.
    Interrupted,
    /// It took too long.
    Late,
}

/// Reads both outputs of a program until it has closed them. Meanwhile calls `look` ten times a second.
///
/// # Errors
/// As `poll(2)` and `read(2)`.
pub fn collect(
    stdout: &mut PipeReader,
    stderr: &mut PipeReader,
    bounds: Bounds<'_>,
    mut look: Option<&mut dyn FnMut()>,
) -> io::Result<Heard> {
    let mut said = [Vec::new(), Vec::new()];
    let mut open = [true, true];
    let mut next = Instant::now();
    while open.contains(&true) {
        let now = Instant::now();
        if let Some(look) = &mut look
            && now >= next
        {
            look();
            next = now + PERIOD;
        }
        let left = bounds.deadline.saturating_duration_since(now);
        let patience = if look.is_some() { left.min(PERIOD) } else { left };
        let [stop, ready @ ..] =
            readable([bounds.interrupt.as_fd(), stdout.as_fd(), stderr.as_fd()], [true, open[0], open[1]], patience)?;
        if stop {
            return Ok(Heard::Interrupted);
        }
        if left.is_zero() {
            return Ok(Heard::Late);
        }
        for (i, ready) in ready.into_iter().enumerate() {
            if ready {
                let mut buffer = [0; 8192];
                let length = if i == 0 { stdout.read(&mut buffer) } else { stderr.read(&mut buffer) }?;
                open[i] = length > 0;
                let room = MOST_OUTPUT.saturating_sub(said[i].len()).min(length);
                said[i].extend_from_slice(&buffer[..room]);
            }
        }
    }
    Ok(Heard::All(said))
}

/// Those of the `wanted` that have something to read, or have ended.
fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], wanted: [bool; N], patience: Duration) -> io::Result<[bool; N]> {
    let flags = |wanted: bool| if wanted { PollFlags::IN } else { PollFlags::empty() };
    let mut waiting: [PollFd<'_>; N] = std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i], flags(wanted[i])));
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut waiting, Some(&patience)) {
        Ok(_) => Ok(std::array::from_fn(|i| wanted[i] && !waiting[i].revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}

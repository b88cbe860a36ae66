//! Trains of numbered packets over many paths at once.
//!
//! A packet carries the time at which it was sent, and the kernel stamps it on arrival (`SO_TIMESTAMPNS`), so that a
//! receiver that is scheduled late does not make the path look slow.

use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::os::fd::AsFd as _;

use super::expect::Expected;
use super::path::{HEADERS, PACKET, Path};
use slipway_measure::check::Spread;

use super::{Effort, VerifyError, failed};

/// Packets sent in a second over all paths together: few enough that sending does not disturb what is measured.
const MOST_PER_SECOND: f64 = 20_000.0;
/// First bytes of every packet, so that nothing else is taken for one.
const MAGIC: u64 = 0x736c_6970_7761_7921;

/// What arrived of a train.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Train {
    /// Packets sent.
    pub(super) sent: u32,
    /// One-way delay of each packet that arrived, seconds, by number; the first copy counts.
    pub(super) delays: Vec<Option<f64>>,
    /// Second copies.
    pub(super) twice: u32,
}

impl Train {
    /// The delays of what arrived.
    pub(super) fn spread(&self) -> Option<Spread> {
        let mut delays: Vec<f64> = self.delays.iter().flatten().copied().collect();
        delays.sort_unstable_by(f64::total_cmp);
        let at = |share: usize| delays.get((delays.len() * share / 100).min(delays.len().saturating_sub(1))).copied();
        Some(Spread { median: at(50)?, p99: at(99)?, worst: at(100)? })
    }
}

/// Between two packets of a path: as asked, unless all paths together, or a limited one, would be too much.
pub(super) fn interval(expected: &[Expected], effort: Effort) -> Duration {
    let together = expected.len() as f64 / MOST_PER_SECOND;
    // A tenth of a path's rate leaves its queue empty.
    let slowest = expected.iter().filter_map(|of| of.rate).fold(f64::INFINITY, f64::min);
    let alone = (PACKET + HEADERS) as f64 * 8.0 * 10.0 / slowest;
    effort.interval.max(Duration::from_secs_f64(together.max(alone)))
}

/// How many packets of a path: as asked, or as half of the time for all of it holds. Ten are the fewest that say anything.
pub(super) fn packets(interval: Duration, effort: Effort) -> u32 {
    let Some(most) = effort.most else { return effort.packets };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float becomes the nearest whole number that fits"
    )]
    let fit = (most.as_secs_f64() / 2.0 / interval.as_secs_f64()) as u32;
    effort.packets.min(fit.max(10))
}

/// Sends a train over every path and collects what arrives until `patience` after the last packet was sent.
pub(super) fn run(
    paths: &[Path],
    packets: u32,
    interval: Duration,
    patience: Duration,
    progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
) -> Result<Vec<Train>, VerifyError> {
    let mut trains = vec![Train { sent: packets, delays: vec![None; packets as usize], twice: 0 }; paths.len()];
    let begun = Instant::now();
    for number in 0..packets {
        for path in paths {
            send(path, number)?;
        }
        collect(paths, &mut trains, begun + interval * (number + 1))?;
        progress(f64::from(number) / f64::from(packets))?;
    }
    let last = Instant::now() + patience;
    while Instant::now() < last && trains.iter().any(|train| train.delays.iter().any(Option::is_none)) {
        collect(paths, &mut trains, last.min(Instant::now() + Duration::from_millis(50)))?;
    }
    progress(1.0)?;
    Ok(trains)
}

fn send(path: &Path, number: u32) -> Result<(), VerifyError> {
    let mut packet = [0; PACKET];
    packet[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    packet[8..12].copy_from_slice(&number.to_ne_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    packet[12..20].copy_from_slice(&u64::try_from(now.as_nanos()).unwrap_or(0).to_ne_bytes());
    match path.sender.send(&packet) {
        Ok(_) => Ok(()),
        // What a full queue or a dead peer refuses is lost, as it would be for a program.
        Err(error)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused)
                || error.raw_os_error() == Some(nix::libc::ENOBUFS) =>
        {
            Ok(())
        }
        Err(error) => Err(failed("send a packet")(error)),
    }
}

/// Takes what arrives until `until`.
fn collect(paths: &[Path], trains: &mut [Train], until: Instant) -> Result<(), VerifyError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up to whole milliseconds by poll(2): the train may be slower than asked, never wrong.
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut waiting: Vec<PollFd<'_>> =
            paths.iter().map(|path| PollFd::new(path.receiver.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut waiting, timeout) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(failed("wait for packets")(error.into())),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for ((path, train), _) in paths.iter().zip(trains.iter_mut()).zip(ready).filter(|(_, ready)| *ready) {
            while let Some((packet, at)) = receive(path)? {
                note(train, &packet, at);
            }
        }
        if left.is_zero() {
            return Ok(());
        }
    }
}

/// A packet and when the kernel had it, nanoseconds since 1970; `None` where none waits.
fn receive(path: &Path) -> Result<Option<([u8; PACKET], u64)>, VerifyError> {
    let mut packet = [0; PACKET];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let mut into = [IoSliceMut::new(&mut packet)];
    let received = recvmsg::<()>(path.receiver.as_raw_fd(), &mut into, Some(&mut control), MsgFlags::MSG_DONTWAIT);
    let message = match received {
        Ok(message) => message,
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ECONNREFUSED) => return Ok(None),
        Err(error) => return Err(failed("receive a packet")(error.into())),
    };
    let stamp = message.cmsgs().ok().and_then(|mut all| {
        all.find_map(|one| match one {
            ControlMessageOwned::ScmTimestampns(at) => {
                Some(u64::try_from(at.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(at.tv_nsec()).ok()?)
            }
            _ => None,
        })
    });
    let whole = message.bytes == PACKET;
    Ok(stamp.filter(|_| whole).map(|at| (packet, at)))
}

fn note(train: &mut Train, packet: &[u8; PACKET], at: u64) {
    let word = |from: usize| u64::from_ne_bytes(packet[from..from + 8].try_into().expect("eight bytes"));
    let number = u32::from_ne_bytes(packet[8..12].try_into().expect("four bytes")) as usize;
    if word(0) != MAGIC {
        return;
    }
    match train.delays.get_mut(number) {
        Some(delay @ None) => *delay = Some(at.saturating_sub(word(12)) as f64 / 1e9),
        Some(Some(_)) => train.twice += 1,
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_fits_into_its_time() {
        let effort = |seconds: Option<u64>| Effort { most: seconds.map(Duration::from_secs), ..Effort::default() };
        let fast = Duration::from_millis(1);
        assert_eq!(packets(fast, effort(None)), 1000);
        assert_eq!(packets(fast, effort(Some(30))), 1000);
        assert_eq!(packets(Duration::from_millis(50), effort(Some(30))), 300);
        assert_eq!(packets(Duration::from_mins(1), effort(Some(30))), 10);
    }
}

//! Trains of numbered packets over many paths at once.
//!
//! A packet carries the time at which it was sent, and the kernel stamps it on arrival (`SO_TIMESTAMPNS`). So a
//! receiver that is scheduled late does not make the path look slow.

use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::SigSet;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use slipway_measure::check::Spread;

use super::path::{PACKET, Path};
use super::world::Sent;
use super::{VerifyError, failed};

/// First bytes of every packet, so that nothing else is taken for one.
const MAGIC: u64 = 0x736c_6970_7761_7921;
/// Between two looks at what arrived, while there is to send: the kernel keeps it, with its time.
const LOOK: Duration = Duration::from_millis(1);

/// The packets of a train that arrived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Train {
    /// One-way delay of each packet that arrived, seconds, by number; the first copy counts.
    pub(super) delays: Vec<Option<f64>>,
    /// Second copies.
    pub(super) twice: u32,
}

impl Train {
    /// Takes note of a packet that took so many seconds.
    pub(super) fn note(&mut self, number: usize, took: f64) {
        match self.delays.get_mut(number) {
            Some(delay @ None) => *delay = Some(took),
            Some(Some(_)) => self.twice += 1,
            None => {}
        }
    }

    /// Takes so many seconds off all delays.
    pub(super) fn sooner(&mut self, by: f64) {
        self.delays.iter_mut().flatten().for_each(|delay| *delay -= by);
    }

    /// The delays of what arrived.
    pub(super) fn spread(&self) -> Option<Spread> {
        let mut delays: Vec<f64> = self.delays.iter().flatten().copied().collect();
        delays.sort_unstable_by(f64::total_cmp);
        let at = |share| quantile(&delays, share);
        Some(Spread { median: at(0.5)?, p99: at(0.99)?, worst: at(1.0)? })
    }
}

/// Of sorted values the one that a share of them does not exceed.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied()
}

/// Sends packets over the paths when they are due, counted from `begun`, and collects what arrives until `patience` after the
/// last. The times in `plan` become those at which they were sent.
pub(super) fn run(
    paths: &[Path],
    lengths: &[u32],
    plan: &mut [Sent],
    patience: Duration,
    begun: Instant,
    progress: &mut dyn FnMut(f64) -> Result<(), VerifyError>,
) -> Result<Vec<Train>, VerifyError> {
    let mut trains: Vec<Train> =
        lengths.iter().map(|&length| Train { delays: vec![None; length as usize], twice: 0 }).collect();
    let mut looked = begun;
    let all = plan.len();
    for (at, sent) in plan.iter_mut().enumerate() {
        let due = begun + Duration::from_nanos(sent.at);
        while Instant::now() < due || looked.elapsed() > LOOK {
            looked = Instant::now();
            collect(paths, &mut trains, due)?;
            progress(at as f64 / all as f64)?;
        }
        sent.at = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        send(&paths[sent.way], sent.number)?;
    }
    let last = Instant::now() + patience;
    let is_missing =
        |(path, train): (&Path, &Train)| path.receiver.is_some() && train.delays.iter().any(Option::is_none);
    while Instant::now() < last && paths.iter().zip(&trains).any(is_missing) {
        collect(paths, &mut trains, last.min(Instant::now() + Duration::from_millis(50)))?;
        progress(1.0)?;
    }
    progress(1.0)?;
    Ok(trains)
}

fn send(path: &Path, number: u32) -> Result<(), VerifyError> {
    let Some(sender) = &path.sender else { return Ok(()) };
    let mut packet = [0; PACKET];
    stamp(&mut packet, number);
    match sender.send(&packet) {
        Ok(_) => Ok(()),
        // A packet that a full queue or a dead peer refuses is lost, as it would be for a program.
        Err(error)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused)
                || error.raw_os_error() == Some(nix::libc::ENOBUFS) =>
        {
            Ok(())
        }
        Err(error) => Err(failed("send a packet")(error)),
    }
}

/// Writes a packet's number and the time into its first [`PACKET`] bytes.
pub(super) fn stamp(packet: &mut [u8], number: u32) {
    packet[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    packet[8..12].copy_from_slice(&number.to_ne_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    packet[12..20].copy_from_slice(&u64::try_from(now.as_nanos()).unwrap_or(0).to_ne_bytes());
}

/// Takes what has arrived, or arrives first until `until`.
fn collect(paths: &[Path], trains: &mut [Train], until: Instant) -> Result<(), VerifyError> {
    let left = TimeSpec::from_duration(until.saturating_duration_since(Instant::now()));
    let receivers = paths.iter().enumerate().filter_map(|(at, path)| Some((at, path.receiver.as_ref()?)));
    let (here, mut waiting): (Vec<usize>, Vec<PollFd<'_>>) =
        receivers.map(|(at, receiver)| (at, PollFd::new(receiver.as_fd(), PollFlags::POLLIN))).unzip();
    match ppoll(&mut waiting, Some(left), SigSet::thread_get_mask().ok()) {
        Ok(_) => {}
        // The caller hears of signals by itself.
        Err(nix::errno::Errno::EINTR) => return Ok(()),
        Err(error) => return Err(failed("wait for packets")(error.into())),
    }
    let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap_or(false)).collect();
    for (at, _) in here.into_iter().zip(ready).filter(|(_, ready)| *ready) {
        while let Some(received) = receive(&paths[at])? {
            note(&mut trains[at], &received);
        }
    }
    Ok(())
}

/// A packet that came.
#[derive(Debug)]
pub(super) struct Received {
    packet: [u8; PACKET],
    bytes: usize,
    /// When the kernel had it, nanoseconds since 1970.
    pub(super) at: u64,
    /// How many the socket had no room for until then.
    pub(super) overflown: u32,
}

impl Received {
    /// How long it took by the clocks of both ends, nanoseconds; `None` where it is none of ours, or whole packets are not.
    pub(super) fn took(&self) -> Option<i64> {
        let word = |from: usize| u64::from_ne_bytes(self.packet[from..from + 8].try_into().expect("eight bytes"));
        (word(0) == MAGIC && self.at > 0).then(|| self.at.wrapping_sub(word(12)).cast_signed())
    }
}

/// The next packet; `None` where none waits.
pub(super) fn receive(path: &Path) -> Result<Option<Received>, VerifyError> {
    let Some(socket) = &path.receiver else { return Ok(None) };
    let mut packet = [0; PACKET];
    let mut control = nix::cmsg_space!(TimeSpec, u32);
    let mut into = [IoSliceMut::new(&mut packet)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(&mut control), MsgFlags::MSG_DONTWAIT);
    let message = match received {
        Ok(message) => message,
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ECONNREFUSED) => return Ok(None),
        Err(error) => return Err(failed("receive a packet")(error.into())),
    };
    let (mut at, mut overflown) = (0, 0);
    for one in message.cmsgs().into_iter().flatten() {
        match one {
            ControlMessageOwned::ScmTimestampns(stamp) => {
                let part = |value: i64| u64::try_from(value).unwrap_or(0);
                at = part(stamp.tv_sec()) * 1_000_000_000 + part(stamp.tv_nsec());
            }
            ControlMessageOwned::RxqOvfl(count) => overflown = count,
            _ => {}
        }
    }
    let bytes = message.bytes;
    Ok(Some(Received { packet, bytes, at, overflown }))
}

fn note(train: &mut Train, received: &Received) {
    let number = u32::from_ne_bytes(received.packet[8..12].try_into().expect("four bytes")) as usize;
    if let Some(took) = received.took().filter(|_| received.bytes == PACKET) {
        train.note(number, took as f64 / 1e9);
    }
}

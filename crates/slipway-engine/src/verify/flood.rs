//! The rate of a path: more is sent than it should carry, and what arrives is counted.

use std::time::{Duration, Instant};

use super::expect::Expected;
use super::path::{HEADERS, HEADERS_IN_MTU, Path};
use super::{Effort, VerifyError, failed};

/// How much more than the rate is offered.
const SURPLUS: f64 = 1.5;
/// The part of the time that is left for a burst at the beginning to pass, not counted.
const SETTLING: f64 = 0.3;

/// What was offered and what arrived, bits per second as the kernel counts them, headers included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Flood {
    pub(super) offered: f64,
    pub(super) received: f64,
}

/// After a flood, for what still waits in queues to arrive, beside the path's delay.
const QUIET: Duration = Duration::from_millis(200);

/// How long a rate is measured: at least twenty packets must arrive for their spacing to say one.
fn time(path: &Path, expected: &Expected, asked: Duration) -> Duration {
    let bits = (path.mtu - HEADERS_IN_MTU + HEADERS) as f64 * 8.0;
    asked.max(Duration::from_secs_f64(20.0 * bits / expected.rate.unwrap_or(f64::INFINITY)))
}

/// How long [`run`] takes.
pub(super) fn lasts(path: &Path, expected: &Expected, effort: Effort) -> Duration {
    time(path, expected, effort.rate_time) + Duration::from_secs_f64(2.0 * expected.delay) + QUIET
}

/// Floods a path for a while, after letting what is under way arrive.
pub(super) fn run(path: &Path, expected: &Expected, asked: Duration) -> Result<Flood, VerifyError> {
    let rate = expected.rate.unwrap_or(f64::INFINITY);
    let wanted = rate * SURPLUS / expected.intact.max(0.01);
    let packet = vec![0u8; path.mtu - HEADERS_IN_MTU];
    let bits = (packet.len() + HEADERS) as f64 * 8.0;
    let time = time(path, expected, asked);
    let delay = Duration::from_secs_f64(expected.delay);
    let begun = Instant::now();
    let (counted_from, end) = (begun + delay + time.mul_f64(SETTLING), begun + delay + time);
    let (mut sent, mut first, mut last, mut arrived) = (0.0, None, None, 0u64);
    while Instant::now() < end {
        let due = begun.elapsed().as_secs_f64() * wanted / bits;
        // In small batches, so that the socket's queue does not swallow them all at once.
        for _ in 0..64 {
            if sent >= due {
                break;
            }
            // A full queue loses what is offered beyond it; that is the point.
            let _ = path.sender.send(&packet);
            sent += 1.0;
        }
        while drain(path)? {
            let now = Instant::now();
            if now < counted_from {
                continue;
            }
            if first.is_none() {
                first = Some(now);
            } else {
                arrived += 1;
            }
            last = Some(now);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let offered = sent * bits / begun.elapsed().as_secs_f64();
    let received = match (first, last) {
        (Some(first), Some(last)) if last > first => arrived as f64 * bits / (last - first).as_secs_f64(),
        _ => 0.0,
    };
    // What still waits in queues must not meet the next path's flood.
    let quiet = Instant::now() + delay + QUIET;
    while Instant::now() < quiet {
        while drain(path)? {}
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Flood { offered, received })
}

/// Takes a packet; false where none waits.
fn drain(path: &Path) -> Result<bool, VerifyError> {
    let mut byte = [0; 1];
    match path.receiver.recv(&mut byte) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(failed("receive a packet")(error)),
    }
}

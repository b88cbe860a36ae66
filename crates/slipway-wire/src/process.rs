//! The random processes of a link, each as `net/sched/sch_netem.c` has it.
//!
//! Two differences from it, both where netem misses what was asked. Shares are compared with all 53 bits of a draw, so
//! that one below 2^-32 is not zero. Correlation also keeps the share and the spread of delays that were asked for.
//! netem averages a draw with the one before it, so extreme values, and with them rare losses, almost vanish.

use slipway_document::units::Fraction;
use slipway_lab::condition::{Distribution, LinkConditions, Loss};

use crate::random::{Kind, Stream};
use crate::spec::nanoseconds;

fn share(fraction: Option<Fraction>) -> f64 {
    fraction.map_or(0.0, |fraction| fraction.0)
}

/// Something that happens to a share of packets, whatever happened to those before.
#[derive(Debug)]
pub(crate) struct Chance {
    share: f64,
    stream: Stream,
}

impl Chance {
    pub(crate) fn new(seed: [u8; 32], kind: Kind) -> Self {
        Self { share: 0.0, stream: Stream::new(seed, kind) }
    }

    pub(crate) fn set(&mut self, asked: Option<Fraction>) {
        self.share = share(asked);
    }

    /// Goes past packets for which nothing is drawn.
    pub(crate) fn skip(&mut self, packets: u32) {
        self.stream.skip(packets);
    }

    /// Whether it happens to the next packet, and then a further number drawn for it, at least 0 and below 1.
    pub(crate) fn next(&mut self) -> Option<f64> {
        if self.share <= 0.0 {
            self.stream.skip(1);
            return None;
        }
        let [whether, how] = self.stream.draw();
        (whether < self.share).then_some(how)
    }
}

/// A share of events, each of which depends on the one before. It is a chain of two states with that share, in which
/// one event's correlation with the next is the configured one.
#[derive(Debug, Default)]
struct Correlated {
    share: f64,
    correlation: f64,
    before: Option<bool>,
}

impl Correlated {
    fn happens(&mut self, drawn: f64) -> bool {
        let share = match self.before {
            None => self.share,
            Some(true) => self.share + self.correlation * (1.0 - self.share),
            Some(false) => self.share * (1.0 - self.correlation),
        };
        let happens = drawn < share;
        self.before = Some(happens);
        happens
    }
}

/// States of the loss models (`sch_netem.c`, `loss_4state` and `loss_gilb_ell`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Good; transmitted in a gap.
    Good,
    /// Transmitted within a burst.
    Between,
    /// Bad; lost within a burst.
    Bad,
    /// Lost in a gap.
    Alone,
}

/// The losses of a link.
#[derive(Debug)]
pub(crate) struct Losses {
    model: Option<Loss>,
    random: Correlated,
    state: State,
    stream: Stream,
}

impl Losses {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { model: None, random: Correlated::default(), state: State::Good, stream: Stream::new(seed, Kind::Loss) }
    }

    /// A model that stays the same goes on from its state, another begins anew.
    pub(crate) fn set(&mut self, asked: &LinkConditions) {
        if self.model != asked.loss {
            self.state = State::Good;
            self.random.before = None;
        }
        self.model = asked.loss;
        self.random.share = if let Some(Loss::Random(share)) = asked.loss { share.0 } else { 0.0 };
        self.random.correlation = share(asked.loss_correlation);
    }

    /// As [`Chance::skip`].
    pub(crate) fn skip(&mut self, packets: u32) {
        self.stream.skip(packets);
    }

    pub(crate) fn next(&mut self) -> bool {
        let Some(model) = self.model else {
            self.stream.skip(1);
            return false;
        };
        let [first, second] = self.stream.draw();
        match model {
            Loss::Random(_) => self.random.happens(first),
            Loss::GilbertElliott { p, r, one_minus_h, one_minus_k } => {
                // The loss is that of the state before the step.
                let (step, loss, next) = match self.state {
                    State::Bad => (r, one_minus_h, State::Good),
                    _ => (p, one_minus_k, State::Bad),
                };
                if first < step.0 {
                    self.state = next;
                }
                second < loss.0
            }
            Loss::FourState { p13, p31, p32, p23, p14 } => {
                self.state = match self.state {
                    State::Good if first < p14.0 => State::Alone,
                    State::Good if first < p14.0 + p13.0 => State::Bad,
                    State::Between if first < p23.0 => State::Bad,
                    State::Bad if first < p32.0 => State::Between,
                    State::Bad if first < p32.0 + p31.0 => State::Good,
                    State::Alone => State::Good,
                    stays => stays,
                };
                matches!(self.state, State::Bad | State::Alone)
            }
        }
    }
}

/// The packets that overtake those that are delayed.
#[derive(Debug)]
pub(crate) struct Reorder {
    ahead: Correlated,
    /// Only every so many packets may be; 0 is never.
    gap: u32,
    /// Packets delayed since the last that was not.
    delayed: u32,
    stream: Stream,
}

impl Reorder {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { ahead: Correlated::default(), gap: 0, delayed: 0, stream: Stream::new(seed, Kind::Reorder) }
    }

    /// As `tc` completes them: a share alone means a gap of 1, a gap alone means a share of 100 %.
    pub(crate) fn set(&mut self, asked: &LinkConditions) {
        let wanted = share(asked.reorder);
        (self.ahead.share, self.gap) = match (asked.gap.unwrap_or(0), wanted > 0.0) {
            (gap, true) => (wanted, gap.max(1)),
            (gap, false) if asked.reorder.is_none() && gap > 0 => (1.0, gap),
            (_, false) => (0.0, 0),
        };
        self.ahead.correlation = share(asked.reorder_correlation);
    }

    /// As [`Chance::skip`].
    pub(crate) fn skip(&mut self, packets: u32) {
        self.stream.skip(packets);
    }

    pub(crate) fn next(&mut self) -> bool {
        if self.gap == 0 {
            self.stream.skip(1);
            return false;
        }
        let [drawn, _] = self.stream.draw();
        let ahead = self.delayed >= self.gap - 1 && self.ahead.happens(drawn);
        self.delayed = if ahead { 0 } else { self.delayed.saturating_add(1) };
        ahead
    }
}

/// The delays of packets.
#[derive(Debug)]
pub(crate) struct Delays {
    /// Nanoseconds.
    delay: u64,
    /// Nanoseconds.
    jitter: f64,
    shape: Distribution,
    correlation: f64,
    /// The normal deviate of the packet before.
    before: Option<f64>,
    stream: Stream,
}

impl Delays {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self {
            delay: 0,
            jitter: 0.0,
            shape: Distribution::Uniform,
            correlation: 0.0,
            before: None,
            stream: Stream::new(seed, Kind::Delay),
        }
    }

    pub(crate) fn set(&mut self, asked: &LinkConditions) {
        self.delay = nanoseconds(asked.delay);
        self.jitter = nanoseconds(asked.jitter) as f64;
        self.shape = asked.distribution.unwrap_or_default();
        self.correlation = share(asked.delay_correlation);
    }

    /// As [`Chance::skip`].
    pub(crate) fn skip(&mut self, packets: u32) {
        self.stream.skip(packets);
    }

    /// The next packet's, nanoseconds; never negative.
    pub(crate) fn next(&mut self) -> u64 {
        if self.jitter <= 0.0 {
            self.stream.skip(1);
            return self.delay;
        }
        let deviate = self.deviate();
        let offset = self.jitter * quantile(self.shape, deviate);
        // Below 2^53 in every sense that matters; a cast of a float saturates.
        #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is meant")]
        self.delay.saturating_add_signed(libm::round(offset) as i64)
    }

    /// A normal deviate (Box and Muller), correlated with the one before: an autoregression of order one. Both numbers
    /// are always used, so that every packet keeps its place in the stream.
    fn deviate(&mut self) -> f64 {
        let [first, second] = self.stream.draw();
        let fresh = libm::sqrt(-2.0 * libm::log(1.0 - first)) * libm::cos(std::f64::consts::TAU * second);
        let deviate = match self.before {
            Some(before) => self.correlation * before + libm::sqrt(1.0 - self.correlation * self.correlation) * fresh,
            None => fresh,
        };
        self.before = Some(deviate);
        deviate
    }
}

/// The value of the same rank as a normal deviate in another distribution. The shapes are those of iproute2's tables
/// (`netem/pareto.c`, `netem/paretonormal.c`), their cut at four times the jitter included.
fn quantile(shape: Distribution, deviate: f64) -> f64 {
    const CUT: f64 = 32_767.0 / 8192.0;
    // Φ(−x) = 1 − Φ(x), exact where the tail is: in the upper one.
    let above = 0.5 * libm::erfc(deviate * std::f64::consts::FRAC_1_SQRT_2);
    let pareto = || ((1.0 / libm::cbrt(above) - 1.5) * (4.0 / 3.0)).min(CUT);
    match shape {
        Distribution::Uniform => 1.0 - 2.0 * above,
        Distribution::Normal => deviate.clamp(-CUT, CUT),
        Distribution::Pareto => pareto(),
        Distribution::Paretonormal => 0.25 * deviate.clamp(-CUT, CUT) + 0.75 * pareto(),
    }
}

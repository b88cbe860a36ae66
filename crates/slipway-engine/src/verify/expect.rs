//! What a path should be like: the sender's egress conditions, then the receiver's ingress conditions.

use slipway_lab::condition::{LinkConditions, Loss};

use super::path::{HEADERS, PACKET, Route};
use crate::condition::{DirectionReport, InterfaceReport, LinkReport};

/// What is asked of a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Expected {
    /// Seconds, one way, mean.
    pub(super) delay: f64,
    /// Seconds, one standard deviation.
    pub(super) jitter: f64,
    /// Correlation of one packet's delay with the next.
    pub(super) delay_correlation: f64,
    /// Packets that arrive whole, 0 to 1.
    pub(super) intact: f64,
    /// Correlation of one packet's loss with the next, roughly.
    pub(super) loss_correlation: f64,
    /// Packets that come twice, of those that come.
    pub(super) duplicate: f64,
    /// Packets that overtake.
    pub(super) reorder: f64,
    /// Bits per second, as the kernel counts them.
    pub(super) rate: Option<f64>,
    /// What makes it.
    pub(super) mechanism: String,
}

impl Expected {
    pub(super) fn of(links: &LinkReport, route: &Route) -> Self {
        let find = |place: (usize, usize)| links.interfaces.iter().find(|at| (at.node, at.slot) == place);
        let (sender, receiver) = (find(route.from), find(route.to));
        let natural = LinkConditions::default();
        let egress = sender.map_or(&natural, |at| toward(&at.egress, route.to.0));
        let ingress = receiver.map_or(&natural, |at| &at.ingress.now);
        let cut = [sender, receiver].into_iter().flatten().any(|at: &InterfaceReport| at.cut);
        let parted = links.partitions.iter().any(|groups| {
            let group = |node: usize| groups.iter().position(|group| group.contains(&node));
            matches!((group(route.from.0), group(route.to.0)), (Some(a), Some(b)) if a != b)
        });
        let mut expected = Self::through(egress, ingress);
        if cut || parted {
            expected.intact = 0.0;
            expected.rate = None;
        }
        let made = |at: Option<&InterfaceReport>, of: fn(&InterfaceReport) -> &DirectionReport| {
            at.map_or_else(|| "native".to_owned(), |at| of(at).mechanism.to_string())
        };
        let (out, into) = (made(sender, |at| &at.egress), made(receiver, |at| &at.ingress));
        expected.mechanism = if into == "native" { out } else { format!("{out}, {into}") };
        expected
    }

    /// Whether anything is asked at all.
    pub(super) fn is_anything(&self) -> bool {
        let Self { delay, jitter, intact, duplicate, reorder, rate, .. } = self;
        rate.is_some() || *intact < 1.0 || [delay, jitter, duplicate, reorder].iter().any(|value| **value > 0.0)
    }

    fn through(egress: &LinkConditions, ingress: &LinkConditions) -> Self {
        let both = [egress, ingress];
        let share = |of: fn(&LinkConditions) -> Option<f64>| both.map(|c| of(c).unwrap_or(0.0));
        let [lost_out, lost_in] = both.map(lost);
        let [corrupt_out, corrupt_in] = share(|c| c.corrupt.map(|share| share.0));
        let arrives = (1.0 - lost_in) * (1.0 - corrupt_in);
        let jitters = share(|c| c.jitter.map(|jitter| jitter.0 * deviation(c)));
        let [reorder_out, reorder_in] = share(|c| c.reorder.map(|share| share.0));
        let [twice_out, twice_in] = share(|c| c.duplicate.map(|share| share.0));
        let rates = both.map(|c| c.rate.map(|rate| rate.0 as f64));
        // A packet of the train waits for itself to be sent at each rate.
        let sending: f64 = rates.iter().flatten().map(|rate| (PACKET + HEADERS) as f64 * 8.0 / rate).sum();
        Self {
            delay: share(|c| c.delay.map(|delay| delay.0)).iter().sum::<f64>() + sending,
            jitter: jitters[0].hypot(jitters[1]),
            delay_correlation: share(|c| c.delay_correlation.map(|share| share.0)).into_iter().fold(0.0, f64::max),
            intact: (1.0 - lost_out) * (1.0 - corrupt_out) * arrives,
            loss_correlation: both.map(memory).into_iter().fold(0.0, f64::max),
            duplicate: 1.0 - (1.0 - twice_out) * (1.0 - twice_in),
            reorder: 1.0 - (1.0 - reorder_out) * (1.0 - reorder_in),
            rate: match rates {
                [Some(out), Some(into)] => Some(into.min(out * arrives)),
                [Some(out), None] => Some(out * arrives),
                [None, into] => into,
            },
            mechanism: String::new(),
        }
    }
}

/// The conditions of packets to a node.
fn toward(egress: &DirectionReport, node: usize) -> &LinkConditions {
    egress.peers.iter().find(|peer| peer.node == node).map_or(&egress.now, |peer| &peer.conditions)
}

/// One standard deviation of a jitter of 1: uniform jitter is written as half its width.
fn deviation(conditions: &LinkConditions) -> f64 {
    use slipway_lab::condition::Distribution::Uniform;
    if conditions.distribution.unwrap_or_default() == Uniform { 1.0 / f64::sqrt(3.0) } else { 1.0 }
}

/// Packets lost in the long run, 0 to 1.
fn lost(conditions: &LinkConditions) -> f64 {
    match conditions.loss {
        None => 0.0,
        Some(Loss::Random(share)) => share.0,
        Some(Loss::GilbertElliott { p, r, one_minus_h, one_minus_k }) => {
            let bad = if p.0 + r.0 > 0.0 { p.0 / (p.0 + r.0) } else { 0.0 };
            bad * one_minus_h.0 + (1.0 - bad) * one_minus_k.0
        }
        // Salsano et al., section 5: from the balance of the four states' flows.
        Some(Loss::FourState { p13, p31, p32, p23, p14 }) => {
            let burst = if p31.0 > 0.0 { p13.0 / p31.0 } else { f64::INFINITY };
            let within = if p23.0 > 0.0 { p32.0 / p23.0 } else { f64::INFINITY };
            if burst.is_infinite() {
                return 1.0;
            }
            let all = 1.0 + burst * (1.0 + if burst > 0.0 { within } else { 0.0 }) + p14.0;
            (burst + p14.0) / all
        }
    }
}

/// How much one packet's loss says of the next one's.
fn memory(conditions: &LinkConditions) -> f64 {
    match conditions.loss {
        Some(Loss::GilbertElliott { p, r, .. }) => (1.0 - p.0 - r.0).clamp(0.0, 0.999),
        Some(Loss::FourState { p13, p31, .. }) => (1.0 - p13.0 - p31.0).clamp(0.0, 0.999),
        _ => conditions.loss_correlation.map_or(0.0, |share| share.0.min(0.999)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipway_lab::change::LinkChange;

    fn conditions(words: &str) -> LinkConditions {
        words.parse::<LinkChange>().expect("words").apply(&LinkConditions::default())
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn both_ends_add_up() {
        let expected = Expected::through(
            &conditions("delay=20ms jitter=3ms distribution=normal loss=10%"),
            &conditions("delay=5ms jitter=4ms distribution=normal loss=50% corrupt=10%"),
        );
        assert!(close(expected.delay, 0.025), "{expected:?}");
        assert!(close(expected.jitter, 0.005), "{expected:?}");
        assert!(close(expected.intact, 0.9 * 0.5 * 0.9), "{expected:?}");
    }

    #[test]
    fn a_path_without_conditions_is_asked_nothing() {
        assert!(!Expected::through(&conditions(""), &conditions("")).is_anything());
        for words in ["delay=1ms", "loss=0.001%", "rate=1gbit", "duplicate=1%", "corrupt=1%"] {
            assert!(Expected::through(&conditions(""), &conditions(words)).is_anything(), "{words}");
        }
    }

    #[test]
    fn the_tighter_rate_counts() {
        let expected = Expected::through(&conditions("rate=10mbit"), &conditions("rate=4mbit loss=50%"));
        assert_eq!(expected.rate, Some(4e6));
        let expected = Expected::through(&conditions("rate=10mbit"), &conditions("loss=50%"));
        assert_eq!(expected.rate, Some(5e6));
    }

    #[test]
    fn loss_models_have_their_means() {
        assert!(close(lost(&conditions("loss=gemodel 1% 9% 100% 0%")), 0.1));
        assert!(close(lost(&conditions("loss=gemodel 50% 50% 50% 10%")), 0.3));
        // Two states, written with four.
        assert!(close(lost(&conditions("loss=state 1% 9% 0% 100% 0%")), 0.01 / 0.1));
    }
}

//! Which mechanism serves which conditions: from what is wanted and what the kernel has to one word, and why.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_document::units::Seconds;
use slipway_lab::condition::{LinkConditions, Loss};
use slipway_lab::model::LinkMechanism;
use slipway_lab::scenario::Direction;

use super::gate::physical;
use super::probe::LinkMeans;
use crate::lack::Lack;

/// What makes the conditions of one direction of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Nothing: packets pass as on any such interface.
    Native,
    /// A BPF program on the interface, which drops.
    Gate,
    /// Slipway's own wire: frames pass through a process that delays, drops and paces them.
    Wire,
    /// The kernel's `netem` queueing discipline (`tc-netem(8)`).
    Netem,
    /// The kernel's token bucket (`tc-tbf(8)`).
    Tbf,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Gate => "gate",
            Self::Wire => "wire",
            Self::Netem => "netem",
            Self::Tbf => "tbf",
        })
    }
}

/// What is wanted of one direction of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) direction: Direction,
    /// Whether the interface is met at its host's end.
    pub(super) outside: bool,
    /// Of every packet.
    pub(super) all: &'a LinkConditions,
    /// Whether packets of some peers have conditions of their own.
    pub(super) pairs: bool,
    /// Whether the interface is cut, or its node in a partition.
    pub(super) parted: bool,
}

/// A mechanism, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) mechanism: Mechanism,
    pub(super) why: &'static str,
}

/// The choice where nothing is wanted.
pub(super) const NATIVE: Choice = Choice { mechanism: Mechanism::Native, why: "no conditions" };

/// Why nothing can serve. Fits "failed to …", with a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// What was asked for by name is not there.
    #[error("use {mechanism} for {direction}: {missing}")]
    Missing {
        /// What was asked for.
        mechanism: Mechanism,
        /// Of which direction.
        direction: &'static str,
        /// What the machine lacks, with a hint.
        missing: Lack,
    },
    /// Netem treats all packets of an interface alike.
    #[error(
        "use netem for conditions between nodes: it has none\nHint: write `mechanism: auto` or `mechanism: wire` in the lab file"
    )]
    Pairs,
    /// Netem has one limit for what is delayed and what waits for the rate.
    #[error(
        "use netem for a `queue` apart from the delay: its limit counts what is delayed too\nHint: write `mechanism: auto` or `mechanism: wire` in the lab file, or `limit` for both"
    )]
    Queue,
    /// Neither netem nor the wire runs here.
    #[error(
        "set conditions on {direction}: the wire cannot run here: {wire}\nHint: `slipway doctor` says what this machine has"
    )]
    Nothing {
        /// Of which direction.
        direction: &'static str,
        /// What the wire lacks.
        wire: Lack,
    },
}

/// The mechanism for what is wanted.
pub(super) fn choose(asked: LinkMechanism, means: &LinkMeans, wanted: Wanted<'_>) -> Result<Choice, Unable> {
    let choice = |mechanism, why| Ok(Choice { mechanism, why });
    let Wanted { direction, outside, all, pairs, parted } = wanted;
    let gate = &means.gate;
    // Packets that a device receives reach a queue by way of the gate.
    let queued = |discipline: &Result<(), Lack>| match physical(direction, outside) {
        Direction::Egress => discipline.clone(),
        Direction::Ingress => gate.clone().and_then(|()| discipline.clone()),
    };
    let netem = queued(&means.netem);
    if !pairs && all.is_natural() {
        return match (parted, gate) {
            (false, _) => Ok(NATIVE),
            (true, Ok(())) => choice(Mechanism::Gate, "packets pass or do not"),
            (true, Err(missing)) => Err(missing_for(Mechanism::Gate, direction, missing)),
        };
    }
    if !pairs && loses_all(all) && gate.is_ok() {
        return choice(Mechanism::Gate, "nothing passes");
    }
    let apart = has_queue_behind_delay(all);
    let wire = || match (&means.wire, asked) {
        (Ok(()), LinkMechanism::Wire) => choice(Mechanism::Wire, "the lab file asks for it"),
        (Ok(()), _) if pairs => choice(Mechanism::Wire, "conditions differ by peer"),
        (Ok(()), _) if apart => choice(Mechanism::Wire, "a queue apart from the delay"),
        (Ok(()), _) => choice(Mechanism::Wire, "the kernel has no netem"),
        (Err(missing), LinkMechanism::Wire) => Err(missing_for(Mechanism::Wire, direction, missing)),
        (Err(missing), _) => Err(Unable::Nothing { direction: word(direction), wire: missing.clone() }),
    };
    match (asked, netem) {
        (LinkMechanism::Netem, _) if pairs => Err(Unable::Pairs),
        (LinkMechanism::Netem, _) if apart => Err(Unable::Queue),
        (LinkMechanism::Netem, Ok(())) => choice(Mechanism::Netem, "the lab file asks for it"),
        (LinkMechanism::Netem, Err(missing)) => Err(missing_for(Mechanism::Netem, direction, &missing)),
        (LinkMechanism::Auto, _) if !pairs && is_rate_alone(all) && queued(&means.tbf).is_ok() => {
            choice(Mechanism::Tbf, "a rate alone")
        }
        (LinkMechanism::Auto, Ok(())) if !pairs && !apart => choice(Mechanism::Netem, "the kernel has it"),
        (LinkMechanism::Auto | LinkMechanism::Wire, _) => wire(),
    }
}

fn missing_for(mechanism: Mechanism, direction: Direction, missing: &Lack) -> Unable {
    Unable::Missing { mechanism, direction: word(direction), missing: missing.clone() }
}

/// As people write it.
pub(super) fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "egress",
        Direction::Ingress => "ingress",
    }
}

/// Whether no packet gets through.
pub(super) fn loses_all(conditions: &LinkConditions) -> bool {
    matches!(conditions.loss, Some(Loss::Random(share)) if share.0 >= 1.0)
}

/// Whether packets that wait for a rate are to be told from those that are merely delayed.
fn has_queue_behind_delay(conditions: &LinkConditions) -> bool {
    let takes = |time: Option<Seconds>| time.is_some_and(|time| time.0 > 0.0);
    conditions.queue.is_some() && (takes(conditions.delay) || takes(conditions.jitter))
}

/// Whether there is a rate, perhaps with a queue, and nothing else.
fn is_rate_alone(conditions: &LinkConditions) -> bool {
    conditions.rate.is_some()
        && LinkConditions { rate: None, limit: None, queue: None, ..conditions.clone() }.is_natural()
}

#[cfg(test)]
mod tests {
    use slipway_lab::change::LinkChange;

    use super::*;

    fn has() -> LinkMeans {
        LinkMeans { gate: Ok(()), wire: Ok(()), netem: Ok(()), tbf: Ok(()) }
    }

    fn lacks_netem() -> LinkMeans {
        LinkMeans { netem: Err(Lack::new("the kernel has no netem")), ..has() }
    }

    fn nothing() -> LinkMeans {
        let no = || Err(Lack::new("not permitted"));
        LinkMeans { gate: no(), wire: no(), netem: no(), tbf: Ok(()) }
    }

    fn chosen(asked: LinkMechanism, means: &LinkMeans, words: &str, direction: Direction) -> Result<String, String> {
        let all = &words.parse::<LinkChange>().expect("words").set;
        let wanted = Wanted { direction, outside: false, all, pairs: false, parted: false };
        choose(asked, means, wanted).map(|choice| choice.mechanism.to_string()).map_err(|unable| unable.to_string())
    }

    #[test]
    fn by_itself_the_cheapest_that_does_it() {
        use Direction::{Egress, Ingress};
        let auto = |means: &LinkMeans, words: &str, direction| chosen(LinkMechanism::Auto, means, words, direction);
        for (words, direction, with, without) in [
            ("", Egress, "native", "native"),
            ("delay=0ms limit=5", Egress, "native", "native"),
            ("loss=100%", Ingress, "gate", "gate"),
            ("loss=100% delay=1ms", Egress, "gate", "gate"),
            ("rate=10mbit limit=5", Egress, "tbf", "tbf"),
            ("rate=10mbit", Ingress, "tbf", "tbf"),
            ("rate=10mbit delay=1ms", Egress, "netem", "wire"),
            ("delay=20ms", Egress, "netem", "wire"),
            ("loss=state 1%", Ingress, "netem", "wire"),
            ("rate=10mbit queue=5", Egress, "tbf", "tbf"),
            ("rate=10mbit loss=1% queue=5", Egress, "netem", "wire"),
            ("rate=10mbit delay=1ms queue=5", Egress, "wire", "wire"),
        ] {
            assert_eq!(auto(&has(), words, direction).as_deref(), Ok(with), "{words}");
            assert_eq!(auto(&lacks_netem(), words, direction).as_deref(), Ok(without), "{words}");
        }
        assert_eq!(auto(&nothing(), "rate=1mbit", Egress).as_deref(), Ok("tbf"));
        assert!(auto(&nothing(), "rate=1mbit", Ingress).is_err(), "no gate, and so no way to a queue");
        let refusal = auto(&nothing(), "delay=1ms", Egress).expect_err("nothing can");
        assert!(refusal.starts_with("set conditions on egress: ") && refusal.contains("Hint: "), "{refusal}");
    }

    #[test]
    fn what_is_asked_for_by_name_is_had_or_refused() {
        let egress = |asked, means: &LinkMeans, words| chosen(asked, means, words, Direction::Egress);
        assert_eq!(egress(LinkMechanism::Wire, &has(), "rate=1mbit").as_deref(), Ok("wire"));
        assert_eq!(egress(LinkMechanism::Netem, &has(), "rate=1mbit").as_deref(), Ok("netem"));
        assert_eq!(egress(LinkMechanism::Netem, &lacks_netem(), "").as_deref(), Ok("native"));
        let refusal = egress(LinkMechanism::Netem, &lacks_netem(), "delay=1ms").expect_err("there is none");
        assert_eq!(refusal, "use netem for egress: the kernel has no netem");
        let refusal =
            egress(LinkMechanism::Netem, &has(), "rate=1mbit delay=1ms queue=5").expect_err("it has one limit");
        assert!(refusal.starts_with("use netem for a `queue` apart from the delay"), "{refusal}");
    }

    #[test]
    fn peers_take_the_wire_and_partitions_the_gate() {
        let all = &LinkConditions::default();
        let wanted = Wanted { direction: Direction::Egress, outside: false, all, pairs: true, parted: true };
        let with = |asked, means: &LinkMeans, wanted| choose(asked, means, wanted).map(|choice| choice.mechanism);
        assert_eq!(with(LinkMechanism::Auto, &has(), wanted), Ok(Mechanism::Wire));
        assert_eq!(with(LinkMechanism::Netem, &has(), wanted), Err(Unable::Pairs));
        let wanted = Wanted { pairs: false, ..wanted };
        assert_eq!(with(LinkMechanism::Netem, &has(), wanted), Ok(Mechanism::Gate));
        assert!(with(LinkMechanism::Auto, &nothing(), wanted).is_err());
    }
}

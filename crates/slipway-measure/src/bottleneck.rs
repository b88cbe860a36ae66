//! The resource that was saturated while something was measured: from the kernel's counters to words.
//!
//! The rules are those by which people read `ss -ti`, `mpstat` and `iostat`, in the order of their certainty. The kernel itself
//! counts how long a sender waited for the receiver's window or its own buffer (`tcp_chrono_start` in `net/ipv4/tcp_output.c`), so
//! these two come first.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::format::{number, percent};
use crate::probe::Sample;

/// A share from which a resource counts as saturated: a processor, a disk, the limit itself.
pub const SATURATED: f64 = 0.95;
/// Ratios to the limit that are the limit itself. One above was not limited by it: memory has several processors.
const AT_LIMIT: RangeInclusive<f64> = SATURATED..=1.05;
/// A share of the sender's busy time from which a window or a buffer decides.
const MOST: f64 = 0.5;
/// A share of segments sent again from which loss decides: CUBIC at 20 ms stays below 250 Mbit/s with it.
const LOSSY: f64 = 0.0001;

/// Counters of one measurement, as shares from 0 to 1 and counts. `None`: nobody counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// The part of the sender's busy time in which the receiver's window was full (`tcpi_rwnd_limited`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_limited: Option<f64>,
    /// The part of it in which the send buffer was full (`tcpi_sndbuf_limited`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_limited: Option<f64>,
    /// The part of the segments that was sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resent: Option<f64>,
    /// Segments sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// The congestion control of the connections, such as `cubic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Smoothed round-trip time at the end, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Rate at which the kernel paced at the end, Gbit/s; `None` also where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_gbit: Option<f64>,
    /// The part of the datagrams that did not arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<f64>,
    /// Processor time of the sending or reading program, in processors: one thread has at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_program: Option<f64>,
    /// The same of the receiving program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_program: Option<f64>,
    /// The processor that was busiest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<Busiest>,
    /// The part of the time in which the disk had a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// Packets dropped, by place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
}

/// The busiest processor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Busiest {
    /// Its number.
    pub number: u32,
    /// Not idle.
    pub busy: f64,
    /// In interrupts and what they leave for later (softirq).
    pub interrupts: f64,
    /// In programs.
    pub user: f64,
    /// In the kernel for programs.
    pub system: f64,
    /// Taken by another guest of the same machine.
    pub stolen: f64,
}

/// Names of both sides, for advice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sides {
    /// The side that sends; the folder's for a disk.
    pub sender: String,
    /// The side that receives.
    pub receiver: String,
}

/// A resource that can end what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// The limit of the run: device, link or memory.
    Limit,
    /// The receiver's window.
    ReceiverWindow,
    /// The sender's buffer.
    SendBuffer,
    /// Loss, which holds the congestion window down.
    Loss,
    /// One thread of a program.
    Program,
    /// A processor.
    Processor,
    /// The disk.
    Disk,
    /// A queue that dropped packets.
    Queue,
    /// None of them.
    Nothing,
}

/// The resource that was saturated, with the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The resource.
    pub resource: Resource,
    /// It in words, with the next step: `receiver's window 87 % of the time: raise net.ipv4.tcp_rmem at n2`.
    pub words: String,
    /// All counters that were read, in words.
    pub evidence: Vec<String>,
}

impl Counters {
    /// The resource that was saturated. `of_limit` is the ratio to the run's limit, `sides` are for the advice.
    #[must_use]
    pub fn bottleneck(&self, of_limit: Option<f64>, sides: &Sides) -> Bottleneck {
        let (resource, words) = self.resource(of_limit, sides);
        Bottleneck { resource, words, evidence: self.evidence() }
    }

    fn resource(&self, of_limit: Option<f64>, sides: &Sides) -> (Resource, String) {
        let Sides { sender, receiver } = sides;
        if let Some(ratio) = of_limit.filter(|ratio| AT_LIMIT.contains(ratio)) {
            return (Resource::Limit, format!("the limit itself: {} of it", percent(ratio)));
        }
        let program = |side: &str, used: Option<f64>| {
            let used = used.filter(|&used| used >= SATURATED)?;
            let words = format!(
                "one thread at {side}, at {} of a processor: use more processes or larger writes",
                percent(used)
            );
            Some((Resource::Program, words))
        };
        if let Some(share) = self.receiver_limited.filter(|&share| share >= MOST) {
            // A window stays full too where the program does not come to read.
            return program(receiver, self.receiver_program).unwrap_or_else(|| {
                let advice = format!("raise net.ipv4.tcp_rmem at {receiver}, or give larger buffers");
                (Resource::ReceiverWindow, format!("receiver's window {} of the time: {advice}", percent(share)))
            });
        }
        if let Some(share) = self.buffer_limited.filter(|&share| share >= MOST) {
            let advice = format!("raise net.ipv4.tcp_wmem at {sender}, or give larger buffers");
            return (Resource::SendBuffer, format!("send buffer {} of the time: {advice}", percent(share)));
        }
        let one_thread = program(sender, self.sender_program).or_else(|| program(receiver, self.receiver_program));
        if let Some(found) = one_thread {
            return found;
        }
        // A connection's own count, before those of the whole machine.
        let lossy = self.resent.filter(|&share| share >= LOSSY);
        let has_bbr = self.congestion.as_ref().is_some_and(|name| name.starts_with("bbr"));
        if let Some(share) = lossy.filter(|_| !has_bbr) {
            let words = format!("loss: {} of the segments were sent again; compare --congestion bbr", percent(share));
            return (Resource::Loss, words);
        }
        if let Some(found) = self.processor.filter(|one| one.busy >= SATURATED) {
            return (Resource::Processor, found.words());
        }
        if let Some(share) = self.disk.filter(|&share| share >= SATURATED) {
            return (Resource::Disk, format!("the disk, busy {} of the time", percent(share)));
        }
        let worst = self.drops.iter().max_by_key(|(_, count)| **count);
        if let Some((place, count)) = worst.filter(|_| self.lost.is_none_or(|lost| lost > 0.001)) {
            return (Resource::Queue, format!("a queue: {count} packets dropped in {place}"));
        }
        // BBR sets its rate by what arrives, and sends again what is lost: loss decides only where nothing else does.
        if let Some(share) = lossy {
            let words = format!(
                "loss: {} of the segments were sent again, by BBR already: look for the place of the loss on the path",
                percent(share)
            );
            return (Resource::Loss, words);
        }
        let words = match (self.disk, self.lost) {
            (Some(share), _) => format!(
                "no resource: the disk had work {} of the time; try larger requests, more of them at once, or more readahead",
                percent(share)
            ),
            (None, Some(lost)) => format!("no resource: {} of the datagrams were lost", percent(lost)),
            (None, None) => "no resource that is counted: the congestion window, or the time on the path".to_owned(),
        };
        (Resource::Nothing, words)
    }

    fn evidence(&self) -> Vec<String> {
        let share = |what: &str, share: Option<f64>| share.map(|share| format!("{what} {}", percent(share)));
        let mut evidence: Vec<String> = [
            share("receiver's window full", self.receiver_limited),
            share("send buffer full", self.buffer_limited),
            self.retransmits.map(|count| format!("segments sent again {count}")),
            self.rtt_ms.map(|time| format!("round trip {} ms", number(time))),
            self.pacing_gbit.map(|rate| format!("paced at {} Gbit/s", number(rate))),
            share("datagrams lost", self.lost),
            share("sending program", self.sender_program),
            share("receiving program", self.receiver_program),
            share("disk busy", self.disk),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let Some(Busiest { number, busy, interrupts, stolen, .. }) = self.processor {
            evidence.push(format!(
                "busiest processor {number}: {}, in interrupts {}",
                percent(busy),
                percent(interrupts)
            ));
            if stolen > 0.01 {
                evidence.push(format!("another guest took {} of it", percent(stolen)));
            }
        }
        evidence.extend(self.drops.iter().map(|(place, count)| format!("dropped in {place}: {count}")));
        evidence
    }

    /// The counters as figures beside those of the job: they explain them.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let percent = |figure: &str, share: Option<f64>| {
            share.filter(|share| share.is_finite()).map(|share| Sample::detail(figure, "%", share * 100.0))
        };
        let drops = self.drops.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
        let mut samples: Vec<Sample> = [
            percent("receiver's window full", self.receiver_limited),
            percent("send buffer full", self.buffer_limited),
            percent("disk busy", self.disk),
            percent("busiest processor", self.processor.map(|one| one.busy)),
            percent("its interrupts", self.processor.map(|one| one.interrupts)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if self.receiver_limited.is_some() || self.lost.is_some() {
            samples.push(Sample::detail("packets dropped", "", drops as f64));
        }
        samples
    }
}

impl Busiest {
    fn words(&self) -> String {
        let Self { number, busy, interrupts, user, system, .. } = *self;
        let mostly = [
            (interrupts, "mostly in interrupts: spread the queues of the network card"),
            (user, "mostly in programs"),
            (system, "mostly in the kernel for programs: larger writes, or zero copy"),
        ];
        let (_, most) = mostly.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default();
        format!("processor {number}, busy {} of the time, {most}", percent(busy))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sides() -> Sides {
        Sides { sender: "n1".into(), receiver: "n2".into() }
    }

    fn judged(counters: &Counters, of_limit: Option<f64>) -> (Resource, String) {
        let Bottleneck { resource, words, .. } = counters.bottleneck(of_limit, &sides());
        (resource, words.replace('\u{a0}', " "))
    }

    fn idle() -> Counters {
        Counters { receiver_limited: Some(0.01), buffer_limited: Some(0.02), resent: Some(0.0), ..Counters::default() }
    }

    #[test]
    fn a_window_or_a_buffer_names_the_setting_and_its_host() {
        let window = Counters { receiver_limited: Some(0.87), ..idle() };
        let words = "receiver's window 87 % of the time: raise net.ipv4.tcp_rmem at n2, or give larger buffers";
        assert_eq!(judged(&window, Some(0.4)), (Resource::ReceiverWindow, words.into()));
        let buffer = Counters { buffer_limited: Some(0.7), ..idle() };
        let words = "send buffer 70 % of the time: raise net.ipv4.tcp_wmem at n1, or give larger buffers";
        assert_eq!(judged(&buffer, None), (Resource::SendBuffer, words.into()));
    }

    #[test]
    fn a_full_window_before_a_busy_receiver_is_the_receivers_processor() {
        let counters = Counters { receiver_limited: Some(0.9), receiver_program: Some(0.98), ..idle() };
        let (resource, words) = judged(&counters, None);
        assert!(
            resource == Resource::Program && words.starts_with("one thread at n2, at 98 % of a processor"),
            "{words}"
        );
    }

    #[test]
    fn loss_advises_bbr_to_others_alone() {
        let lossy = |name: &str| Counters { resent: Some(0.001), congestion: Some(name.to_owned()), ..idle() };
        assert!(judged(&lossy("cubic"), Some(0.05)).1.ends_with("compare --congestion bbr"));
        let (resource, words) = judged(&lossy("bbr"), Some(0.6));
        assert!(resource == Resource::Loss && words.contains("by BBR already"), "{words}");
        let busy = Busiest { busy: 1.0, user: 1.0, ..Busiest::default() };
        let counters = Counters { processor: Some(busy), ..lossy("bbr") };
        assert_eq!(judged(&counters, Some(0.6)).0, Resource::Processor, "BBR goes on in spite of loss");
    }

    #[test]
    fn at_the_limit_nothing_else_matters() {
        let counters = Counters { receiver_limited: Some(0.9), ..idle() };
        assert_eq!(
            judged(&counters, Some(2.4)).0,
            Resource::ReceiverWindow,
            "more than the limit is not limited by it"
        );
        assert_eq!(judged(&counters, Some(0.97)), (Resource::Limit, "the limit itself: 97 % of it".into()));
    }

    #[test]
    fn a_processor_says_in_which_work() {
        let busy = Busiest { number: 1, busy: 0.99, interrupts: 0.8, user: 0.1, system: 0.09, stolen: 0.0 };
        let (resource, words) = judged(&Counters { processor: Some(busy), ..idle() }, None);
        assert_eq!(resource, Resource::Processor);
        assert_eq!(
            words,
            "processor 1, busy 99 % of the time, mostly in interrupts: spread the queues of the network card"
        );
        let idle_enough = Busiest { busy: 0.94, ..busy };
        assert_eq!(judged(&Counters { processor: Some(idle_enough), ..idle() }, None).0, Resource::Nothing);
    }

    #[test]
    fn loss_drops_and_disks_have_their_turn() {
        let busy = Some(Busiest { busy: 1.0, ..Busiest::default() });
        assert_eq!(judged(&Counters { resent: Some(0.001), processor: busy, ..idle() }, None).0, Resource::Loss);
        assert_eq!(judged(&Counters { disk: Some(0.99), ..Counters::default() }, Some(0.7)).0, Resource::Disk);
        let lossy = Counters {
            lost: Some(0.2),
            drops: [("UDP receive buffer".to_owned(), 90), ("eth0 receive".to_owned(), 3)].into(),
            ..Counters::default()
        };
        let words = "a queue: 90 packets dropped in UDP receive buffer";
        assert_eq!(judged(&lossy, None), (Resource::Queue, words.into()));
        let (resource, words) = judged(&Counters { disk: Some(0.4), ..Counters::default() }, Some(0.5));
        assert!(resource == Resource::Nothing && words.contains("readahead"), "{words}");
    }

    #[test]
    fn the_evidence_has_every_counter() {
        let counters = Counters {
            retransmits: Some(5),
            rtt_ms: Some(20.25),
            processor: Some(Busiest { stolen: 0.1, busy: 0.5, ..Busiest::default() }),
            ..idle()
        };
        let evidence = counters.bottleneck(None, &sides()).evidence.join("; ").replace('\u{a0}', " ");
        assert_eq!(
            evidence,
            "receiver's window full 1.0 %; send buffer full 2.0 %; segments sent again 5; round trip 20.2 ms; \
             busiest processor 0: 50 %, in interrupts 0 %; another guest took 10 % of it"
        );
    }

    proptest! {
        #[test]
        fn any_counters_give_words_and_finite_samples(
            shares in proptest::collection::vec(proptest::option::of(proptest::num::f64::ANY), 8),
            of_limit in proptest::option::of(proptest::num::f64::ANY),
        ) {
            let counters = Counters {
                receiver_limited: shares[0], buffer_limited: shares[1], resent: shares[2], lost: shares[3],
                sender_program: shares[4], receiver_program: shares[5], disk: shares[6], rtt_ms: shares[7],
                ..Counters::default()
            };
            prop_assert!(!counters.bottleneck(of_limit, &sides()).words.is_empty());
            prop_assert!(counters.samples().iter().all(|sample| sample.value.is_finite() || sample.value.is_infinite()));
        }
    }
}

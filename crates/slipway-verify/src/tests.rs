//! Verify, verified: links that the models make, right ones and wrong ones, many times over, without the kernel.

use slipway_lab::change::LinkChange;
use slipway_lab::condition::LinkConditions;
use slipway_lab::id::NodeId;
use slipway_measure::check::{Check, Verdict};

use super::expect::{self, Expected, expect, rate, simulate};
use super::flood::Flooded;
use super::model::mix;
use super::path::{Hop, Route};
use super::timetable::{self, Timetable};
use super::train::Train;
use super::world::{Sent, World};
use super::{Effort, judge};
use slipway_engine::condition::{DirectionReport, InterfaceReport, LinkReport, Mechanism, PeerReport};

/// Links of each kind.
const LINKS: usize = 200;
/// Apart from the seeds that expectations are made from.
const REAL: usize = 1 << 20;

fn direction(mechanism: Mechanism, words: &str) -> DirectionReport {
    let now = words.parse::<LinkChange>().expect("words").apply(&LinkConditions::default());
    let mechanism = if now.is_natural() { Mechanism::Native } else { mechanism };
    DirectionReport { asked: now.clone(), now, peers: Vec::new(), mechanism, why: String::new(), statistics: None }
}

fn interface(node: usize, mechanism: Mechanism, egress: &str, ingress: &str) -> InterfaceReport {
    let (egress, ingress) = (direction(mechanism, egress), direction(mechanism, ingress));
    InterfaceReport { node: NodeId(node), slot: 0, cut: false, parted: false, egress, ingress }
}

fn world(interfaces: Vec<InterfaceReport>, hops: &[(usize, usize)]) -> World {
    let hops = hops.iter().map(|&(from, to)| Hop { from: (NodeId(from), 0), to: (NodeId(to), 0) }).collect();
    let links = LinkReport { interfaces, ..LinkReport::default() };
    World::of(&links, &[Route { hops }], &|_| 1500)
}

/// The way from one node to another. `words`: egress, then the other's ingress behind a `|`.
fn link(mechanism: Mechanism, words: &str) -> World {
    let (egress, ingress) = words.split_once('|').unwrap_or((words, ""));
    world(vec![interface(0, mechanism, egress, ""), interface(1, mechanism, "", ingress)], &[(0, 1)])
}

/// A measurement of `real` by a machine that is late by some 60 µs, now and then by much more.
fn measured(real: &World, sent: &[Sent], run: usize) -> Train {
    let count = sent.len();
    let mut train = simulate(real, sent, &[count], REAL + run).pop().expect("a path");
    for (number, delay) in train.delays.iter_mut().enumerate() {
        let unit = (mix((run << 32 | number) as u64) >> 11) as f64 / (1u64 << 53) as f64;
        let late = -60e-6 * (1.0 - unit).ln() + if unit > 0.998 { 20e-3 } else { 0.0 };
        *delay = delay.map(|delay| delay + late);
    }
    train
}

struct Bench {
    sent: Vec<Sent>,
    needed: u32,
    expected: Expected,
    table: Timetable,
    asked: World,
}

impl Bench {
    fn new(asked: World, effort: Effort) -> Self {
        let table = Timetable::of(&asked, &[1500], effort);
        let sent = timetable::packets(&table.trains);
        let expected = expect(&asked, &sent).pop().expect("a path");
        Self { needed: table.trains[0].needed, sent, expected, table, asked }
    }

    fn checks(&self, real: &World, run: usize) -> Vec<Check> {
        judge::train(&self.expected, &measured(real, &self.sent, run), self.needed, 0.0)
    }

    /// How the rate of a link comes out.
    fn rate(&self, real: &World) -> Check {
        let flood = self.table.floods[0].as_ref().expect("a rate");
        let (expected, _) = rate(&self.asked, &flood.packets(0), &|arrivals| flood.reckon(arrivals));
        let (received, _) = rate(real, &flood.packets(0), &|arrivals| flood.reckon(arrivals));
        let received = received.map(|range| range.low);
        judge::rate(expected, flood.rate, Flooded { offered: flood.rate * 1.2, received, took: None, overflown: false })
    }

    /// How the queue of a link comes out.
    fn queue(&self, real: &World) -> Option<Check> {
        let flood = self.table.floods[0].as_ref().expect("a rate");
        let took = expect::standing(real, &flood.packets(0), flood).map(|range| range.low + 60e-6);
        let flooded = Flooded { offered: flood.rate * 1.2, received: None, took, overflown: false };
        judge::queue(expect::standing(&self.asked, &flood.packets(0), flood), flood, flooded, 0.0)
    }
}

fn is_off(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.verdict == Verdict::Off)
}

const WORDS: &[&str] = &[
    "delay=20ms",
    "delay=20ms loss=10%",
    "delay=10ms reorder=25% gap=5",
    "delay=20ms reorder=10% reorder_correlation=50%",
    "delay=2ms jitter=10ms distribution=normal",
    "delay=5ms jitter=20ms",
    "delay=10ms jitter=3ms distribution=pareto loss=1%",
    "delay=10ms jitter=5ms delay_correlation=75%",
    "delay=20ms jitter=10ms rate=1mbit",
    "loss=20% duplicate=20% corrupt=20%",
    "loss=gemodel 2% 10% 70% 0.5%",
    "loss=state 2% 20% 20% 50% 1%",
    "loss=5% loss_correlation=50%",
    "delay=20ms limit=5",
    "rate=64kbit",
    "delay=10ms loss=2%|delay=5ms jitter=2ms duplicate=5%",
];

#[test]
fn links_made_right_pass_199_times_of_200() {
    let mut off = Vec::new();
    let mut all = 0;
    for mechanism in [Mechanism::Wire, Mechanism::Netem] {
        for words in WORDS {
            let bench = Bench::new(link(mechanism, words), Effort { packets: Some(400), ..Effort::default() });
            for run in 0..LINKS {
                let checks = bench.checks(&bench.asked, run);
                all += 1;
                if is_off(&checks) {
                    off.push(format!("{mechanism} {words}: {checks:?}"));
                }
            }
        }
    }
    // Seeds are the same each time, and so is this.
    assert!(off.len() * 200 <= all, "{} of {all} are off: {}", off.len(), off.join("\n"));
}

#[test]
fn links_made_wrong_fail() {
    for (asked, made) in [
        // 1 ms of delay.
        ("delay=20ms", "delay=21ms"),
        ("delay=20ms", "delay=19ms"),
        ("delay=20ms jitter=2ms", "delay=21500us jitter=2ms"),
        // No delay where one is asked, and the other way round.
        ("delay=2ms", "delay=0ms"),
        // Jitter of double the width.
        ("delay=20ms jitter=5ms", "delay=20ms jitter=10ms"),
        // Double, and no, loss.
        ("loss=5%", "loss=10%"),
        ("loss=5%", "delay=0ms"),
        ("delay=0ms", "loss=2%"),
        ("loss=gemodel 5% 50%", "loss=gemodel 15% 50%"),
        // Double, and no, duplicates and damage.
        ("duplicate=5%", "duplicate=10%"),
        ("duplicate=5%", "duplicate=0%"),
        ("corrupt=5%", "corrupt=10%"),
        // A gap that is not kept.
        ("delay=20ms reorder=25% gap=5", "delay=20ms reorder=25%"),
        ("delay=20ms reorder=25% gap=5", "delay=20ms"),
        // A queue of twice the room.
        ("delay=20ms limit=5", "delay=20ms limit=10"),
    ] {
        let bench = Bench::new(link(Mechanism::Wire, asked), Effort::default());
        let real = link(Mechanism::Wire, made);
        let missed = (0..LINKS).filter(|&run| !is_off(&bench.checks(&real, run))).count();
        assert!(missed <= 1, "{made} for {asked}: {missed} of {LINKS} pass; {:?}", bench.checks(&real, 0));
    }
}

#[test]
fn what_few_packets_cannot_tell_is_not_judged() {
    let bench = Bench::new(link(Mechanism::Wire, "loss=0.01%"), Effort { packets: Some(1000), ..Effort::default() });
    let checks = bench.checks(&bench.asked, 1);
    assert_eq!(checks[0].verdict, Verdict::Unknown, "{checks:?}");
    assert!(checks[0].note.as_ref().is_some_and(|note| note.contains("700000 would do")), "{checks:?}");
    let bench = Bench::new(link(Mechanism::Wire, "loss=2%"), Effort::default());
    assert_eq!(bench.checks(&bench.asked, 1)[0].verdict, Verdict::Met, "as many as it takes are sent");
}

#[test]
fn a_token_bucket_adds_no_delay() {
    let bench = Bench::new(link(Mechanism::Tbf, "rate=10mbit"), Effort::default());
    let whats: Vec<String> = bench.checks(&bench.asked, 0).into_iter().map(|check| check.what).collect();
    assert_eq!(whats, ["loss"]);
    let wire = Bench::new(link(Mechanism::Wire, "rate=10mbit"), Effort::default());
    let delay = wire.expected.delay.expect("a packet takes its time on a wire");
    assert!((delay.expected - 64.0 * 8.0 / 1e7).abs() < 1e-8, "{delay:?}");
}

#[test]
fn a_rate_is_held_to_what_the_mechanism_makes_of_it() {
    for mechanism in [Mechanism::Tbf, Mechanism::Wire, Mechanism::Netem] {
        for asked in [8_000u64, 64_000, 1_000_000, 100_000_000] {
            let with = |rate: u64| link(mechanism, &format!("rate={rate}bit"));
            let bench = Bench::new(with(asked), Effort::default());
            let [right, less, more] = [asked, asked * 9 / 10, asked * 11 / 10].map(|rate| bench.rate(&with(rate)));
            assert_eq!(right.verdict, Verdict::Met, "{mechanism} {asked}: {right:?}");
            assert!((right.asked / asked as f64 - 1.0).abs() < 0.02, "{mechanism} {asked}: {right:?}");
            assert_eq!(less.verdict, Verdict::Off, "{mechanism} {asked}, 10 % less: {less:?}");
            assert_eq!(more.verdict, Verdict::Off, "{mechanism} {asked}, 10 % more: {more:?}");
        }
    }
    // Loss before the rate costs nothing of it, damage and loss behind it do.
    let of = |words: &str| {
        let bench = Bench::new(link(Mechanism::Wire, words), Effort::default());
        bench.rate(&bench.asked).asked
    };
    assert!((of("rate=10mbit loss=20%") / 1e7 - 1.0).abs() < 0.02);
    assert!((of("rate=10mbit corrupt=20%") / 8e6 - 1.0).abs() < 0.03);
    assert!((of("rate=10mbit|loss=50%") / 5e6 - 1.0).abs() < 0.04);
    assert!((of("rate=10mbit|rate=4mbit") / 4e6 - 1.0).abs() < 0.02);
}

#[test]
fn a_queue_is_told_by_how_long_packets_take_while_it_is_full() {
    for mechanism in [Mechanism::Wire, Mechanism::Tbf, Mechanism::Netem] {
        for (rate, queue) in [("64kbit", 5), ("1mbit", 2), ("1mbit", 30), ("100mbit", 200)] {
            let with = |queue: u32| link(mechanism, &format!("rate={rate} queue={queue}"));
            let bench = Bench::new(with(queue), Effort::default());
            let verdict = |queue| bench.queue(&with(queue)).expect("one is asked");
            assert_eq!(verdict(queue).verdict, Verdict::Met, "{mechanism} {rate} {queue}: {:?}", verdict(queue));
            for wrong in [queue * 2, queue * 10] {
                assert_eq!(verdict(wrong).verdict, Verdict::Off, "{mechanism} {rate} {wrong}: {:?}", verdict(wrong));
            }
            let shorter = bench.queue(&with((queue / 2).max(1))).expect("one is asked").verdict;
            assert!(queue < 4 || shorter == Verdict::Off, "{mechanism} {rate} {queue}, half");
        }
        assert!(
            Bench::new(link(mechanism, "rate=1mbit"), Effort::default())
                .queue(&link(mechanism, "rate=1mbit"))
                .is_none()
        );
    }
    // Packets that are delayed do not count: the queue is as long, and all take the delay too.
    let with = |words: &str| link(Mechanism::Wire, words);
    let bench = Bench::new(with("rate=1mbit delay=200ms queue=10"), Effort::default());
    assert_eq!(bench.queue(&with("rate=1mbit delay=200ms queue=10")).expect("asked").verdict, Verdict::Met);
    assert_eq!(bench.queue(&with("rate=1mbit delay=200ms limit=10")).expect("asked").verdict, Verdict::Off);
}

#[test]
fn what_is_expected_is_what_the_mechanism_makes() {
    let of = |mechanism, words: &str| {
        Bench::new(link(mechanism, words), Effort { packets: Some(4000), ..Effort::default() }).expected
    };
    for mechanism in [Mechanism::Wire, Mechanism::Netem] {
        // Four are delayed, then one of four goes ahead: one of eight.
        let Some(super::expect::Reorder::Share(reorder)) = of(mechanism, "delay=10ms reorder=25% gap=5").reorder else {
            panic!("it can be told")
        };
        assert!((reorder.expected - 0.125).abs() < 0.003, "{mechanism}: {reorder:?}");
        // A copy makes up for a loss: lost is what is lost and not copied, or damaged.
        let loss = of(mechanism, "loss=20% duplicate=20% corrupt=20%").loss.expect("always");
        let (l, d, c) = (0.2, 0.2, 0.2);
        let alone = l * d + (1.0 - l) * (1.0 - d);
        let two = (1.0 - l) * d;
        let expected = l * (1.0 - d) + alone * c + two * c * (1.0 - (1.0 - l) * (1.0 - c));
        assert!((loss.expected - expected).abs() < 0.012, "{mechanism}: {loss:?} {expected}");
        // A jitter that keeps order: a packet waits for those before it, and the median is above the asked delay.
        let delay = of(mechanism, "delay=20ms jitter=10ms rate=100mbit").delay.expect("a delay");
        assert!(delay.expected > 0.024, "{mechanism}: {delay:?}");
        // Five of twenty that come while one is under way.
        let loss = of(mechanism, "delay=20ms limit=5").loss.expect("always");
        assert!((loss.expected - 0.75).abs() < 0.02, "{mechanism}: {loss:?}");
    }
    // netem averages a draw with the one before it: a rare loss almost vanishes.
    let rare = of(Mechanism::Netem, "loss=1% loss_correlation=50%").loss.expect("always").expected;
    assert!(rare < 0.002, "{rare}");
    let rare = of(Mechanism::Wire, "loss=1% loss_correlation=50%").loss.expect("always").expected;
    assert!((rare - 0.01).abs() < 0.002, "{rare}");
}

#[test]
fn a_way_through_gateways_is_all_its_links() {
    let wire = Mechanism::Wire;
    let mut gateway = interface(1, wire, "delay=20ms loss=10%", "delay=2ms");
    // A rule between nodes is about the last link alone.
    gateway.egress.peers.push(PeerReport {
        node: NodeId(2),
        conditions: "delay=30ms loss=10%".parse::<LinkChange>().expect("words").set,
        own: "delay=30ms".parse::<LinkChange>().expect("words").set,
    });
    let mut first = interface(0, wire, "delay=5ms loss=20%", "");
    first.egress.peers.push(PeerReport {
        node: NodeId(2),
        conditions: "delay=500ms loss=20%".parse::<LinkChange>().expect("words").set,
        own: "delay=500ms".parse::<LinkChange>().expect("words").set,
    });
    let last = interface(2, wire, "", "corrupt=50%");
    let bench = Bench::new(world(vec![first, gateway, last], &[(0, 1), (1, 2)]), Effort::default());
    let Expected { delay: Some(delay), loss: Some(loss), .. } = bench.expected else { panic!("{:?}", bench.expected) };
    assert!((delay.expected - 0.037).abs() < 1e-6, "{delay:?}");
    assert!((loss.expected - (1.0 - 0.8 * 0.9 * 0.5)).abs() < 0.01, "{loss:?}");
}

#[test]
fn a_train_fits_into_its_time() {
    let seconds = |seconds| Effort { time: Some(std::time::Duration::from_secs(seconds)), ..Effort::default() };
    let slow = link(Mechanism::Wire, "rate=64kbit");
    let lasts = |effort: Effort| Timetable::of(&slow, &[1500], effort).lasts(effort).as_secs_f64();
    assert!(lasts(Effort::default()) <= 16.0, "{}", lasts(Effort::default()));
    assert!(lasts(seconds(5)) <= 5.5, "{}", lasts(seconds(5)));
    let quick = link(Mechanism::Wire, "delay=20ms");
    let table = Timetable::of(&quick, &[1500], seconds(10));
    assert_eq!((table.trains[0].packets, table.trains[0].interval.as_millis()), (1000, 1));
    assert!(table.lasts(seconds(10)).as_secs_f64() < 2.0);
}

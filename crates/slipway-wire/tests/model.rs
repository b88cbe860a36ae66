//! The model against what was asked of it, in virtual time: no clock, no process, the same on every machine.

use std::net::IpAddr;

use proptest::prelude::*;
use slipway_document::units::{Fraction, Rate, Seconds};
use slipway_lab::condition::{Distribution, LinkConditions, Loss};
use slipway_sys::tap::VnetHeader;
use slipway_wire::link::{Delivery, Link, Packet, PeerIndex};
use slipway_wire::{Direction, Peer, Spec, default_limit, frame, segment};

const PACKETS: u32 = 100_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn spec(all: LinkConditions) -> Spec {
    Spec { direction: Direction::Egress, seed: [7; 32], all, peers: Vec::new(), mtu: 1500 }
}

#[allow(clippy::unnecessary_wraps, reason = "conditions are optional")]
fn share(percent: f64) -> Option<Fraction> {
    Some(Fraction(percent / 100.0))
}

#[allow(clippy::unnecessary_wraps, reason = "conditions are optional")]
fn ms(milliseconds: f64) -> Option<Seconds> {
    Some(Seconds(milliseconds / 1e3))
}

fn packet(bytes: u32) -> Packet {
    Packet { peer: None, bytes, packets: 1 }
}

/// Passes one packet, and has it leave at once.
fn pass(link: &mut Link, now: u64, packet: Packet) -> Vec<Delivery> {
    let verdict = link.pass(now, packet);
    let out: Vec<Delivery> = verdict.copy.into_iter().chain(verdict.itself).collect();
    for _ in &out {
        link.leave(packet);
    }
    out
}

/// Which of so many packets are lost.
fn losses(all: LinkConditions, packets: u32) -> Vec<bool> {
    let mut link = Link::new(&spec(all));
    (0..packets).map(|_| pass(&mut link, 0, packet(100)).is_empty()).collect()
}

fn count(events: &[bool]) -> f64 {
    events.iter().filter(|event| **event).count() as f64
}

/// Correlation of each event with the next.
fn correlation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / variance
}

fn as_numbers(events: &[bool]) -> Vec<f64> {
    events.iter().map(|event| f64::from(u8::from(*event))).collect()
}

/// The 99 % interval of a count with this share, as far as it may lie from the expected one.
fn interval(share: f64, packets: u32) -> f64 {
    2.576 * (share * (1.0 - share) * f64::from(packets)).sqrt() + 0.5
}

#[test]
fn random_loss_is_within_its_binomial_interval() {
    for percent in [0.05, 0.5, 1.0, 20.0, 50.0] {
        let lost = count(&losses(
            LinkConditions { loss: Some(Loss::Random(Fraction(percent / 100.0))), ..Default::default() },
            PACKETS,
        ));
        let expected = percent / 100.0 * f64::from(PACKETS);
        assert!((lost - expected).abs() <= interval(percent / 100.0, PACKETS), "{percent}%: {lost} of {expected}");
    }
    let all = |percent| {
        count(&losses(
            LinkConditions { loss: Some(Loss::Random(Fraction(percent / 100.0))), ..Default::default() },
            1000,
        ))
    };
    assert!(all(0.0) < 1.0 && all(100.0) > 999.0);
}

#[test]
fn correlated_loss_keeps_its_share() {
    let lost = losses(
        LinkConditions {
            loss: Some(Loss::Random(Fraction(0.01))),
            loss_correlation: share(25.0),
            ..Default::default()
        },
        10 * PACKETS,
    );
    // A chain with correlation r has the variance of a binomial count times (1 + r) / (1 - r).
    let wide = interval(0.01, 10 * PACKETS) * (1.25_f64 / 0.75).sqrt();
    assert!((count(&lost) - 10_000.0).abs() < wide, "{}", count(&lost));
    let correlation = correlation(&as_numbers(&lost));
    assert!((correlation - 0.25).abs() < 0.03, "{correlation}");
}

#[test]
fn gilbert_elliott_has_its_share_and_its_bursts() {
    let (p, r, bad, good) = (0.01, 0.1, 0.7, 0.001);
    let model = Loss::GilbertElliott {
        p: Fraction(p),
        r: Fraction(r),
        one_minus_h: Fraction(bad),
        one_minus_k: Fraction(good),
    };
    let lost = losses(LinkConditions { loss: Some(model), ..Default::default() }, 10 * PACKETS);
    let in_bad = p / (p + r);
    let (expected, share) = (in_bad * bad + (1.0 - in_bad) * good, count(&lost) / f64::from(10 * PACKETS));
    assert!((share / expected - 1.0).abs() < 0.03, "{share} of {expected}");
    // Of the states, the correlation from one to the next is 1 - p - r; only a part of the losses' variance is theirs.
    let of_states = (bad - good).powi(2) * in_bad * (1.0 - in_bad);
    let expected = of_states * (1.0 - p - r) / (expected * (1.0 - expected));
    let correlation = correlation(&as_numbers(&lost));
    assert!((correlation - expected).abs() < 0.02, "{correlation} of {expected}");
}

#[test]
fn four_states_have_their_share_and_their_lengths() {
    let model = "state 1% 30% 20% 60% 0.5%".parse().expect("a model");
    let lost = losses(LinkConditions { loss: Some(model), ..Default::default() }, 10 * PACKETS);
    // In balance: 4 is entered by p14 of 1 and left at once; 2 and 3 exchange by p32 and p23; 3 and 1 by p13 and p31.
    let (good, alone, bad) = (1.0, 0.005, 0.01 / 0.3);
    let between = bad * 0.2 / 0.6;
    let expected = (bad + alone) / (good + alone + bad + between);
    let share = count(&lost) / f64::from(10 * PACKETS);
    assert!((share / expected - 1.0).abs() < 0.03, "{share} of {expected}");
}

fn delays(all: LinkConditions, packets: u32) -> Vec<f64> {
    let mut link = Link::new(&spec(all));
    (0..packets).flat_map(|_| pass(&mut link, 0, packet(100))).map(|out| out.due as f64 / MS as f64).collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

#[test]
fn jitter_has_its_shape() {
    // Mean and deviation of iproute2's tables, in units of jitter (a uniform one's half width is the jitter).
    for (shape, mean, deviation) in [
        (Distribution::Uniform, 0.0, 1.0 / 3.0_f64.sqrt()),
        (Distribution::Normal, 0.0, 1.0),
        (Distribution::Pareto, -0.033, 0.820),
        (Distribution::Paretonormal, -0.025, 0.834),
    ] {
        for correlated in [None, share(50.0)] {
            let all = LinkConditions {
                delay: ms(100.0),
                jitter: ms(10.0),
                distribution: Some(shape),
                delay_correlation: correlated,
                ..Default::default()
            };
            let delays = delays(all, 2 * PACKETS);
            let (is_mean, is_deviation) = mean_and_deviation(&delays);
            assert!((is_mean - 100.0 - 10.0 * mean).abs() < 0.1, "{shape:?} {correlated:?}: mean {is_mean}");
            assert!(
                (is_deviation - 10.0 * deviation).abs() < 0.1,
                "{shape:?} {correlated:?}: deviation {is_deviation}"
            );
            if shape == Distribution::Normal {
                let expected = correlated.map_or(0.0, |share| share.0);
                assert!((correlation(&delays) - expected).abs() < 0.01, "{}", correlation(&delays));
            }
        }
    }
}

#[test]
fn jitter_beyond_the_delay_never_goes_back_in_time() {
    let all = LinkConditions {
        delay: ms(1.0),
        jitter: ms(100.0),
        distribution: Some(Distribution::Normal),
        ..Default::default()
    };
    let mut link = Link::new(&spec(all));
    for now in (0..1000).map(|n| n * MS) {
        assert!(pass(&mut link, now, packet(100)).iter().all(|out| out.due >= now));
    }
}

#[test]
fn a_rate_is_exact_to_the_nanosecond_however_short_packets_last() {
    for (rate, bytes) in [(1_000_000, 1514), (3_000_000_000, 64), (100_000_000_000, 60), (7, 1)] {
        let all = LinkConditions { rate: Some(Rate(rate)), limit: Some(u32::MAX), ..Default::default() };
        let mut link = Link::new(&spec(all));
        let last = (0..PACKETS).flat_map(|_| pass(&mut link, 5, packet(bytes))).last().expect("none is lost");
        let exact = u128::from(PACKETS) * u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(rate);
        assert_eq!(u128::from(last.due) - 5, exact, "{rate} bit/s");
    }
}

#[test]
fn a_packet_waits_behind_those_before_it_and_an_idle_link_saves_nothing_up() {
    let all = LinkConditions { rate: Some(Rate(8_000_000)), delay: ms(10.0), ..Default::default() };
    let mut link = Link::new(&spec(all));
    // 1000 bytes last 1 ms. Waiting counts as a part of the delay's way, as netem has it.
    let mut due = |now| pass(&mut link, now, packet(1000))[0].due;
    assert_eq!(due(0), 11 * MS);
    assert_eq!(due(0), 12 * MS);
    assert_eq!(due(MS / 2), 13 * MS);
    assert_eq!(due(SECOND), SECOND + 11 * MS);
    assert_eq!(due(SECOND), SECOND + 12 * MS);
}

#[test]
fn a_machine_that_is_late_makes_no_link_slower() {
    // 1000 bytes last 1 ms. Two come each; of every second, the link is looked at for 950 ms only.
    for delay in [0u32, 20] {
        let all = LinkConditions {
            rate: Some(Rate(8_000_000)),
            delay: ms(delay.into()),
            limit: Some(200),
            ..Default::default()
        };
        let mut link = Link::new(&spec(all));
        let delay = u64::from(delay) * MS;
        let (mut out, mut waiting) = (0, std::collections::VecDeque::new());
        for came in (0..20_000).map(|number| number * MS / 2) {
            let now = if came % SECOND < 950 * MS { came } else { came.next_multiple_of(SECOND) };
            link.waited_since(came);
            while waiting.front().is_some_and(|due| *due <= now) {
                waiting.pop_front();
                link.leave(packet(1000));
                out += 1;
            }
            if let Some(delivery) = link.pass(now, packet(1000)).itself {
                assert!(delivery.due >= now + delay);
                waiting.push_back(delivery.due);
            }
        }
        assert!((9_900..=10_030).contains(&out), "{out} in 10 s, delay {delay}");
        // When it was idle meanwhile, nothing is saved up.
        waiting.drain(..).for_each(|_| link.leave(packet(1000)));
        let now = 20 * SECOND;
        link.waited_since(now);
        assert_eq!(link.pass(now, packet(1000)).itself.map(|delivery| delivery.due), Some(now + delay + MS));
    }
}

/// The times of packets of 1000 bytes that came at 0 and wait while the rate changes at 2.5 ms, microseconds.
fn retimed(mut before: Spec, rate: Option<u64>, packets: &[u8]) -> Vec<u64> {
    let mut link = Link::new(&before);
    let mut waiting: Vec<(Packet, Delivery)> = packets
        .iter()
        .map(|&number| {
            let packet = to(&link, number, 1000);
            (packet, link.pass(0, packet).itself.expect("none is lost"))
        })
        .collect();
    before.all.rate = rate.map(Rate);
    link.set(5 * MS / 2, &before, waiting.iter_mut().map(|(packet, delivery)| (*packet, delivery)));
    let next = to(&link, packets[0], 1000);
    waiting.push((next, link.pass(5 * MS / 2, next).itself.expect("none is lost")));
    waiting.into_iter().map(|(_, delivery)| delivery.due / 1000).collect()
}

#[test]
fn what_waits_follows_a_change_of_the_rate() {
    let all = |delay| LinkConditions { delay: ms(delay), rate: Some(Rate(8_000_000)), ..Default::default() };
    // 1000 bytes last 1 ms, and then 0.1, 10 ms, or no time. Half of the third is sent when the change comes.
    let queue = |rate| retimed(spec(all(0.0)), rate, &[9; 5]);
    assert_eq!(queue(Some(80_000_000)), [1000, 2000, 2550, 2650, 2750, 2850]);
    assert_eq!(queue(Some(800_000)), [1000, 2000, 7500, 17_500, 27_500, 37_500]);
    assert_eq!(queue(None), [1000, 2000, 2500, 2500, 2500, 2500]);
    // All are still on their way to the transmitter.
    assert_eq!(retimed(spec(all(5.0)), Some(80_000_000), &[9; 3]), [5100, 5200, 5300, 7600]);
    // Through the port's rate first, then delayed.
    let peers = vec![peer(2, LinkConditions { delay: ms(20.0), ..Default::default() })];
    let pairs = Spec { peers, ..spec(all(0.0)) };
    assert_eq!(retimed(pairs, Some(80_000_000), &[2, 9, 2, 2]), [21_000, 2000, 22_550, 22_650, 22_750]);
}

#[test]
fn every_fifth_packet_overtakes() {
    let all = LinkConditions { delay: ms(10.0), gap: Some(5), ..Default::default() };
    let mut link = Link::new(&spec(all));
    let ahead: Vec<bool> = (0..20).map(|_| pass(&mut link, 0, packet(100))[0].due == 0).collect();
    let expected: Vec<bool> = (1..=20).map(|number| number % 5 == 0).collect();
    assert_eq!(ahead, expected);
    assert_eq!(link.counts().reordered, 4);
}

#[test]
fn shares_of_the_other_events_are_within_their_intervals() {
    let all = LinkConditions {
        delay: ms(10.0),
        corrupt: share(1.0),
        duplicate: share(2.0),
        reorder: share(25.0),
        reorder_correlation: share(50.0),
        ..Default::default()
    };
    let mut link = Link::new(&spec(all));
    let out: usize = (0..PACKETS).map(|_| pass(&mut link, 0, packet(100)).len()).sum();
    let counts = link.counts();
    assert_eq!(out as u64, u64::from(PACKETS) + counts.duplicated);
    let near = |count: u64, share: f64, packets: u32, wider: f64| {
        let expected = share * f64::from(packets);
        assert!((count as f64 - expected).abs() < wider * interval(share, packets), "{count} of {expected}");
    };
    near(counts.duplicated, 0.02, PACKETS, 1.0);
    near(counts.corrupted, 0.01, PACKETS + 2000, 1.0);
    near(counts.reordered, 0.25, PACKETS + 2000, 3.0_f64.sqrt());
}

#[test]
fn a_loss_set_does_not_change_the_delays_of_those_that_come() {
    let all = LinkConditions {
        delay: ms(10.0),
        jitter: ms(3.0),
        delay_correlation: share(30.0),
        corrupt: share(5.0),
        ..Default::default()
    };
    let mut whole = Link::new(&spec(all.clone()));
    let mut lossy = Link::new(&spec(LinkConditions { loss: Some(Loss::Random(Fraction(0.3))), ..all }));
    for _ in 0..2000 {
        let (expected, came) = (pass(&mut whole, 0, packet(100)), pass(&mut lossy, 0, packet(100)));
        assert!(came.is_empty() || came == expected);
    }
}

#[test]
fn the_same_seed_gives_the_same_link_and_another_seed_another() {
    let all = LinkConditions {
        delay: ms(10.0),
        jitter: ms(2.0),
        distribution: Some(Distribution::Paretonormal),
        loss: Some("gemodel 20% 40%".parse().expect("a model")),
        corrupt: share(20.0),
        duplicate: share(20.0),
        reorder: share(10.0),
        rate: Some(Rate(100_000_000)),
        ..Default::default()
    };
    let story = |seed: u8| {
        let mut link = Link::new(&Spec { seed: [seed; 32], ..spec(all.clone()) });
        let told = |number: u64| {
            let now = number * MS / 10;
            let out = pass(&mut link, now, packet(1000));
            let words: Vec<String> = out
                .iter()
                .map(|out| {
                    format!("{}{}", out.due - now, out.damage.map_or(String::new(), |at| format!(" at {at:.6}")))
                })
                .collect();
            if words.is_empty() { "lost".to_owned() } else { words.join(", copy of ") }
        };
        (0..20).map(told).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
    // The same on every machine, and in every version: an experiment that is repeated later gives what it gave.
    insta::assert_snapshot!(story(1));
}

fn addresses(number: u8) -> Vec<IpAddr> {
    vec![IpAddr::from([10, 64, 0, number]), format!("fd53::{number:x}").parse().expect("an address")]
}

fn peer(number: u8, conditions: LinkConditions) -> Peer {
    Peer { addresses: addresses(number), seed: [number; 32], conditions }
}

fn to(link: &Link, number: u8, bytes: u32) -> Packet {
    Packet { peer: link.peer_at(addresses(number)[0]), ..packet(bytes) }
}

#[test]
fn a_pairs_keys_hold_over_the_ports() {
    let all = LinkConditions { delay: ms(5.0), loss: Some(Loss::Random(Fraction(1.0))), ..Default::default() };
    let peers = vec![
        peer(2, LinkConditions { loss: Some(Loss::Random(Fraction(0.0))), ..Default::default() }),
        peer(3, LinkConditions { delay: ms(100.0), loss: Some(Loss::Random(Fraction(0.0))), ..Default::default() }),
        peer(4, LinkConditions { delay: ms(1.0), ..Default::default() }),
    ];
    let mut link = Link::new(&Spec { peers, ..spec(all) });
    let mut due = |number| {
        let packet = to(&link, number, 100);
        pass(&mut link, 0, packet).first().map(|out| out.due)
    };
    assert_eq!((due(2), due(3), due(4), due(5)), (Some(5 * MS), Some(100 * MS), None, None));
    let both: Vec<Option<PeerIndex>> = addresses(3).into_iter().map(|address| link.peer_at(address)).collect();
    assert!(both[0].is_some() && both[0] == both[1], "one peer has both addresses");
}

#[test]
fn a_far_peer_does_not_hold_up_a_near_one_and_both_share_the_ports_rate() {
    // 1000 bytes last 1 ms by the port's rate, 10 ms by the rate of peer 4.
    let all = LinkConditions { rate: Some(Rate(8_000_000)), ..Default::default() };
    let peers = vec![
        peer(2, LinkConditions { delay: ms(1.0), ..Default::default() }),
        peer(3, LinkConditions { delay: ms(200.0), ..Default::default() }),
        peer(4, LinkConditions { rate: Some(Rate(800_000)), ..Default::default() }),
    ];
    let mut link = Link::new(&Spec { peers, ..spec(all) });
    let due: Vec<u64> = [3, 2, 4, 4, 9]
        .into_iter()
        .map(|number| {
            let packet = to(&link, number, 1000);
            pass(&mut link, 0, packet)[0].due / MS
        })
        .collect();
    assert_eq!(due, [1 + 200, 2 + 1, 3 + 10, 3 + 20, 5]);
}

#[test]
fn a_change_leaves_what_it_does_not_name() {
    let peers = |delay| {
        vec![peer(
            2,
            LinkConditions { delay: ms(delay), loss: Some(Loss::Random(Fraction(0.5))), ..Default::default() },
        )]
    };
    let story = |change: bool| {
        let mut link = Link::new(&Spec { peers: peers(1.0), ..spec(LinkConditions::default()) });
        let mut lost = Vec::new();
        for number in 0..200 {
            if change && number == 100 {
                link.set(
                    0,
                    &Spec { peers: peers(9.0), ..spec(LinkConditions { corrupt: share(1.0), ..Default::default() }) },
                    [],
                );
            }
            let packet = to(&link, 2, 100);
            lost.push(pass(&mut link, 0, packet).is_empty());
        }
        lost
    };
    assert_eq!(story(false), story(true));

    let mut link = Link::new(&Spec { peers: peers(1.0), ..spec(LinkConditions::default()) });
    let waits = to(&link, 2, 100);
    while link.pass(0, waits).itself.is_none() {}
    link.set(0, &spec(LinkConditions::default()), []);
    assert_eq!(link.peer_at(addresses(2)[0]), None);
    link.leave(waits);
    assert_eq!(link.waiting(), (0, 0));
}

#[test]
fn no_more_wait_than_may() {
    let all = LinkConditions { delay: ms(10.0), limit: Some(10), ..Default::default() };
    let peers = vec![peer(2, LinkConditions { limit: Some(3), ..Default::default() })];
    let mut link = Link::new(&Spec { peers, ..spec(all) });
    let near = to(&link, 2, 100);
    let came =
        |link: &mut Link, packet, times: u32| (0..times).filter(|_| link.pass(0, packet).itself.is_some()).count();
    assert_eq!(came(&mut link, near, 5), 3);
    assert_eq!(came(&mut link, packet(100), 20), 7);
    assert_eq!(link.counts().over_limit, 2 + 13);
    link.leave(near);
    assert_eq!(came(&mut link, near, 5), 1);
    // Large ones are held to what so many packets of the MTU have.
    let mut link = Link::new(&spec(LinkConditions { delay: ms(10.0), limit: Some(100), ..Default::default() }));
    assert_eq!(came(&mut link, packet(60_000), 5), 2);
}

/// Packets of 1250 bytes at 10 Mbit/s: one each millisecond.
fn queued(queue: u32, delay: f64) -> LinkConditions {
    LinkConditions { delay: ms(delay), rate: Some(Rate(10_000_000)), queue: Some(queue), ..Default::default() }
}

/// When packets that come at these times, in milliseconds, come out; `None` for those without room.
fn come_out(link: &mut Link, packet: Packet, times: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
    let out = |delivery: Delivery| delivery.due / MS;
    times.into_iter().map(|at| link.pass(at * MS, packet).itself.map(out)).collect()
}

#[test]
fn what_is_delayed_does_not_wait_for_the_rate() {
    // A hundred are under way, and none waits.
    let mut link = Link::new(&spec(queued(3, 100.0)));
    assert!(come_out(&mut link, packet(1250), 0..200).iter().all(Option::is_some));
    // Of six that come at once, three find room, the one that is being sent among them; a millisecond later, one.
    let mut link = Link::new(&spec(queued(3, 20.0)));
    let out = come_out(&mut link, packet(1250), [0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(out, [Some(21), Some(22), Some(23), None, None, None, Some(24), None]);
    assert_eq!((link.counts().over_limit, link.waiting().0), (4, 4));
    // A limit counts them all.
    let mut link = Link::new(&spec(LinkConditions { limit: Some(3), ..queued(30, 20.0) }));
    assert_eq!(come_out(&mut link, packet(1250), [0; 5]).iter().flatten().count(), 3);
}

#[test]
fn a_rate_that_changes_leaves_the_queue_as_long_as_it_is() {
    let mut link = Link::new(&spec(queued(4, 0.0)));
    let mut waiting: Vec<(Packet, Delivery)> =
        (0..4).filter_map(|_| Some((packet(1250), link.pass(0, packet(1250)).itself?))).collect();
    assert_eq!(waiting.len(), 4);
    let slower = LinkConditions { rate: Some(Rate(1_000_000)), ..queued(4, 0.0) };
    link.set(0, &spec(slower.clone()), waiting.iter_mut().map(|(packet, delivery)| (*packet, delivery)));
    assert_eq!(come_out(&mut link, packet(1250), [5]), [None], "all four wait ten times as long");
    link.set(5 * MS, &spec(LinkConditions { queue: Some(5), ..slower }), []);
    assert_eq!(come_out(&mut link, packet(1250), [5, 5]), [Some(50), None], "room for one more");
}

#[test]
fn pairs_have_queues_of_their_own() {
    let ten = Some(Rate(10_000_000));
    let all = LinkConditions { rate: ten, queue: Some(6), ..Default::default() };
    // At a rate of its own, with the port's queue and with its own; and at the port's rate.
    let own_rate = LinkConditions { rate: Some(Rate(5_000_000)), delay: ms(10.0), ..Default::default() };
    let peers = vec![
        peer(2, own_rate.clone()),
        peer(3, LinkConditions { queue: Some(2), ..own_rate }),
        peer(4, LinkConditions { queue: Some(2), ..Default::default() }),
    ];
    let out = |number: u8| {
        let mut link = Link::new(&Spec { peers: peers.clone(), ..spec(all.clone()) });
        let near = to(&link, number, 1250);
        let came = come_out(&mut link, near, [0; 8]).into_iter().flatten().count();
        assert_eq!(link.waiting().0, came as u64);
        (came, come_out(&mut link, packet(1250), [0; 8]).into_iter().flatten().count())
    };
    assert_eq!(out(2), (6, 0), "the port's queue is full, the pair's is emptied at half its pace");
    assert_eq!(out(3).0, 4, "a packet is sent by the pair for two that come from the port");
    assert_eq!(out(4), (2, 4), "others have the rest of the port's queue");
}

proptest! {
    /// Whatever comes when: never more wait than may, and a packet that finds room is sent as if there were no others lost.
    #[test]
    fn no_more_wait_for_a_rate_than_may(
        queue in 1u32..20,
        delay in 0u64..30,
        pauses in proptest::collection::vec(0u64..3 * MS, 1..300),
    ) {
        let mut link = Link::new(&spec(queued(queue, delay as f64)));
        let (mut now, mut done): (u64, Vec<u64>) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            let at = now + delay * MS;
            let waits = done.iter().filter(|&&done| done > at).count();
            let itself = link.pass(now, packet(1250)).itself;
            prop_assert_eq!(itself.is_some(), waits < queue as usize);
            if let Some(delivery) = itself {
                prop_assert_eq!(delivery.due, done.last().map_or(at, |&last| last.max(at)) + MS);
                done.push(delivery.due);
            }
        }
    }
}

#[test]
fn the_limit_follows_rate_and_delay() {
    let limit = |rate: Option<u64>, delay: f64| {
        default_limit(&LinkConditions { rate: rate.map(Rate), delay: ms(delay), ..Default::default() }, 1500)
    };
    assert_eq!(limit(None, 0.0), 1000);
    assert_eq!(limit(Some(12_000_000), 0.0), 1000);
    assert_eq!(limit(Some(12_000_000), 100.0), 1100);
    assert_eq!(limit(Some(1_200_000_000), 100.0), 11_000);
    assert_eq!(limit(Some(u64::MAX), 1e12), u32::MAX);
}

#[test]
fn large_segments_come_whole_where_they_are_short_and_fit_the_queue() {
    let takes = |all| spec(all).takes_segments();
    assert!(takes(LinkConditions { delay: ms(10.0), jitter: ms(1.0), ..Default::default() }));
    assert!(takes(LinkConditions { loss: Some(Loss::Random(Fraction(0.1))), gap: Some(5), ..Default::default() }));
    assert!(takes(LinkConditions { rate: Some(Rate(2_000_000_000)), limit: Some(1000), ..Default::default() }));
    assert!(!takes(LinkConditions { rate: Some(Rate(1_000_000_000)), ..Default::default() }));
    assert!(!takes(LinkConditions { limit: Some(100), ..Default::default() }));
    let quick = |queue| LinkConditions { rate: Some(Rate(2_000_000_000)), queue: Some(queue), ..Default::default() };
    assert!(takes(quick(1000)) && !takes(quick(100)));
    let peers = vec![peer(2, LinkConditions { rate: Some(Rate(1_000_000)), ..Default::default() })];
    assert!(!Spec { peers, ..spec(LinkConditions::default()) }.takes_segments());
}

/// A segment of TCP over IPv4 to a peer, and its payload's bytes.
fn tcp_segment(number: u8, size: u16, payload: usize) -> (VnetHeader, Vec<u8>) {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45]);
    frame.resize(14 + 16, 0);
    frame.extend([10, 64, 0, number]);
    frame.resize(34 + 12, 0);
    frame.push(8 << 4);
    frame.resize(34 + 32 + payload, 0);
    let kind = if payload > size.into() { VnetHeader::GSO_TCPV4 } else { VnetHeader::GSO_NONE };
    (VnetHeader { gso_type: kind, gso_size: size, csum_start: 34, csum_offset: 16, ..VnetHeader::default() }, frame)
}

fn fraction() -> impl Strategy<Value = Option<Fraction>> {
    proptest::option::of((0.0..=1.0).prop_map(Fraction))
}

fn any_conditions() -> impl Strategy<Value = LinkConditions> {
    let times = || proptest::option::of(prop_oneof![0.0..0.1, 0.0..1e30].prop_map(Seconds));
    let distribution = prop_oneof![
        Just(Distribution::Uniform),
        Just(Distribution::Normal),
        Just(Distribution::Pareto),
        Just(Distribution::Paretonormal),
    ];
    let share = || (0.0..=1.0).prop_map(Fraction);
    let loss = prop_oneof![
        share().prop_map(Loss::Random),
        (share(), share(), share(), share()).prop_map(|(p, r, one_minus_h, one_minus_k)| Loss::GilbertElliott {
            p,
            r,
            one_minus_h,
            one_minus_k
        }),
        (share(), share(), share(), share(), share()).prop_map(|(p13, p31, p32, p23, p14)| Loss::FourState {
            p13,
            p31,
            p32,
            p23,
            p14
        }),
    ];
    let delay = (times(), times(), proptest::option::of(distribution), fraction());
    let losses = (proptest::option::of(loss), fraction());
    let others = (fraction(), fraction(), fraction(), fraction(), proptest::option::of(0u32..10));
    let few = || proptest::option::of(0u32..50);
    let queue = (proptest::option::of(any::<u64>().prop_map(Rate)), few(), few());
    (delay, losses, others, queue).prop_map(|(delay, losses, others, queue)| LinkConditions {
        delay: delay.0,
        jitter: delay.1,
        distribution: delay.2,
        delay_correlation: delay.3,
        loss: losses.0,
        loss_correlation: losses.1,
        corrupt: others.0,
        duplicate: others.1,
        reorder: others.2,
        reorder_correlation: others.3,
        gap: others.4,
        rate: queue.0,
        limit: queue.1,
        queue: queue.2,
    })
}

proptest! {
    #[test]
    fn any_conditions_account_for_every_packet(
        all in any_conditions(),
        one in any_conditions(),
        after in any_conditions(),
        packets in proptest::collection::vec((0u64..MS, 0u32..70_000, 1u32..50, 1u8..4), 1..200),
    ) {
        let before = Spec { peers: vec![peer(2, one.clone())], ..spec(all) };
        let after = Spec { peers: vec![peer(3, one), peer(2, after.clone())], ..spec(after) };
        let mut link = Link::new(&before);
        let (mut now, mut waiting) = (1u64, Vec::new());
        let (mut came, mut out) = (0, 0);
        for (number, (pause, bytes, packets, other)) in packets.into_iter().enumerate() {
            if number == 50 {
                link.set(now, &after, waiting.iter_mut().map(|(packet, delivery)| (*packet, delivery)));
            }
            now += pause;
            let packet = Packet { packets, ..to(&link, other, bytes) };
            let verdict = link.pass(now, packet);
            came += u64::from(packets);
            for delivery in verdict.copy.into_iter().chain(verdict.itself) {
                prop_assert!(delivery.due >= now);
                prop_assert!(delivery.damage.is_none_or(|place| (0.0..1.0).contains(&place)));
                out += u64::from(packets);
                waiting.push((packet, delivery));
            }
        }
        // A copy that is dropped counts as dropped, and never was counted as a copy.
        let counts = link.counts();
        prop_assert!(out + counts.lost + counts.over_limit >= came + counts.duplicated);
        prop_assert!(out <= came + counts.duplicated);
        prop_assert_eq!(link.waiting().0, out);
        for (packet, delivery) in waiting {
            prop_assert!(delivery.due > 0);
            link.leave(packet);
        }
        prop_assert_eq!(link.waiting(), (0, 0));
    }
    /// The same seed and the same packets have the same fates, however the kernel joined them.
    #[test]
    fn packets_of_a_segment_are_drawn_as_if_they_came_alone(
        all in any_conditions(),
        one in any_conditions(),
        frames in proptest::collection::vec((0u64..MS, 1u16..2000, 1usize..60_000, 1u8..4), 1..20),
    ) {
        let spec = Spec { peers: vec![peer(2, one)], ..spec(all) };
        let (mut alone, mut joined) = (Link::new(&spec), Link::new(&spec));
        let mut now = 0;
        for (pause, size, payload, number) in frames {
            now += pause;
            let (header, frame) = tcp_segment(number, size.max(u16::try_from(payload / 50).expect("small")), payload);
            let packets: Vec<u32> = frame::packets(&header, &frame).collect();
            let mut expected = Vec::new();
            for (at, &bytes) in (0..).zip(&packets) {
                let packet = to(&alone, number, bytes);
                let verdict = alone.pass(now, packet);
                expected.extend(verdict.copy.into_iter().chain(verdict.itself).map(|delivery| (at, packet, delivery)));
            }
            let mut parts = Vec::new();
            segment::pass(&mut joined, now, &header, &frame, &mut parts);
            if joined.is_per_packet() {
                let mut expected = expected.iter();
                for part in &parts {
                    let members: Vec<_> = expected.by_ref().take(part.packets.len()).collect();
                    prop_assert!(members.iter().map(|(at, ..)| *at).eq(part.packets.clone()));
                    prop_assert_eq!(part.packet.packets as usize, members.len());
                    prop_assert_eq!(part.packet.bytes, members.iter().map(|(_, packet, _)| packet.bytes).sum::<u32>());
                    prop_assert_eq!(Some(part.delivery), members.last().map(|(.., delivery)| *delivery));
                    prop_assert!(members.len() == 1 || members.iter().all(|(.., delivery)| delivery.damage.is_none()));
                }
                prop_assert_eq!(expected.next(), None);
                prop_assert_eq!(alone.counts(), joined.counts());
            }
            // Else nothing is drawn but the delay, which is the segment's.
            for (_, packet, _) in expected {
                alone.leave(packet);
            }
            for part in parts {
                joined.leave(part.packet);
            }
            prop_assert_eq!((alone.waiting(), joined.waiting()), ((0, 0), (0, 0)));
        }
    }

    /// Also where nothing was drawn for the packets before.
    #[test]
    fn packets_of_a_segment_keep_their_places(segments in proptest::collection::vec(1u32..50, 1..20)) {
        let lossy = LinkConditions {
            loss: Some(Loss::Random(Fraction(0.5))),
            corrupt: share(50.0),
            duplicate: share(50.0),
            ..Default::default()
        };
        let after = |sizes: &mut dyn Iterator<Item = u32>| {
            let mut link = Link::new(&spec(LinkConditions { delay: ms(1.0), ..Default::default() }));
            sizes.for_each(|packets| drop(pass(&mut link, 0, Packet { packets, ..packet(100) })));
            link.set(0, &spec(lossy.clone()), []);
            (0..100).map(|_| pass(&mut link, 0, packet(100)).iter().map(|out| out.damage).collect()).collect::<Vec<Vec<_>>>()
        };
        let packets: u32 = segments.iter().sum();
        prop_assert_eq!(after(&mut segments.into_iter()), after(&mut (0..packets).map(|_| 1)));
    }
}

//! netem's options (`TCA_NETEM_*` and the structures beside them in `include/uapi/linux/pkt_sched.h`; what the kernel makes
//! of them: `netem_change`, `net/sched/sch_netem.c`).

use std::time::Duration;

use super::attribute::{attribute, numbers};
use super::{Loss, Netem};

const CORR: u16 = 1;
const DELAY_DIST: u16 = 2;
const REORDER: u16 = 3;
const CORRUPT: u16 = 4;
const LOSS: u16 = 5;
const RATE: u16 = 6;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;
const PRNG_SEED: u16 = 14;
const LOSS_GI: u16 = 1;
const LOSS_GE: u16 = 2;
/// Says that an attribute's value is attributes (netlink(7)).
const NESTED: u16 = 1 << 15;

/// `struct tc_netem_qopt`, then the attributes.
pub(super) fn options(netem: &Netem) -> Vec<u8> {
    let random_loss = match netem.loss {
        Loss::Random(probability) => probability,
        _ => 0.0,
    };
    // Without a share to reorder, a gap alone would mean all: the kernel reads it so for old programs' sake.
    let gap = if netem.reorder > 0.0 { netem.gap.max(1) } else { 0 };
    // Delay and jitter follow with 64 bits; here they would be in ticks of 64 ns.
    let mut bytes = numbers([0, netem.limit, scaled_share(random_loss), gap, scaled_share(netem.duplicate), 0]);
    attribute(&mut bytes, LATENCY64, &nanoseconds(netem.delay));
    attribute(&mut bytes, JITTER64, &nanoseconds(netem.jitter));
    let correlations = [netem.delay_correlation, netem.loss_correlation, netem.duplicate_correlation];
    attribute(&mut bytes, CORR, &numbers(correlations.map(scaled_share)));
    attribute(&mut bytes, REORDER, &numbers([netem.reorder, netem.reorder_correlation].map(scaled_share)));
    attribute(&mut bytes, CORRUPT, &numbers([netem.corrupt, netem.corrupt_correlation].map(scaled_share)));
    match netem.loss {
        Loss::Random(_) => {}
        Loss::GilbertElliott { p, r, one_minus_h, one_minus_k } => {
            // The kernel takes h, the share that survives the bad state, but 1-k, the share lost in the good one.
            nested_loss(&mut bytes, LOSS_GE, &numbers([p, r, 1.0 - one_minus_h, one_minus_k].map(scaled_share)));
        }
        Loss::FourState { p13, p31, p32, p23, p14 } => {
            // The kernel's structure has p14 before p23.
            nested_loss(&mut bytes, LOSS_GI, &numbers([p13, p31, p32, p14, p23].map(scaled_share)));
        }
    }
    if let Some(rate) = netem.rate {
        // The 64 bits hold where the 32 do not suffice. No overhead per packet and no cells (ATM).
        let short = u32::try_from(rate).unwrap_or(u32::MAX);
        if short == u32::MAX {
            attribute(&mut bytes, RATE64, &rate.to_ne_bytes());
        }
        attribute(&mut bytes, RATE, &numbers([short, 0, 0, 0]));
    }
    if let Some(seed) = netem.seed {
        attribute(&mut bytes, PRNG_SEED, &seed.to_ne_bytes());
    }
    if let Some(distribution) = netem.distribution {
        let table: Vec<u8> = distribution.table().into_iter().flat_map(i16::to_ne_bytes).collect();
        attribute(&mut bytes, DELAY_DIST, &table);
    }
    bytes
}

fn nested_loss(bytes: &mut Vec<u8>, model: u16, shares: &[u8]) {
    let mut nested = Vec::new();
    attribute(&mut nested, model, shares);
    attribute(bytes, LOSS | NESTED, &nested);
}

/// A share of all of `u32`, as the kernel compares random numbers with it.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn scaled_share(share: f64) -> u32 {
    // In range by the clamp; not a number becomes 0.
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}

fn nanoseconds(duration: Duration) -> [u8; 8] {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::tc::Distribution;

    /// The attributes after the first structure, which is 24 bytes long.
    fn attributes(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut rest = &bytes[24..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
            found.push((u16::from_ne_bytes([rest[2], rest[3]]), rest[4..length].to_vec()));
            rest = &rest[length.next_multiple_of(4)..];
        }
        found
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect()
    }

    #[test]
    fn nothing_asked_is_nothing_done() {
        let bytes = options(&Netem::default());
        assert_eq!(words(&bytes[..24]), [0, 1000, 0, 0, 0, 0]);
        assert!(attributes(&bytes).iter().all(|(_, value)| value.iter().all(|&byte| byte == 0)));
    }

    #[test]
    fn every_attribute_has_its_number_and_layout() {
        let netem = Netem {
            limit: 12_345,
            delay: Duration::from_micros(1_500),
            jitter: Duration::from_nanos(7),
            distribution: Some(Distribution::Normal),
            delay_correlation: 0.25,
            loss: Loss::Random(0.5),
            loss_correlation: 1.0,
            duplicate: 0.0005,
            duplicate_correlation: 0.0,
            corrupt: 0.1,
            corrupt_correlation: 0.2,
            reorder: 0.3,
            reorder_correlation: 0.4,
            gap: 5,
            rate: Some(125_000_000),
            seed: Some(0x0102_0304_0506_0708),
        };
        let bytes = options(&netem);
        // Rounded to the nearest: 0.5 × (2³² − 1) = 2147483647.5, 0.0005 × (2³² − 1) = 2147483.6.
        assert_eq!(words(&bytes[..24]), [0, 12_345, 0x8000_0000, 5, 2_147_484, 0]);
        let attributes = attributes(&bytes);
        let kinds: Vec<u16> = attributes.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [10, 11, 1, 3, 4, 6, 14, 2]);
        let value = |kind| &attributes.iter().find(|(found, _)| *found == kind).expect("there").1;
        assert_eq!(value(LATENCY64)[..], 1_500_000i64.to_ne_bytes());
        assert_eq!(value(JITTER64)[..], 7i64.to_ne_bytes());
        assert_eq!(words(value(CORR)), [0x4000_0000, u32::MAX, 0]);
        assert_eq!(words(value(REORDER)), [1_288_490_189, 1_717_986_918]);
        assert_eq!(words(value(CORRUPT)), [429_496_730, 858_993_459]);
        assert_eq!(words(value(RATE)), [125_000_000, 0, 0, 0]);
        assert_eq!(value(PRNG_SEED)[..], 0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(value(DELAY_DIST).len(), 8192);
    }

    #[test]
    fn a_rate_beyond_32_bits_has_its_own_attribute() {
        let attributes = attributes(&options(&Netem { rate: Some(12_500_000_000), ..Netem::default() }));
        let [.., (RATE64, long), (RATE, short)] = attributes.as_slice() else { panic!("{attributes:?}") };
        assert_eq!(long[..], 12_500_000_000u64.to_ne_bytes());
        assert_eq!(words(short), [u32::MAX, 0, 0, 0]);
    }

    #[test]
    fn loss_models_are_nested() {
        let model = |loss| {
            let bytes = options(&Netem { loss, ..Netem::default() });
            assert_eq!(words(&bytes[..24])[2], 0, "no random loss besides");
            attributes(&bytes).pop().expect("last")
        };
        let (kind, value) = model(Loss::GilbertElliott { p: 1.0, r: 0.0, one_minus_h: 0.75, one_minus_k: 0.125 });
        assert_eq!(kind, 0x8005);
        // Length 20, kind 2 (NETEM_LOSS_GE).
        assert_eq!(words(&value), [0x0002_0014, u32::MAX, 0, 0x4000_0000, 0x2000_0000]);
        let (kind, value) = model(Loss::FourState { p13: 1.0, p31: 0.5, p32: 0.25, p23: 0.125, p14: 0.0 });
        assert_eq!(kind, 0x8005);
        // Length 24, kind 1 (NETEM_LOSS_GI), p14 before p23.
        assert_eq!(words(&value), [0x0001_0018, u32::MAX, 0x8000_0000, 0x4000_0000, 0, 0x2000_0000]);
    }

    #[test]
    fn shares_out_of_range_are_held_to_it() {
        assert_eq!([-1.0, f64::NAN, 0.0, 1.0, 2.0].map(scaled_share), [0, 0, 0, u32::MAX, u32::MAX]);
    }
}

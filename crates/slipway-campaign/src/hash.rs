//! Random numbers as functions of a key and a place, so that any of them is computed without those before it.

/// The finalizer of `SplitMix64`: each bit of the input changes half of the output's.
///
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014), with Stafford's constants "Mix13".
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// 64 random bits that depend on each part and on their order.
pub(crate) fn hash(parts: &[u64]) -> u64 {
    // The golden ratio's digits keep zeros from giving zero.
    parts.iter().fold(0, |state, part| mix(mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ part))
}

/// A number between 0 and 1, never one of them, of 64 random bits.
pub(crate) fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// A whole number below `count`, of 64 random bits.
pub(crate) fn below(bits: u64, count: u64) -> u64 {
    u64::try_from((u128::from(bits) * u128::from(count)) >> 64).expect("it is below the count")
}

/// Up to this many elements are shuffled exactly, in time that grows with their number.
const FEW: u64 = 256;

/// Rounds of the Feistel network. Four suffice in theory for random functions (Luby and Rackoff 1988); halves are short here.
const ROUNDS: u64 = 8;

/// The place of an element in a random order of `0..count`, which the key names.
///
/// A few elements are shuffled as Fisher and Yates do it, and one element is followed. More go through a Feistel network over
/// the next power of four, again until the result is below `count` (cycle walking; Black and Rogaway, "Ciphers with
/// Arbitrary Finite Domains", 2002).
///
/// # Panics
/// With an element at or above `count`.
pub(crate) fn permuted(key: u64, count: u64, element: u64) -> u64 {
    assert!(element < count, "the element is one of those that are put in order");
    if count <= FEW {
        return shuffled(key, count, element);
    }
    let half = (u64::BITS - (count - 1).leading_zeros()).div_ceil(2);
    let mask = u64::MAX >> (u64::BITS - half);
    let mut place = element;
    loop {
        let (mut left, mut right) = (place >> half, place & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (hash(&[key, round, right]) & mask));
        }
        place = (left << half) | right;
        if place < count {
            return place;
        }
    }
}

fn shuffled(key: u64, count: u64, element: u64) -> u64 {
    let mut place = element;
    for last in (1..count).rev() {
        let other = below(hash(&[key, last]), last + 1);
        if place == other {
            // A value that moves to the end of the rest stays there.
            return last;
        }
        if place == last {
            place = other;
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_permutation_reaches_each_place_once(key: u64, count in 1_u64..1000) {
            let places: BTreeSet<u64> = (0..count).map(|element| permuted(key, count, element)).collect();
            prop_assert_eq!(places.len() as u64, count);
            prop_assert!(places.last() < Some(&count));
        }
    }

    #[test]
    fn a_large_permutation_is_found_at_once() {
        for count in [u64::MAX, 1 << 63, (1 << 40) + 1] {
            assert!(permuted(7, count, count - 1) < count);
        }
    }

    /// Pearson's statistic of how often each element lands in each place: about its degrees of freedom.
    #[test]
    fn every_order_is_as_likely() {
        for count in [3_u64, 10, 256, 300] {
            let keys = 5_000;
            let size = usize::try_from(count).expect("a small number");
            let mut hits = vec![0_u32; size];
            for key in 0..keys {
                hits[usize::try_from(permuted(key, count, 1)).expect("a small number")] += 1;
            }
            let expected = keys as f64 / count as f64;
            let statistic: f64 = hits.iter().map(|hit| (f64::from(*hit) - expected).powi(2) / expected).sum();
            let freedom = count as f64 - 1.0;
            assert!((statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{count}: {statistic}");
        }
    }

    #[test]
    fn units_lie_between_the_ends() {
        assert!(unit(0) > 0.0 && unit(u64::MAX) < 1.0);
        assert_eq!((below(u64::MAX, 10), below(0, 10)), (9, 0));
    }
}

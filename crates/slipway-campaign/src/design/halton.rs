//! Halton's sequence.

use super::cube::Cube;
use crate::hash::{hash, permuted};

/// Most points: their digits in each base fit the coordinate.
pub(super) const MOST_POINTS: u64 = 1 << 32;

/// Bits of a coordinate: few enough that its middle is exact.
const BITS: u32 = 48;

/// Halton's sequence: a point's number with its digits mirrored behind the point, in a base of each dimension's own. Bases are
/// the first primes.
///
/// Scrambling is Owen's (1995): each digit goes through a random permutation of its own for each prefix before it.
#[derive(Debug)]
pub struct Halton {
    bases: Vec<u64>,
    points: u64,
    /// The key of scrambling; `None`: not scrambled.
    scramble: Option<u64>,
}

impl Halton {
    /// The first points of the sequence. Not scrambled without a key.
    ///
    /// # Panics
    /// Beyond 2³² points.
    #[must_use]
    pub fn new(scramble: Option<u64>, dimensions: usize, points: u64) -> Self {
        assert!(points <= MOST_POINTS, "the caller keeps to the limits");
        let is_prime =
            |number: &u64| (2..*number).take_while(|of| of * of <= *number).all(|of| !number.is_multiple_of(of));
        Self { bases: (2..).filter(is_prime).take(dimensions).collect(), points, scramble }
    }
}

impl Cube for Halton {
    fn count(&self) -> u64 {
        self.points
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let coordinate = |(dimension, &base): (u64, &u64)| match self.scramble {
            Some(seed) => scrambled(hash(&[seed, dimension]), base, index),
            None => mirrored(base, index),
        };
        (0..).zip(&self.bases).map(coordinate).collect()
    }
}

fn mirrored(base: u64, mut index: u64) -> f64 {
    let (mut sum, mut weight) = (0.0, 1.0 / base as f64);
    while index > 0 {
        sum += (index % base) as f64 * weight;
        weight /= base as f64;
        index /= base;
    }
    sum
}

fn scrambled(key: u64, base: u64, mut index: u64) -> f64 {
    let (mut sum, mut cells, mut prefix) = (0, 1, 1_u64);
    while cells <= (1 << BITS) / base {
        let digit = index % base;
        index /= base;
        sum = sum * base + permuted(hash(&[key, prefix]), base, digit);
        cells *= base;
        // A one before the digits tells prefixes of different lengths apart.
        prefix = prefix * base + digit;
    }
    (sum as f64 + 0.5) / cells as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first b^k points have one in each of the b^k parts of the dimension of base b.
    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "coordinates are in the unit cube")]
    fn each_part_has_one_point() {
        for seed in 0..20 {
            let halton = Halton::new(Some(seed), 5, 10_000);
            for (dimension, count) in [(0, 256), (1, 243), (2, 125), (3, 343), (4, 121)] {
                let mut parts: Vec<u64> =
                    (0..count).map(|index| (halton.at(index)[dimension] * count as f64) as u64).collect();
                parts.sort_unstable();
                assert!(parts.into_iter().eq(0..count), "base {}", halton.bases[dimension]);
            }
        }
    }

    #[test]
    fn the_limit_is_reached() {
        let at = Halton::new(Some(1), 1000, MOST_POINTS).at(MOST_POINTS - 1);
        assert!(at.iter().all(|u| *u > 0.0 && *u < 1.0));
    }
}

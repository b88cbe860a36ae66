//! Sobol's sequence.

use sobol::Sobol as Directions;
use sobol::params::JoeKuoD6;

use super::cube::Cube;
use crate::hash::hash;

/// Most dimensions: those of the direction numbers that are built in.
pub(super) const MOST_DIMENSIONS: usize = 1000;

/// Most points: numbers of points have 32 bits.
pub(super) const MOST_POINTS: u64 = 1 << 32;

/// Bits of a coordinate before scrambling.
const BITS: usize = 32;

/// Sobol's sequence in Gray code order, with the direction numbers of Joe and Kuo, "Constructing Sobol sequences with better
/// two-dimensional projections" (2008).
///
/// Scrambling is Owen's, exactly ("Randomly permuted (t, m, s)-nets and (t, s)-sequences", 1995): each bit flips by a random
/// bit of its own for each prefix before it. Hashes give those bits. The faster hashes of Laine and Karras (2011) only
/// come near this, and 33 hashes a coordinate are nothing beside a simulation.
#[derive(Debug)]
pub struct Sobol {
    /// Direction numbers of each dimension.
    directions: Vec<Vec<u32>>,
    points: u64,
    /// The key of scrambling; `None`: not scrambled.
    scramble: Option<u64>,
}

impl Sobol {
    /// The first points of the sequence. Not scrambled without a key.
    ///
    /// # Panics
    /// Beyond 1000 dimensions or 2³² points.
    #[must_use]
    pub fn new(scramble: Option<u64>, dimensions: usize, points: u64) -> Self {
        assert!(dimensions <= MOST_DIMENSIONS && points <= MOST_POINTS, "the caller keeps to the limits");
        let directions = Directions::<u32>::init_direction_vals(dimensions, BITS, &JoeKuoD6::standard());
        Self { directions, points, scramble }
    }
}

impl Cube for Sobol {
    fn count(&self) -> u64 {
        self.points
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let gray = index ^ (index >> 1);
        let coordinate = |(dimension, directions): (u64, &Vec<u32>)| {
            let bits = (0..BITS).filter(|bit| gray >> bit & 1 == 1).fold(0, |bits, bit| bits ^ directions[bit]);
            match self.scramble {
                Some(seed) => scrambled(hash(&[seed, dimension]), bits),
                None => f64::from(bits) / MOST_POINTS as f64,
            }
        };
        (0..).zip(&self.directions).map(coordinate).collect()
    }
}

/// Flips each bit, from the first, by a random bit of the prefix before it. 20 more bits follow the last prefix.
fn scrambled(key: u64, bits: u32) -> f64 {
    let bits = u64::from(bits);
    let flips = (0..BITS).fold(0, |flips, depth| {
        // A one before the prefix tells prefixes of different lengths apart.
        let prefix = (1 << depth) | (bits >> (BITS - depth));
        flips << 1 | hash(&[key, prefix]) >> 63
    });
    let below = hash(&[key, (1 << BITS) | bits]) >> 44;
    (((bits ^ flips) << 20 | below) as f64 + 0.5) / (1_u64 << 52) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scrambling keeps a (0, m, 2)-net: each elementary box of volume 2^-m has one of 2^m points.
    #[test]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "coordinates are in the unit cube")]
    fn each_box_has_one_point() {
        for seed in 0..20 {
            let sobol = Sobol::new(Some(seed), 2, 256);
            for wide in 0..=8 {
                let cells = |u: f64, bits: u32| (u * f64::from(1 << bits)) as u32;
                let mut boxes: Vec<u32> = (0..256)
                    .map(|index| sobol.at(index))
                    .map(|at| cells(at[0], wide) << (8 - wide) | cells(at[1], 8 - wide))
                    .collect();
                boxes.sort_unstable();
                assert!(boxes.into_iter().eq(0..256), "{wide}");
            }
        }
    }

    #[test]
    fn the_limits_are_reached() {
        let at = Sobol::new(Some(1), MOST_DIMENSIONS, MOST_POINTS).at(MOST_POINTS - 1);
        assert!(at.len() == MOST_DIMENSIONS && at.iter().all(|u| *u > 0.0 && *u < 1.0));
    }
}

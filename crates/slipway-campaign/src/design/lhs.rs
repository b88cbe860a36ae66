//! Latin hypercubes.

use super::cube::Cube;
use super::maximin;
use crate::hash::{hash, permuted, unit};

/// Latin hypercubes, one after the other: each has one point in each of its slices of each dimension.
///
/// McKay, Beckman, Conover, "A Comparison of Three Methods for Selecting Values of Input Variables in the Analysis of Output
/// from a Computer Code" (1979). Each dimension's order is a keyed permutation, so that a point needs no other.
#[derive(Debug)]
pub(super) struct Lhs {
    dimensions: usize,
    blocks: Vec<Block>,
}

/// One hypercube.
#[derive(Debug)]
struct Block {
    key: u64,
    first: u64,
    points: u64,
    /// Slices of each point, where distances were made large. Points are in their middles.
    spread: Option<Vec<Vec<u32>>>,
}

impl Lhs {
    /// Hypercubes of these sizes.
    ///
    /// # Errors
    /// With `maximin`, the size of the first hypercube that has too many points to compare each with each.
    pub(super) fn new(seed: u64, dimensions: usize, sizes: &[u64], maximin: bool) -> Result<Self, u64> {
        if let Some(size) = sizes.iter().find(|size| maximin && **size > maximin::MOST) {
            return Err(*size);
        }
        let mut first = 0;
        let block = |(number, &points): (u64, &u64)| {
            let mut block = Block { key: hash(&[seed, number]), first, points, spread: None };
            first += points;
            if maximin {
                let slices = (0..points).map(|place| block.slices(place, dimensions)).collect();
                block.spread = Some(maximin::spread(block.key, slices));
            }
            block
        };
        Ok(Self { dimensions, blocks: (0..).zip(sizes).map(block).collect() })
    }
}

impl Block {
    /// The slices of a point, without regard to distances.
    fn slices(&self, place: u64, dimensions: usize) -> Vec<u32> {
        let slice = |dimension| permuted(hash(&[self.key, dimension]), self.points, place);
        (0..dimensions as u64).map(|dimension| u32::try_from(slice(dimension)).expect("few points")).collect()
    }

    fn at(&self, place: u64, dimensions: usize) -> Vec<f64> {
        let coordinate = |slice: u64, within: f64| (slice as f64 + within) / self.points as f64;
        if let Some(spread) = &self.spread {
            let slices = &spread[usize::try_from(place).expect("few points")];
            return slices.iter().map(|slice| coordinate(u64::from(*slice), 0.5)).collect();
        }
        let of_dimension = |dimension| {
            let slice = permuted(hash(&[self.key, dimension]), self.points, place);
            // Rounding could carry the last slice's end to 1.
            coordinate(slice, unit(hash(&[self.key, dimension, place]))).min(1.0 - f64::EPSILON / 2.0)
        };
        (0..dimensions as u64).map(of_dimension).collect()
    }
}

impl Cube for Lhs {
    fn count(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.first + block.points)
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let block = &self.blocks[self.blocks.partition_point(|block| block.first <= index) - 1];
        block.at(index - block.first, self.dimensions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each slice of each dimension has one of these points.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "coordinates are in the unit cube")]
    fn is_latin(points: &[Vec<f64>]) -> bool {
        let n = points.len();
        (0..points[0].len()).all(|dimension| {
            let mut slices: Vec<usize> = points.iter().map(|point| (point[dimension] * n as f64) as usize).collect();
            slices.sort_unstable();
            slices.into_iter().eq(0..n)
        })
    }

    #[test]
    fn each_slice_has_one_point_also_after_an_extension() {
        for maximin in [false, true] {
            let sizes = [30, 1, 300];
            let lhs = Lhs::new(5, 4, &sizes, maximin).expect("few points");
            let points: Vec<_> = (0..lhs.count()).map(|index| lhs.at(index)).collect();
            assert_eq!(points.len(), 331);
            assert!(is_latin(&points[..30]) && is_latin(&points[30..31]) && is_latin(&points[31..]));
            let before = Lhs::new(5, 4, &sizes[..1], maximin).expect("few points");
            assert!((0..30).map(|index| before.at(index)).eq(points[..30].iter().cloned()));
        }
    }

    #[test]
    fn distances_are_bounded_in_number() {
        assert_eq!(Lhs::new(5, 4, &[maximin::MOST, maximin::MOST + 1], true).err(), Some(maximin::MOST + 1));
        assert!(Lhs::new(5, 4, &[1 << 40], false).is_ok());
    }
}

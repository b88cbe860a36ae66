//! Independent random points.

use super::cube::Cube;
use crate::hash::{hash, unit};

/// Points that are independent and uniform in the cube.
#[derive(Debug)]
pub(super) struct Random {
    /// The key of the random numbers.
    pub(super) seed: u64,
    /// Coordinates of a point.
    pub(super) dimensions: usize,
    /// Number of points.
    pub(super) points: u64,
}

impl Cube for Random {
    fn count(&self) -> u64 {
        self.points
    }

    fn at(&self, index: u64) -> Vec<f64> {
        (0..self.dimensions as u64).map(|dimension| unit(hash(&[self.seed, index, dimension]))).collect()
    }
}

//! Designs on the unit cube.

use std::fmt;

/// A design whose points lie in the unit cube, one coordinate for each variable that varies.
pub trait Cube: fmt::Debug + Send + Sync {
    /// Number of points.
    fn count(&self) -> u64;

    /// The point of a number below [`count`](Self::count), computed without those before it.
    fn at(&self, index: u64) -> Vec<f64>;
}

//! Morris' trajectories.

use super::cube::Cube;
use crate::hash::{below, hash, permuted};

/// Trajectories on a grid: from a random point of it, each step moves one coordinate by about half of its range, and each
/// coordinate moves once.
///
/// Morris, "Factorial Sampling Plans for Preliminary Computational Experiments" (1991).
#[derive(Debug)]
pub struct Morris {
    seed: u64,
    /// Values of a coordinate's first and last level.
    ranges: Vec<(f64, f64)>,
    trajectories: u64,
    levels: u32,
}

impl Morris {
    /// Trajectories on a grid whose `levels` are spread evenly from the first to the last value of each range.
    ///
    /// # Panics
    /// With an odd number of levels, or none.
    #[must_use]
    pub fn new(seed: u64, ranges: Vec<(f64, f64)>, trajectories: u64, levels: u32) -> Self {
        assert!(levels > 0 && levels.is_multiple_of(2), "the caller checks levels");
        Self { seed, ranges, trajectories, levels }
    }

    /// Points of a trajectory.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.ranges.len() as u64 + 1
    }
}

impl Cube for Morris {
    fn count(&self) -> u64 {
        self.trajectories * self.steps()
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let (trajectory, step) = (index / self.steps(), index % self.steps());
        let key = hash(&[self.seed, trajectory]);
        let half = u64::from(self.levels / 2);
        let coordinate = |(dimension, &(first, last)): (u64, &(f64, f64))| {
            let bits = hash(&[key, dimension]);
            let moved = permuted(key, self.ranges.len() as u64, dimension) < step;
            // The lowest bit says whether the move is up; the others choose the level.
            let is_up = moved == (bits & 1 == 0);
            let level = below(bits, half) + if is_up { half } else { 0 };
            let share = level as f64 / f64::from(self.levels - 1);
            first * (1.0 - share) + last * share
        };
        (0..).zip(&self.ranges).map(coordinate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_moves_one_coordinate_by_half_and_each_moves_once() {
        let morris = Morris::new(3, vec![(0.0, 1.0); 5], 50, 4);
        let points: Vec<_> = (0..morris.count()).map(|index| morris.at(index)).collect();
        for trajectory in points.chunks(6) {
            let mut moved: Vec<usize> = trajectory
                .windows(2)
                .map(|step| {
                    let moves: Vec<_> = (0..5).filter(|of| step[0][*of].to_bits() != step[1][*of].to_bits()).collect();
                    assert!(((step[0][moves[0]] - step[1][moves[0]]).abs() - 2.0 / 3.0).abs() < 1e-15);
                    assert_eq!(moves.len(), 1);
                    moves[0]
                })
                .collect();
            moved.sort_unstable();
            assert_eq!(moved, [0, 1, 2, 3, 4]);
        }
        // Each of the four levels is as likely: 1500 of them, with a deviation of 17.
        for level in 0..4 {
            let is_there = |u: &&f64| (**u * 3.0 - f64::from(level)).abs() < 1e-9;
            let hits = points.iter().flatten().filter(is_there).count();
            assert!((225..525).contains(&hits), "{level}: {hits}");
        }
    }
}

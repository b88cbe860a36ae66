//! More points for a design.

use crate::model::Design;

use super::PlanError;

impl Design {
    /// Its size in its own unit: trajectories for Morris, base samples for Saltelli, samples of a curve for FAST,
    /// generations for searches by generations, points for
    /// the others. `None` where levels or a file give the size.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match *self {
            Self::Random { points } | Self::Sobol { points } | Self::Halton { points } | Self::Repeat { points } => {
                Some(points)
            }
            Self::Lhs { ref blocks, .. } => Some(blocks.iter().sum()),
            Self::Morris { trajectories, .. } => Some(trajectories),
            Self::Saltelli { samples, .. } | Self::Fast { samples, .. } => Some(samples),
            Self::Search(ref search) => Some(search.points / search.unit()),
            Self::Grid { .. } | Self::Oat { .. } | Self::List { .. } => None,
        }
    }

    /// The same design with a larger size, in the unit of [`size`](Self::size). The points that there were stay as they
    /// are, with their numbers and seeds.
    ///
    /// A Latin hypercube gets a second one of the additional points, because no larger one contains it: all points together
    /// are two Latin hypercubes, not one. With as many points again, each slice of the first has two points.
    ///
    /// # Errors
    /// Where the size is smaller than before, or the design has no extension: all points of a grid, one at a time and FAST
    /// change with their number, and a list grows in its file.
    pub fn extended(&self, size: u64) -> Result<Self, PlanError> {
        let before = match self {
            Self::Fast { .. } => return Err(PlanError::Closed),
            _ => self.size().ok_or(PlanError::Closed)?,
        };
        let more = size.checked_sub(before).ok_or(PlanError::Smaller { before, size })?;
        let mut design = self.clone();
        match &mut design {
            Self::Random { points: count }
            | Self::Sobol { points: count }
            | Self::Halton { points: count }
            | Self::Repeat { points: count }
            | Self::Morris { trajectories: count, .. }
            | Self::Saltelli { samples: count, .. } => *count = size,
            Self::Search(search) => {
                search.points = size.checked_mul(search.unit()).ok_or(PlanError::TooMany)?;
            }
            Self::Lhs { blocks, .. } if more > 0 => blocks.push(more),
            Self::Lhs { .. } | Self::Fast { .. } | Self::Grid { .. } | Self::Oat { .. } | Self::List { .. } => {}
        }
        Ok(design)
    }
}

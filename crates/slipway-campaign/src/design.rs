//! Designs of experiments: the points of a campaign, each as a function of its number.
//!
//! A [`Plan`] computes any point without those before it, so workers share nothing but the campaign and numbers
//! (ADR 0026). Random choices are keyed hashes of the campaign's seed and the point's number.

mod cube;
mod ends;
mod extend;
pub mod fast;
mod halton;
mod levels;
mod lhs;
mod maximin;
mod morris;
mod random;
mod rows;
pub mod saltelli;
mod sobol;

pub use cube::Cube;
pub use halton::Halton;
pub use morris::Morris;
pub use rows::Rows;
pub use sobol::Sobol;

use crate::hash;
use crate::model::{Campaign, Design, Distribution, Variable};
use crate::value::Value;

/// Keys of random numbers, so that points and seeds do not share any.
const POINTS: u64 = 1;
const SEEDS: u64 = 2;

/// Seeds are below this: programs often read a seed as a signed 32-bit number.
const SEED_END: u64 = 1 << 31;

/// A share of probability that Morris' grid and searches leave out at an end without a bound, whose value would be infinite.
const OPEN_END: f64 = 0.005;

/// The points of a campaign.
#[derive(Debug)]
pub struct Plan {
    seed: u64,
    variables: Vec<Variable>,
    baseline: Option<Vec<Value>>,
    /// Points, with the baseline.
    count: u64,
    source: Source,
}

/// Where values come from.
#[derive(Debug)]
enum Source {
    /// A point of the unit cube has a coordinate for each variable that varies.
    Cube(Box<dyn Cube>),
    Grid(u32),
    Oat(u32),
    Medians,
    Rows(Vec<Vec<Value>>),
    /// A search chooses them while the campaign runs; the campaign's queue keeps them.
    Search,
}

/// A design that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The number of points exceeds 64 bits.
    #[error("count the points: there are more than 2^64\nHint: give fewer levels, or narrower bounds to whole numbers")]
    TooMany,
    /// The sequence is too short.
    #[error("plan {asked} points: the sequence has {most}\nHint: take the design `random`, or fewer points")]
    Sequence {
        /// Points asked for.
        asked: u64,
        /// Points that there are.
        most: u64,
    },
    /// There are too many variables for Sobol's sequence.
    #[error(
        "plan {dimensions} dimensions: Sobol's sequence has {most}, and Saltelli's design takes two for each variable\nHint: fix variables, or take another design"
    )]
    Dimensions {
        /// Dimensions asked for.
        dimensions: usize,
        /// Dimensions that there are.
        most: usize,
    },
    /// A maximin Latin hypercube compares all points.
    #[error(
        "spread {points} points: `maximin` compares each with each, and takes {most} at most\nHint: leave `maximin` out, or take the design `sobol`"
    )]
    Maximin {
        /// Points of the hypercube.
        points: u64,
        /// Most points.
        most: u64,
    },
    /// The design compares variables that vary, and there is none.
    #[error("plan: the design changes variables, and each has one value only\nHint: give a variable bounds")]
    NothingVaries,
    /// Morris' grid has an odd number of levels.
    #[error("plan {0} levels: Morris' design takes an even number\nHint: 4 is usual")]
    Levels(u32),
    /// The harmonics of a FAST curve would overlap.
    #[error("plan curves of {samples} points: {harmonics} harmonics need {least} at least\nHint: give more samples")]
    Curve {
        /// Points of a curve.
        samples: u64,
        /// Harmonics.
        harmonics: u32,
        /// Fewest points.
        least: u64,
    },
    /// The design is a list, and its rows were not given.
    #[error("plan: the design is a list, and its file was not read")]
    NoRows,
    /// A variable has no column.
    #[error(
        "find a column for variable '{0}' in the list of points\nHint: add the column, or give the variable one value"
    )]
    NoColumn(String),
    /// A row has more or fewer values than there are columns.
    #[error("read row {row} of the list of points: it has {values} values for {columns} columns")]
    RowLength {
        /// Number of the row, from 1.
        row: usize,
        /// Values of the row.
        values: usize,
        /// Columns.
        columns: usize,
    },
    /// The design has no extension.
    #[error(
        "extend the design: its points depend on their number\nHint: a list grows in its file; for other designs, start a new campaign"
    )]
    Closed,
    /// An extension would take points away.
    #[error("extend the design to {size}: it has {before} already\nHint: give a larger number")]
    Smaller {
        /// Size before.
        before: u64,
        /// Size asked for.
        size: u64,
    },
}

impl Plan {
    /// The points of a campaign. A design of kind list takes them from `list`.
    ///
    /// # Errors
    /// Where the design does not fit its variables, or exceeds a limit. The error says which.
    pub fn new(campaign: &Campaign, list: Option<Rows>) -> Result<Self, PlanError> {
        let variables = campaign.variables.clone();
        let seed = campaign.seed;
        let (count, source) = match campaign.design {
            Design::Grid { levels } => {
                (levels::grid_count(&variables, levels).ok_or(PlanError::TooMany)?, Source::Grid(levels))
            }
            Design::Oat { levels } => {
                (levels::oat_count(&variables, levels).ok_or(PlanError::TooMany)?, Source::Oat(levels))
            }
            Design::Repeat { points } => (points, Source::Medians),
            Design::Search(search) => (search.points, Source::Search),
            Design::List { .. } => {
                let rows = list.ok_or(PlanError::NoRows)?.in_order(&variables)?;
                (rows.len() as u64, Source::Rows(rows))
            }
            ref design => {
                let cube = cube(design, hash::hash(&[POINTS, seed]), &variables)?;
                (cube.count(), Source::Cube(cube))
            }
        };
        let baseline = campaign.baseline.clone();
        let count = count.checked_add(u64::from(baseline.is_some())).ok_or(PlanError::TooMany)?;
        Ok(Self { seed, variables, baseline, count, source })
    }

    /// Number of points, with the baseline.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there is no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Points before those of the design: 1 with a baseline, which is point 0.
    #[must_use]
    pub fn lead(&self) -> u64 {
        self.baseline.is_some().into()
    }

    /// Whether a search chooses the points while the campaign runs. No point is known before, so
    /// [`point`](Self::point) has the baseline alone.
    #[must_use]
    pub fn is_search(&self) -> bool {
        matches!(self.source, Source::Search)
    }

    /// The values of a point, in the variables' order.
    ///
    /// # Panics
    /// At [`len`](Self::len) and above, and for the points that a [search](Self::is_search) chooses.
    #[must_use]
    pub fn point(&self, index: u64) -> Vec<Value> {
        assert!(index < self.count, "the plan has the point");
        let index = match &self.baseline {
            Some(baseline) if index == 0 => return baseline.clone(),
            Some(_) => index - 1,
            None => index,
        };
        match &self.source {
            Source::Search => panic!("the campaign's queue has the points of a search"),
            Source::Grid(levels) => levels::grid(&self.variables, *levels, index),
            Source::Oat(levels) => levels::oat(&self.variables, *levels, index),
            Source::Medians => levels::medians(&self.variables),
            Source::Rows(rows) => rows[usize::try_from(index).expect("a row in memory")].clone(),
            Source::Cube(cube) => {
                let mut coordinates = cube.at(index).into_iter();
                let mut next = || coordinates.next().expect("a coordinate for each variable that varies");
                let value = |Variable { distribution, .. }: &Variable| {
                    distribution.quantile(if distribution.varies() { next() } else { 0.5 })
                };
                self.variables.iter().map(value).collect()
            }
        }
    }

    /// The coordinates of a point in the unit cube, one for each variable that varies. `None` for designs that are not
    /// made in the cube, and for the baseline.
    ///
    /// # Panics
    /// At [`len`](Self::len) and above.
    #[must_use]
    pub fn coordinates(&self, index: u64) -> Option<Vec<f64>> {
        assert!(index < self.count, "the plan has the point");
        match &self.source {
            Source::Cube(cube) => Some(cube.at(index.checked_sub(self.lead())?)),
            _ => None,
        }
    }

    /// A seed for the point's program, below 2³¹. No two of 2³¹ points in a row have the same.
    #[must_use]
    pub fn seed(&self, index: u64) -> u64 {
        hash::permuted(hash::hash(&[SEEDS, self.seed, index / SEED_END]), SEED_END, index % SEED_END)
    }
}

/// A design on the unit cube of the variables that vary.
fn cube(design: &Design, seed: u64, variables: &[Variable]) -> Result<Box<dyn Cube>, PlanError> {
    let varying: Vec<&Distribution> =
        variables.iter().map(|variable| &variable.distribution).filter(|distribution| distribution.varies()).collect();
    let dimensions = varying.len();
    let changes = || if dimensions == 0 { Err(PlanError::NothingVaries) } else { Ok(()) };
    let fits = |points: u64, block: u64| points.checked_mul(block).map(|_| ()).ok_or(PlanError::TooMany);
    Ok(match *design {
        Design::Random { points } => Box::new(random::Random { seed, dimensions, points }),
        Design::Lhs { ref blocks, maximin } => {
            blocks.iter().try_fold(0_u64, |sum, points| sum.checked_add(*points)).ok_or(PlanError::TooMany)?;
            let lhs = lhs::Lhs::new(seed, dimensions, blocks, maximin);
            Box::new(lhs.map_err(|points| PlanError::Maximin { points, most: maximin::MOST })?)
        }
        Design::Sobol { points } => Box::new(sequence(seed, dimensions, points)?),
        Design::Halton { points } => {
            let most = halton::MOST_POINTS;
            if points > most {
                return Err(PlanError::Sequence { asked: points, most });
            }
            Box::new(Halton::new(Some(seed), dimensions, points))
        }
        Design::Morris { trajectories, levels } => {
            changes()?;
            if levels == 0 || levels % 2 == 1 {
                return Err(PlanError::Levels(levels));
            }
            fits(trajectories, dimensions as u64 + 1)?;
            let ranges = varying.iter().map(|distribution| finite_range(distribution)).collect();
            Box::new(Morris::new(seed, ranges, trajectories, levels))
        }
        Design::Saltelli { samples, second_order } => {
            changes()?;
            let base = sequence(seed, 2 * dimensions, samples)?;
            fits(samples, saltelli::block(dimensions, second_order))?;
            Box::new(saltelli::Saltelli::new(base, dimensions, second_order))
        }
        Design::Fast { samples, harmonics } => {
            changes()?;
            let least = fast::fewest(harmonics) + 1;
            if samples < least || harmonics == 0 {
                return Err(PlanError::Curve { samples, harmonics, least });
            }
            fits(samples, dimensions as u64)?;
            Box::new(fast::Fast::new(fast::phases(seed, dimensions), samples, harmonics))
        }
        Design::Grid { .. } | Design::Oat { .. } | Design::Repeat { .. } | Design::List { .. } | Design::Search(_) => {
            unreachable!("these are not made in the cube")
        }
    })
}

fn sequence(seed: u64, dimensions: usize, points: u64) -> Result<Sobol, PlanError> {
    if dimensions > sobol::MOST_DIMENSIONS {
        return Err(PlanError::Dimensions { dimensions, most: sobol::MOST_DIMENSIONS });
    }
    if points > sobol::MOST_POINTS {
        return Err(PlanError::Sequence { asked: points, most: sobol::MOST_POINTS });
    }
    Ok(Sobol::new(Some(seed), dimensions, points))
}

/// Probabilities between which values are finite: the ends of Morris' grid, and of a search.
pub(crate) fn finite_range(distribution: &Distribution) -> (f64, f64) {
    match *distribution {
        Distribution::Normal { low, high, .. } => {
            (if low.is_finite() { 0.0 } else { OPEN_END }, if high.is_finite() { 1.0 } else { 1.0 - OPEN_END })
        }
        Distribution::LogNormal { low, high, .. } => {
            (if low > 0.0 { 0.0 } else { OPEN_END }, if high.is_finite() { 1.0 } else { 1.0 - OPEN_END })
        }
        _ => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests;

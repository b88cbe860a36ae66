//! Designs that search: the space that an optimiser sees, and the values that its choices stand for.

use serde::{Deserialize, Serialize};

use crate::design::finite_range;
use crate::hash;
use crate::model::{Campaign, Distribution, Variable};
use crate::value::Value;

/// Key of the optimiser's random numbers; 1 and 2 are those of points and seeds.
const SEARCH: u64 = 3;
/// Most values of a variable that an optimiser sees as whole numbers. One with more counts as continuous.
const MOST_WHOLE: u64 = 1 << 31;

/// A variable as an optimiser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Dimension {
    /// Any number from 0 to 1: the share of the way through the variable's distribution.
    Real,
    /// A whole number below `count`, where neighbours are alike.
    Integer {
        /// Number of values.
        count: u64,
    },
    /// A whole number below `count`, where neighbours have nothing in common.
    Choice {
        /// Number of values.
        count: u64,
    },
}

/// The variables that vary, as an optimiser sees them.
#[derive(Debug, Clone)]
pub struct Space {
    variables: Vec<Variable>,
    dimensions: Vec<Dimension>,
}

impl Space {
    /// The space of a campaign's variables.
    #[must_use]
    pub fn new(campaign: &Campaign) -> Self {
        let variables: Vec<Variable> = campaign.variables.iter().map(sorted).collect();
        let varying = variables.iter().map(|variable| &variable.distribution).filter(|of| of.varies());
        Self { dimensions: varying.map(dimension).collect(), variables }
    }

    /// The dimensions, one for each variable that varies.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// The values of a point, in the variables' order. `None` where a coordinate is missing, or outside of its dimension.
    #[must_use]
    pub fn values(&self, coordinates: &[f64]) -> Option<Vec<Value>> {
        if coordinates.len() != self.dimensions.len() {
            return None;
        }
        let mut next = self.dimensions.iter().zip(coordinates);
        let value = |Variable { distribution, .. }: &Variable| {
            if !distribution.varies() {
                return Some(distribution.median());
            }
            match next.next()? {
                (Dimension::Real, u) if (0.0..=1.0).contains(u) => {
                    let (low, high) = finite_range(distribution);
                    Some(distribution.quantile(low + (high - low) * u))
                }
                (Dimension::Integer { count } | Dimension::Choice { count }, index) => {
                    let fits = index.fract() == 0.0 && (0.0..*count as f64).contains(index);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a whole number below 2^31"
                    )]
                    fits.then(|| distribution.level(*index as u64, 1))
                }
                (Dimension::Real, _) => None,
            }
        };
        self.variables.iter().map(value).collect()
    }
}

/// A seed for the optimiser, below 2³².
#[must_use]
pub fn seed(campaign: &Campaign) -> u64 {
    hash::hash(&[SEARCH, campaign.seed]) >> 32
}

fn dimension(distribution: &Distribution) -> Dimension {
    let count = distribution.level_count(2);
    match distribution {
        Distribution::Integer { .. } if count <= MOST_WHOLE => Dimension::Integer { count },
        Distribution::Choices(choices) if choices.iter().all(|(value, _)| is_ordered(value)) => {
            Dimension::Integer { count }
        }
        Distribution::Choices(_) => Dimension::Choice { count },
        _ => Dimension::Real,
    }
}

fn is_ordered(value: &Value) -> bool {
    matches!(value, Value::Integer(_) | Value::Number(_))
}

/// The variable with choices among numbers in ascending order, so that neighbours are alike.
fn sorted(variable: &Variable) -> Variable {
    let mut variable = variable.clone();
    if let Distribution::Choices(choices) = &mut variable.distribution
        && choices.iter().all(|(value, _)| is_ordered(value))
    {
        choices.sort_by(|(one, _), (other, _)| {
            one.number().unwrap_or_default().total_cmp(&other.number().unwrap_or_default())
        });
    }
    variable
}

#[cfg(test)]
mod tests {
    use super::Dimension::{Choice, Integer, Real};
    use super::*;

    #[test]
    fn coordinates_become_values_and_others_are_refused() {
        let text = "
run: 'true'
variables:
  x: {uniform: [10, 20]}
  fixed: 7
  n: {integer: [-2, 2]}
  size: [8, 2, 4]
  glass: [single, double]
  wide: {normal: {mean: 0, deviation: 1}}
  huge: {integer: [-9000000000000000000, 9000000000000000000]}
";
        let space = Space::new(&crate::parse("x.yaml", text, std::path::Path::new("/")).unwrap());
        let five = [Real, Integer { count: 5 }, Integer { count: 3 }, Choice { count: 2 }, Real, Real];
        assert_eq!(space.dimensions(), five);
        let values = space.values(&[0.5, 4.0, 2.0, 1.0, 0.0, 1.0]).unwrap();
        let text: Vec<String> = values.iter().map(ToString::to_string).collect();
        assert_eq!(text[..5], ["15", "7", "2", "8", "double"]);
        assert!(values[5].number().is_some_and(f64::is_finite), "{values:?}");
        for wrong in [
            &[0.5, 4.0, 2.0, 1.0, 0.0][..],
            &[1.5, 4.0, 2.0, 1.0, 0.0, 0.0],
            &[f64::NAN, 4.0, 2.0, 1.0, 0.0, 0.0],
            &[0.5, 5.0, 2.0, 1.0, 0.0, 0.0],
            &[0.5, 0.5, 2.0, 1.0, 0.0, 0.0],
            &[0.5, -1.0, 2.0, 1.0, 0.0, 0.0],
        ] {
            assert_eq!(space.values(wrong), None, "{wrong:?}");
        }
    }
}

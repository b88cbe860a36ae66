//! Values of a distribution, by probability.

use crate::model::Distribution;
use crate::normal;
use crate::value::Value;

impl Distribution {
    /// The value at probability `u`, of 0 to 1: the inverse of the distribution function.
    ///
    /// It is finite and within the distribution's bounds, and does not fall while `u` grows. Numbers have the same digits
    /// on every machine. Without a bound, `u` stops 2⁻⁵³ before 0 and 1.
    #[must_use]
    pub fn quantile(&self, u: f64) -> Value {
        let u = u.clamp(0.0, 1.0);
        match *self {
            Self::Fixed(ref value) => value.clone(),
            Self::Uniform { low, high } => Value::Number(between(low, high, u).clamp(low, high)),
            Self::LogUniform { low, high } => {
                Value::Number(libm::exp(between(libm::log(low), libm::log(high), u)).clamp(low, high))
            }
            Self::Integer { low, high } => Value::Integer(whole(low, high, u)),
            Self::Triangle { low, mode, high } => Value::Number(triangle(low, mode, high, u)),
            Self::Normal { mean, deviation, low, high } => {
                let scaled = |end: f64| (end - mean) / deviation;
                let value = mean + deviation * normal::truncated(u, scaled(low), scaled(high));
                Value::Number(value.clamp(low, high))
            }
            Self::LogNormal { mean, deviation, low, high } => {
                let (centre, spread) = of_logarithm(mean, deviation);
                let scaled = |end: f64| (libm::log(end) - centre) / spread;
                let value = libm::exp(centre + spread * normal::truncated(u, scaled(low), scaled(high)));
                Value::Number(value.clamp(low, high))
            }
            Self::Choices(ref choices) => choice(choices, u),
        }
    }

    /// The value that half of the probability lies below.
    #[must_use]
    pub fn median(&self) -> Value {
        self.quantile(0.5)
    }

    /// Whether every number within the bounds can occur.
    #[must_use]
    pub fn is_continuous(&self) -> bool {
        !matches!(self, Self::Fixed(_) | Self::Integer { .. } | Self::Choices(_))
    }

    /// Whether there is more than one value.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.level_count(2) > 1
    }

    /// Number of [`levels`](Self::levels), without making them.
    #[must_use]
    pub fn level_count(&self, n: u32) -> u64 {
        match self {
            Self::Fixed(_) => 1,
            Self::Integer { low, high } => low.abs_diff(*high).saturating_add(1),
            Self::Choices(choices) => choices.len() as u64,
            _ => u64::from(n),
        }
    }

    /// One of the [`levels`](Self::levels), by its number from 0.
    ///
    /// # Panics
    /// At [`level_count`](Self::level_count) and above, for choices.
    #[must_use]
    pub fn level(&self, number: u64, n: u32) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Integer { low, .. } => Value::Integer(low.saturating_add_unsigned(number)),
            Self::Choices(choices) => choices[usize::try_from(number).expect("a place in memory")].0.clone(),
            _ => self.quantile((number as f64 + 0.5) / f64::from(n)),
        }
    }

    /// The values of a grid: `n` of a continuous distribution, in the middle of parts of equal probability. Other
    /// distributions give each of their values once.
    #[must_use]
    pub fn levels(&self, n: u32) -> Vec<Value> {
        (0..self.level_count(n)).map(|number| self.level(number, n)).collect()
    }
}

/// The number a share `u` of the way from `low` to `high`. The difference of the ends may exceed all numbers.
fn between(low: f64, high: f64, u: f64) -> f64 {
    low * (1.0 - u) + high * u
}

#[expect(clippy::cast_possible_truncation, reason = "it saturates, and the upper bound holds")]
fn whole(low: i64, high: i64, u: f64) -> i64 {
    let count = i128::from(high) - i128::from(low) + 1;
    let step = (u * count as f64) as i128;
    i64::try_from(i128::from(low) + step.min(count - 1)).expect("a number between two of this type")
}

/// The two parabolas of the distribution function, inverted. Each works from its own end of the triangle.
fn triangle(low: f64, mode: f64, high: f64, u: f64) -> f64 {
    let width = high - low;
    let value = if u * width < mode - low {
        low + libm::sqrt(u * width * (mode - low))
    } else {
        high - libm::sqrt((1.0 - u) * width * (high - mode))
    };
    value.clamp(low, high)
}

/// Mean and standard deviation of the logarithm, of those of the value.
///
/// Johnson, Kotz, Balakrishnan, "Continuous Univariate Distributions", volume 1 (1994), chapter 14.
fn of_logarithm(mean: f64, deviation: f64) -> (f64, f64) {
    let ratio = deviation / mean;
    let variance = libm::log1p(ratio * ratio);
    (libm::log(mean) - variance / 2.0, libm::sqrt(variance))
}

fn choice(choices: &[(Value, f64)], u: f64) -> Value {
    let mut left = u * choices.iter().map(|(_, weight)| weight).sum::<f64>();
    let chosen = choices.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    // At u = 1, and where rounding leaves a little, it is the last.
    chosen.or(choices.last()).expect("a distribution has a value").0.clone()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(value: &Value) -> f64 {
        value.number().expect("a number")
    }

    /// Ends, and a place between them.
    fn ends() -> impl Strategy<Value = (f64, f64, f64)> {
        (-1e6..1e6, 1e-3..1e6, 0.0..1.0).prop_map(|(low, width, share)| (low, low + share * width, low + width))
    }

    /// Distributions of numbers, with their bounds.
    fn distributions() -> impl Strategy<Value = (Distribution, f64, f64)> {
        let positive = || (1e-6..1e6, 1.001..1e6).prop_map(|(low, ratio)| (low, low * ratio));
        let shape = || (-50.0..50.0, 1e-3..50.0);
        prop_oneof![
            ends().prop_map(|(low, _, high)| (Distribution::Uniform { low, high }, low, high)),
            positive().prop_map(|(low, high)| (Distribution::LogUniform { low, high }, low, high)),
            ends().prop_map(|(low, mode, high)| (Distribution::Triangle { low, mode, high }, low, high)),
            (any::<i64>(), any::<i64>()).prop_map(|(one, other)| {
                let (low, high) = (one.min(other), one.max(other));
                (Distribution::Integer { low, high }, low as f64, high as f64)
            }),
            (shape(), ends()).prop_map(|((mean, deviation), (low, _, high))| {
                (Distribution::Normal { mean, deviation, low, high }, low, high)
            }),
            (shape(), positive()).prop_map(|((mean, deviation), (low, high))| {
                (Distribution::LogNormal { mean: mean.abs() + 0.1, deviation, low, high }, low, high)
            }),
            (1..9_i64).prop_map(|count| {
                let choices = (0..count).map(|value| (Value::Integer(value), 0.5 + value as f64)).collect();
                (Distribution::Choices(choices), 0.0, (count - 1) as f64)
            }),
        ]
    }

    proptest! {
        #[test]
        fn values_lie_within_the_bounds_and_rise((distribution, low, high) in distributions(), us: [f64; 2]) {
            let [one, other] = us.map(|u| u.abs().fract());
            let (less, more) = (one.min(other), one.max(other));
            let at = |u| number(&distribution.quantile(u));
            let values = [at(0.0), at(less), at(more), at(1.0)];
            for value in values {
                prop_assert!((low..=high).contains(&value), "{value}");
            }
            let slack = 1e-13 * low.abs().max(high.abs());
            prop_assert!(values.is_sorted_by(|a, b| *a <= b + slack), "{values:?}");
        }

        #[test]
        fn levels_are_values_in_order((distribution, low, high) in distributions(), n in 1_u32..9) {
            prop_assume!(distribution.level_count(n) < 100);
            let levels = distribution.levels(n);
            prop_assert_eq!(levels.len() as u64, distribution.level_count(n));
            prop_assert!(levels.iter().map(number).is_sorted());
            prop_assert!(levels.iter().map(number).all(|level| (low..=high).contains(&level)));
        }
    }

    /// Mean and standard deviation over evenly spread probabilities.
    fn moments(distribution: &Distribution) -> (f64, f64) {
        let n = 20_000;
        let values: Vec<f64> =
            (0..n).map(|k| number(&distribution.quantile((f64::from(k) + 0.5) / f64::from(n)))).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / f64::from(n);
        (mean, variance.sqrt())
    }

    #[test]
    fn moments_are_those_of_the_formulas() {
        let free = (f64::NEG_INFINITY, f64::INFINITY);
        let expected = [
            (Distribution::Uniform { low: 2.0, high: 5.0 }, 3.5, 3.0 / 12_f64.sqrt()),
            // (high - low) / ln(high / low)
            (Distribution::LogUniform { low: 1.0, high: 10.0 }, 9.0 / 10_f64.ln(), 2.497),
            (Distribution::Integer { low: 1, high: 6 }, 3.5, (35.0_f64 / 12.0).sqrt()),
            (Distribution::Triangle { low: 0.0, mode: 1.0, high: 5.0 }, 2.0, (21.0_f64 / 18.0).sqrt()),
            (Distribution::Normal { mean: 3.0, deviation: 2.0, low: free.0, high: free.1 }, 3.0, 2.0),
            // Half a normal distribution has mean sqrt(2 / pi).
            (Distribution::Normal { mean: 0.0, deviation: 1.0, low: 0.0, high: free.1 }, 0.797_885, 0.602_81),
            (Distribution::LogNormal { mean: 3.0, deviation: 2.0, low: 0.0, high: free.1 }, 3.0, 2.0),
        ];
        for (distribution, mean, deviation) in expected {
            let (found, spread) = moments(&distribution);
            assert!((found - mean).abs() < 1e-3, "{distribution:?}: mean {found}");
            assert!((spread - deviation).abs() < 5e-3, "{distribution:?}: deviation {spread}");
        }
    }

    #[test]
    fn choices_come_in_the_share_of_their_weights() {
        let choices = Distribution::Choices(vec![(Value::Text("a".into()), 1.0), (Value::Text("b".into()), 3.0)]);
        let share = (0..1000).filter(|k| choices.quantile((f64::from(*k) + 0.5) / 1000.0).to_string() == "a").count();
        assert_eq!(share, 250);
        assert_eq!(choices.quantile(1.0).to_string(), "b");
        assert_eq!(choices.median().to_string(), "b");
    }

    #[test]
    fn whole_numbers_reach_both_ends_of_their_type() {
        let all = Distribution::Integer { low: i64::MIN, high: i64::MAX };
        assert_eq!(all.quantile(0.0), Value::Integer(i64::MIN));
        assert_eq!(all.quantile(1.0), Value::Integer(i64::MAX));
        assert!(!Distribution::Fixed(Value::Bool(true)).varies() && all.varies() && !all.is_continuous());
    }
}

//! From values to places on an axis.

/// A scale over a range of values. Never degenerate: any values give finite places within the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    log: bool,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

/// Above this quotient of greatest and least value a linear axis would squeeze the small ones into one place.
const LOG_FROM: f64 = 20.0;

/// Values closer together than this quotient get an axis that does not start at zero.
const ZOOM_BELOW: f64 = 1.6;

impl Scale {
    /// A scale whose axis runs from `start` to `end` and shows all of `values`. It is logarithmic where they span more
    /// than a factor of [`LOG_FROM`]. Otherwise it begins at zero, unless all values lie close together far from it.
    pub(super) fn fit(values: &[f64], start: f64, end: f64) -> Self {
        let (low, high) = bounds(values);
        if low > 0.0 && high / low > LOG_FROM {
            return Self::log(values, start, end);
        }
        let low = if low > 0.0 && high / low >= ZOOM_BELOW { 0.0 } else { low };
        Self::fit_linear(&[low, high], start, end)
    }

    /// A linear scale over all of `values`, from and to a round number.
    pub(super) fn fit_linear(values: &[f64], start: f64, end: f64) -> Self {
        let (low, high) = bounds(values);
        let step = step(low, high);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Self { log: false, low, high: if high > low { high } else { low + step }, start, end }
    }

    /// As [`fit`](Self::fit), but it begins at zero only where values do: for clouds, whose form matters.
    pub(super) fn near(values: &[f64], start: f64, end: f64) -> Self {
        let (low, high) = bounds(values);
        if low > 0.0 && high / low > LOG_FROM {
            return Self::log(values, start, end);
        }
        Self::fit_linear(values, start, end)
    }

    /// A linear scale from `low` to `high`.
    pub(super) fn exactly(low: f64, high: f64, start: f64, end: f64) -> Self {
        Self { log: false, low, high, start, end }
    }

    /// A logarithmic scale; values that are not positive have no place on it and are not considered.
    pub(super) fn log(values: &[f64], start: f64, end: f64) -> Self {
        let positive: Vec<f64> = values.iter().copied().filter(|&value| value > 0.0).collect();
        let (low, high) = bounds(&positive);
        let low = if low > 0.0 { low } else { 1.0 };
        let high = if high > low { high } else { low * 10.0 };
        // A margin of 4 % on each side keeps marks off the frame.
        let margin = (high / low).powf(0.04);
        Self { log: true, low: low / margin, high: high * margin, start, end }
    }

    /// The place of a value on the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.start + share * (self.end - self.start)
    }

    /// A remark of the axis besides its unit.
    pub(super) fn note(&self) -> Option<&'static str> {
        if self.log { Some("logarithmic axis") } else { (self.low > 0.0).then_some("axis does not start at 0") }
    }

    /// Round values for tick marks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = step(self.low, self.high);
            return (0..=20)
                .map(|i| self.low + f64::from(i) * step)
                .take_while(|&v| v <= self.high + step / 2.0)
                .collect();
        }
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = if decades > 8.0 { 3 } else { 1 };
        powers(10.0, self.low, self.high, every)
            .flat_map(|power| factors.iter().map(move |factor| power * factor))
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }

    /// Ticks at powers of 16, for message sizes.
    pub(super) fn size_ticks(&self) -> Vec<f64> {
        powers(16.0, self.low, self.high, 1).filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// Least and greatest finite value; 0 and 1 where there is none.
fn bounds(values: &[f64]) -> (f64, f64) {
    // Beyond these, differences and quotients of values may overflow or vanish.
    let sane = values.iter().copied().filter(|value| *value == 0.0 || (1e-150..1e150).contains(&value.abs()));
    let (low, high) = sane.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// 1, 2 or 5 times a power of ten, so that about five steps cover the range.
fn step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / 5.0;
    // A range that is small beside its place has no steps that the numbers can tell apart.
    if rough <= high.abs().max(low.abs()) * 1e-9 {
        return (high.abs() * 0.1).max(f64::MIN_POSITIVE.sqrt());
    }
    let power = 10_f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|&nice| nice * power >= rough * 0.999).unwrap_or(10.0);
    nice * power
}

/// Powers of `base` from below `low` to above `high`, both positive.
#[allow(clippy::cast_possible_truncation)] // logarithms of positive f64 fit an i32
fn powers(base: f64, low: f64, high: f64, every: usize) -> impl Iterator<Item = f64> {
    let exponent = |value: f64| value.max(f64::MIN_POSITIVE).log(base);
    let (from, to) = (exponent(low).floor() as i32, exponent(high).ceil() as i32);
    (from..=to).step_by(every).map(move |exponent| base.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_axis_fits_the_values() {
        let near = Scale::fit(&[16.1, 17.4], 0.0, 100.0);
        assert_eq!(near.note(), Some("axis does not start at 0"));
        let wide = Scale::fit(&[8.0, 17.4], 0.0, 100.0);
        assert_eq!((wide.at(0.0), wide.note(), wide.ticks()), (0.0, None, vec![0.0, 5.0, 10.0, 15.0, 20.0]));
        let far = Scale::fit(&[1.1, 51.0], 0.0, 100.0);
        assert_eq!((far.note(), far.ticks()), (Some("logarithmic axis"), vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0]));
    }

    proptest! {
        #[test]
        fn any_value_has_a_place_and_ticks_are_few(
            values in proptest::collection::vec(any::<f64>(), 0..8), value: f64,
        ) {
            for scale in [Scale::fit(&values, 10.0, 90.0), Scale::log(&values, 10.0, 90.0)] {
                prop_assert!((10.0..=90.0).contains(&scale.at(value)));
                prop_assert!(scale.ticks().len() < 120, "{:?}", scale);
            }
            prop_assert!(Scale::log(&values, 10.0, 90.0).size_ticks().len() < 300);
        }
    }
}

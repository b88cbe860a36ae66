//! Points at the ends of a design, for checks before the first point.

use super::{Plan, finite_range};
use crate::model::{Distribution, Variable};
use crate::value::Value;

/// Most points that are looked at.
const LOOK: u64 = 10_000;
/// Most texts of one variable.
const TEXTS: usize = 16;

impl Plan {
    /// Some points' worth of values, in the variables' order: together they have the least and the greatest number of each
    /// variable, and its texts. They are few, and not always points of the design. Of a very large design, and of a search,
    /// only a part is known before it runs.
    #[must_use]
    pub fn ends(&self) -> Vec<Vec<Value>> {
        let mut ends: Vec<Ends> = self.variables.iter().map(|_| Ends::default()).collect();
        // A search has no points before it runs, except a baseline.
        let known = if self.is_search() { self.lead() } else { self.len().min(LOOK) };
        for point in 0..known {
            for (ends, value) in ends.iter_mut().zip(self.point(point)) {
                ends.note(value);
            }
        }
        if self.is_search() {
            for (ends, Variable { distribution, .. }) in ends.iter_mut().zip(&self.variables) {
                for value in of(distribution) {
                    ends.note(value);
                }
            }
        }
        let columns: Vec<Vec<Value>> = ends.into_iter().map(Ends::values).collect();
        let count = columns.iter().map(Vec::len).max().unwrap_or(1);
        (0..count).map(|row| columns.iter().map(|column| column[row % column.len()].clone()).collect()).collect()
    }
}

/// Values that a search can choose.
fn of(distribution: &Distribution) -> Vec<Value> {
    match distribution {
        Distribution::Fixed(value) => vec![value.clone()],
        Distribution::Choices(values) => values.iter().map(|(value, _)| value.clone()).collect(),
        _ => {
            let (low, high) = finite_range(distribution);
            vec![distribution.quantile(low), distribution.quantile(high)]
        }
    }
}

/// Values at the ends of one variable.
#[derive(Default)]
struct Ends {
    least: Option<Value>,
    greatest: Option<Value>,
    texts: Vec<Value>,
}

impl Ends {
    fn note(&mut self, value: Value) {
        match value.number() {
            Some(number) => {
                if self.least.as_ref().and_then(Value::number).is_none_or(|least| number < least) {
                    self.least = Some(value.clone());
                }
                if self.greatest.as_ref().and_then(Value::number).is_none_or(|greatest| number > greatest) {
                    self.greatest = Some(value);
                }
            }
            None if self.texts.len() < TEXTS && !self.texts.contains(&value) => self.texts.push(value),
            None => {}
        }
    }

    /// At least one.
    fn values(self) -> Vec<Value> {
        let mut values: Vec<Value> = self.least.into_iter().chain(self.greatest).chain(self.texts).collect();
        values.dedup();
        if values.is_empty() {
            // No point was there to look at.
            values.push(Value::Integer(0));
        }
        values
    }
}

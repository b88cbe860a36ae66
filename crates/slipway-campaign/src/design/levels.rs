//! Designs on the levels of variables.

use crate::model::Variable;
use crate::value::Value;

/// The number of combinations of all levels; `None` beyond 64 bits.
pub(super) fn grid_count(variables: &[Variable], levels: u32) -> Option<u64> {
    variables.iter().try_fold(1_u64, |count, variable| count.checked_mul(variable.distribution.level_count(levels)))
}

/// A combination by its number. The last variable changes first, as the last digit of a number does.
pub(super) fn grid(variables: &[Variable], levels: u32, mut index: u64) -> Vec<Value> {
    let value = |variable: &Variable| {
        let count = variable.distribution.level_count(levels);
        let level = index % count;
        index /= count;
        variable.distribution.level(level, levels)
    };
    let mut values: Vec<Value> = variables.iter().rev().map(value).collect();
    values.reverse();
    values
}

/// One point of medians, and one for each level of each variable that varies; `None` beyond 64 bits.
pub(super) fn oat_count(variables: &[Variable], levels: u32) -> Option<u64> {
    let varying = variables.iter().filter(|variable| variable.distribution.varies());
    varying.map(|variable| variable.distribution.level_count(levels)).try_fold(1, u64::checked_add)
}

/// All medians, but for one variable.
pub(super) fn oat(variables: &[Variable], levels: u32, index: u64) -> Vec<Value> {
    let mut values = medians(variables);
    let Some(mut left) = index.checked_sub(1) else { return values };
    for (value, variable) in values.iter_mut().zip(variables).filter(|(_, variable)| variable.distribution.varies()) {
        let count = variable.distribution.level_count(levels);
        if left < count {
            *value = variable.distribution.level(left, levels);
            break;
        }
        left -= count;
    }
    values
}

/// The median of each variable.
pub(super) fn medians(variables: &[Variable]) -> Vec<Value> {
    variables.iter().map(|variable| variable.distribution.median()).collect()
}

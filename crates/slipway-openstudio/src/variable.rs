//! Variables of an analysis, and points.

use slipway_campaign::value::Value;

use crate::distribution::Values;

/// Points, each with a value for each variable.
pub(crate) type Rows = Vec<Vec<Value>>;

/// Most points of a list.
pub(crate) const MOST: usize = 1_000_000;

/// A variable of an analysis.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    /// `measure.argument`.
    pub(crate) name: String,
    /// `measure/argument`, of the workflow.
    pub(crate) argument: String,
    /// Names that data points call it.
    pub(crate) ids: Vec<String>,
    pub(crate) values: Values,
    /// Whether the design is repeated for each of its values.
    pub(crate) pivot: bool,
}

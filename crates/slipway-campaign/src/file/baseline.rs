use schemars::JsonSchema;
use slipway_document::by_shape;
use slipway_document::de::Named;

use super::Scalar;

/// The point that runs before all others. The rest runs only once it has a result.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Baseline {
    /// `true`: the median of each variable.
    Medians(bool),
    /// Values by the variables' names, also outside of their distributions. Other variables have their median.
    Values(Named<Scalar>),
}

by_shape!(
    Baseline,
    "`true`, or a map from variables to values such as `{speed: 20}`",
    Bool => Medians,
    Map => Values,
);

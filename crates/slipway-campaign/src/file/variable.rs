use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::{Named, Spanned};

/// A single value: a number, a text, or `true` and `false`.
#[derive(Debug, Clone)]
pub(crate) enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Default for Scalar {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

by_shape!(Scalar, "a number, a text, or true or false", Bool => Bool, Decimal => Number, Text => Text);

impl JsonSchema for Scalar {
    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// Values of a variable.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Variable {
    /// Always the same: `true` or `false`.
    Bool(bool),
    /// Always the same number.
    Number(f64),
    /// Always the same text.
    Text(String),
    /// One of several, all equally likely.
    List(Vec<Scalar>),
    /// A distribution.
    Shape(Box<Spanned<Shape>>),
}

by_shape!(
    Variable,
    "a value, a list of values, or a map such as `uniform: [0, 1]`",
    Bool => Bool,
    Decimal => Number,
    Text => Text,
    List => List,
    Map => Shape,
);

/// A distribution: exactly one key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a distribution: a map such as `uniform: [0, 1]`")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct Shape {
    /// Any number from the first to the second, all equally likely.
    #[schemars(length(equal = 2))]
    pub(crate) uniform: Option<Spanned<Vec<f64>>>,
    /// The same for the logarithm of the number.
    #[schemars(length(equal = 2))]
    pub(crate) loguniform: Option<Spanned<Vec<f64>>>,
    /// A whole number from the first to the second, both included.
    #[schemars(length(equal = 2))]
    pub(crate) integer: Option<Spanned<Vec<i64>>>,
    /// A triangle: least, likeliest and greatest number.
    #[schemars(length(equal = 3))]
    pub(crate) triangle: Option<Spanned<Vec<f64>>>,
    /// Gauss's distribution.
    pub(crate) normal: Option<Spanned<Gauss>>,
    /// The distribution of a number whose logarithm is Gauss's.
    pub(crate) lognormal: Option<Spanned<Gauss>>,
    /// One of several values: a list, or a map from values to weights.
    pub(crate) choices: Option<Spanned<Choices>>,
}

/// Mean and deviation of the number itself, before it is cut to `min` and `max`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a map with `mean` and `deviation`")]
pub(crate) struct Gauss {
    /// Mean.
    pub(crate) mean: f64,
    /// Standard deviation.
    pub(crate) deviation: f64,
    /// Least number.
    pub(crate) min: Option<f64>,
    /// Greatest number.
    pub(crate) max: Option<f64>,
}

/// One of several values.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Choices {
    /// All equally likely.
    Equal(Vec<Scalar>),
    /// Each with its weight.
    Weighted(Named<f64>),
}

by_shape!(Choices, "a list of values, or a map from values to weights", List => Equal, Map => Weighted);

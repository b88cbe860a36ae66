use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::Spanned;

/// A result to extract.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Output {
    /// A regular expression for standard output; its first group, in its first match, is the result.
    Regex(Spanned<String>),
    /// A file and the part of it.
    Settings(Box<Spanned<OutputSettings>>),
}

by_shape!(
    Output,
    "a regular expression for standard output, or a map such as `{file: out.json, json_path: $.total}`",
    Text => Regex,
    Map => Settings,
);

/// A file and the part of it: exactly one of `regex`, `json_path`, `column`, `series`, `sql`, `size`, and for `EnergyPlus`
/// `meter`, `variable` and `table` says which.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an output: a map such as `{file: out.json, json_path: $.total}`")]
pub(crate) struct OutputSettings {
    /// The file, relative to the point's folder. Standard output when left out.
    pub(crate) file: Option<Spanned<String>>,
    /// Unit, for plots and tables.
    pub(crate) unit: Option<String>,
    /// A regular expression; its first group, in its first match, is the result.
    pub(crate) regex: Option<Spanned<String>>,
    /// A JSON path (RFC 9535) that selects the result: one value, or a list of numbers as a time series.
    pub(crate) json_path: Option<Spanned<String>>,
    /// A column of a CSV file, whose last value is the result.
    pub(crate) column: Option<Spanned<String>>,
    /// A column of a CSV file, of which all values are a time series.
    pub(crate) series: Option<Spanned<String>>,
    /// A query of an SQLite file, whose first value is the result.
    pub(crate) sql: Option<Spanned<String>>,
    /// `true`: the size of the file in bytes.
    pub(crate) size: Option<Spanned<bool>>,
    /// A meter of `EnergyPlus`, such as `Electricity:Facility`. Its unit is J where `unit` is not another of energy.
    pub(crate) meter: Option<Spanned<String>>,
    /// A variable of `EnergyPlus`, such as `Zone Mean Air Temperature`, of the object that `of` names or of all.
    pub(crate) variable: Option<Spanned<String>>,
    /// The object whose variable it is.
    pub(crate) of: Option<Spanned<String>>,
    /// A cell of `EnergyPlus`' summary tables: `Table/Row/Column`, as in `End Uses/Total End Uses/Electricity`.
    pub(crate) table: Option<Spanned<String>>,
    /// The value to take of a meter's or a variable's. When left out: `sum` for a meter, `mean` for a variable.
    pub(crate) take: Option<Spanned<Taken>>,
}

/// The value to take of many.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Taken {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
    /// All of them: a time series.
    Series,
}

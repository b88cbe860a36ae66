use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::de::{Named, Spanned};
use slipway_energyplus::Reporting;

use super::Scalar;

/// An engine: exactly one key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an engine: a map with `python`, `energyplus` or `openstudio`")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub(crate) struct Engines {
    /// A Python function, called with the variables as keyword arguments.
    pub(crate) python: Option<Spanned<PythonFunction>>,
    /// `EnergyPlus`: a model and a weather file.
    pub(crate) energyplus: Option<Spanned<EnergyPlus>>,
    /// `OpenStudio`: a model or a workflow of measures.
    pub(crate) openstudio: Option<Spanned<OpenStudio>>,
}

/// A Python function. It returns a number, or a dict with a number, a text or a list of numbers for each output.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a function: a map with `file` and `function`")]
pub(crate) struct PythonFunction {
    /// The file with the function, relative to the campaign file.
    pub(crate) file: Spanned<String>,
    /// The function's name.
    pub(crate) function: Spanned<String>,
    /// Packages that it imports, each with its version, as in `numpy==2.4.0`. Slipway installs them.
    pub(crate) requires: Option<Vec<Spanned<String>>>,
}

/// `EnergyPlus`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "EnergyPlus: a map with `model` and `weather`")]
pub(crate) struct EnergyPlus {
    /// The model (IDF), relative to the campaign file; or `example:` and the beginning of an example's name.
    pub(crate) model: Spanned<String>,
    /// The weather file (EPW), relative to the campaign file; or `example:` and the beginning of an example's name.
    pub(crate) weather: Spanned<String>,
    /// `false`: the model's own run periods. The weather file's whole year when left out.
    pub(crate) annual: Option<bool>,
    /// Frequency of all reports. `hourly` for those that outputs name when left out; the model's own stay as they are.
    pub(crate) reporting: Option<Reporting>,
    /// Fields of the model's objects (`Class/Object/Field`), each with its value. `{variable}` stands for the point's value.
    #[serde(default)]
    pub(crate) set: Named<Scalar>,
}

/// `OpenStudio`: `model` or `workflow`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "OpenStudio: a map with `model` or `workflow`")]
pub(crate) struct OpenStudio {
    /// The model (OSM), relative to the campaign file.
    pub(crate) model: Option<Spanned<String>>,
    /// The workflow of measures (OSW), relative to the campaign file.
    pub(crate) workflow: Option<Spanned<String>>,
    /// The weather file of a model (EPW), relative to the campaign file; or `example:` and the beginning of an example's name.
    pub(crate) weather: Option<Spanned<String>>,
    /// `false`: the model's own run periods. The weather file's whole year when left out.
    pub(crate) annual: Option<bool>,
    /// Frequency of all reports of a model. `hourly` for those that outputs name when left out.
    pub(crate) reporting: Option<Reporting>,
    /// Values: of fields of a model's objects (`Class/Object/Field`), or of arguments of a workflow's measures
    /// (`measure/argument`). `{variable}` stands for the point's value.
    #[serde(default)]
    pub(crate) set: Named<Scalar>,
}

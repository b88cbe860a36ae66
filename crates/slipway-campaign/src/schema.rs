//! The JSON Schema of campaign files, for editors. Checked in as `docs/campaign.schema.json`.

use crate::file::File;

/// The schema (JSON Schema 2020-12) that the campaign file's own types give.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

/// A commented campaign to start from, which runs as it is: `slipway campaign init` writes it.
#[must_use]
pub fn example() -> &'static str {
    include_str!("example.yaml")
}

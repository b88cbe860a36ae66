//! The JSON Schema of lab files, for editors. Checked in as `docs/lab.schema.json`.

use crate::file::File;

/// The schema (JSON Schema 2020-12) that the lab file's own types give.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

//! The checked-in schema is the types' own, and it says what the reader does.

use std::path::{Path, PathBuf};

use slipway_campaign::{example, json_schema};

fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/campaign.schema.json")
}

/// After a change of the file's types: `UPDATE_SCHEMA=1 cargo test -p slipway-campaign --test schema`.
#[test]
fn the_checked_in_schema_is_current() {
    let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(checked_in(), &current).unwrap();
    }
    let found = std::fs::read_to_string(checked_in()).unwrap();
    let how = "UPDATE_SCHEMA=1 cargo test -p slipway-campaign --test schema";
    assert!(found == current, "docs/campaign.schema.json is old: {how}");
}

/// Another reader than ours gives the value that an editor checks against the schema.
#[test]
fn right_files_fit_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.display().to_string(), std::fs::read_to_string(path).unwrap())
    });
    for (name, text) in files.chain([("the example".to_owned(), example().to_owned())]) {
        let value = serde_saphyr::from_str::<serde_json::Value>(&text).unwrap();
        let errors: Vec<_> = schema.iter_errors(&value).map(|error| format!("{error}")).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

//! Whatever a list of points (CSV) holds, each of its points has a value for each variable, or the reason is told.
#![cfg_attr(fuzzing, no_main)]

use std::sync::LazyLock;

use slipway_campaign::value::Value;
use slipway_study::campaign::Study;
use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

const CAMPAIGN: &str = "\
campaign: fuzz
run: [model, '{depth}', '{facade}']
variables: {depth: {uniform: [0, 1]}, facade: [South, North], fixed: 3}
design: {list: points.csv}
";

slipway_fuzz::target!(|bytes: &[u8]| {
    std::fs::write(ROOM.path().join("points.csv"), bytes).expect("written");
    match Study::new("fuzz.yaml".to_owned(), CAMPAIGN.to_owned(), ROOM.path().to_owned()) {
        Ok(study) => {
            for point in 0..study.plan.len() {
                let values = study.plan.point(point);
                assert_eq!(values.len(), 3);
                assert!(values.iter().all(|value| !matches!(value, Value::Number(number) if !number.is_finite())));
                assert_eq!(values[2], Value::Integer(3));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

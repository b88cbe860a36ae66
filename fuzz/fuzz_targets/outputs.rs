//! Whatever files a point's program leaves (text, JSON, CSV, EnergyPlus' database), each output has a finite value, a time
//! series or a reason, and the same again.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;
use std::sync::LazyLock;

use slipway_campaign::value::Value;
use slipway_results::extract::Extractor;
use slipway_results::series;
use tempfile::TempDir;

static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::with_prefix("slipway-fuzz-").expect("a folder"));

const CAMPAIGN: &str = "\
run: {energyplus: {model: in.idf, weather: in.epw}}
outputs:
  printed: 'Total: *(.*) J'
  first: {file: out, regex: '^(\\S+)'}
  path: {file: out, json_path: '$.totals.energy'}
  paths: {file: out, json_path: '$..energy'}
  last: {file: out, column: 'InteriorLights:Electricity [J](Hourly)'}
  all: {file: out, series: 'InteriorLights:Electricity [J](Hourly)'}
  bytes: {file: out, size: true}
  meter: {meter: 'Electricity:Facility', unit: kWh}
  hours: {meter: 'Electricity:Facility', take: series}
  warm: {variable: Zone Mean Air Temperature, take: greatest}
  cell: {table: End Uses/Cooling/Electricity}
  rows: {file: eplusout.sql, sql: select count(*) from Errors}
";

static EXTRACTOR: LazyLock<(usize, Extractor)> = LazyLock::new(|| {
    let campaign = slipway_campaign::parse("fuzz.yaml", CAMPAIGN, Path::new("/"));
    let outputs = campaign.unwrap_or_else(|errors| panic!("{}", errors.plain())).outputs;
    (outputs.len(), Extractor::new(&outputs).expect("outputs"))
});

slipway_fuzz::target!(|bytes: &[u8]| {
    let (count, extractor) = &*EXTRACTOR;
    for name in ["out", "eplusout.sql"] {
        std::fs::write(ROOM.path().join(name), bytes).expect("written");
    }
    let stdout = ROOM.path().join("out");
    let found = extractor.extract(ROOM.path(), &stdout);
    let values = found.values.iter().flatten();
    assert_eq!(values.clone().count() + found.series.len() + found.problems.len(), *count, "{:?}", found.problems);
    for value in values {
        match value {
            Value::Number(number) => assert!(number.is_finite()),
            Value::Text(text) => assert!((1..=4096).contains(&text.len())),
            Value::Bool(_) | Value::Integer(_) => {}
        }
    }
    for (_, values) in &found.series {
        assert!(!values.is_empty() && values.iter().all(|value| value.is_finite()));
        assert_eq!(series::decode(&series::encode(values)).as_ref(), Ok(values));
    }
    assert!(found.problems.iter().all(|problem| !problem.contains('\0')));
    assert_eq!(extractor.extract(ROOM.path(), &stdout), found);
});

//! The checked-in schema is the types' own, and it says what the reader does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slipway_lab::{json_schema, parse, template};

fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.schema.json")
}

/// After a change of the lab file's types: `UPDATE_SCHEMA=1 cargo test -p slipway-lab --test schema`.
#[test]
fn the_checked_in_schema_is_current() {
    let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(checked_in(), &current).unwrap();
    }
    let found = std::fs::read_to_string(checked_in()).unwrap();
    assert!(found == current, "docs/lab.schema.json is old: UPDATE_SCHEMA=1 cargo test -p slipway-lab --test schema");
}

/// A file's text as the value that an editor checks against the schema.
/// Read by another reader than ours.
fn value_of(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn files(folder: &str) -> impl Iterator<Item = (String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    std::fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.display().to_string(), std::fs::read_to_string(path).unwrap())
    })
}

#[test]
fn what_is_right_fits_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    for (name, text) in files("right").chain([("the template".to_owned(), template().to_owned())]) {
        let errors: Vec<_> = schema.iter_errors(&value_of(&text)).map(|error| format!("{error}")).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

/// A scenario's own file has the same form as the lab file's section.
#[test]
fn right_scenarios_fit_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let is_scenario = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "yaml");
    for (name, text) in files("scenarios/right").filter(|(name, _)| is_scenario(name)) {
        let lab = serde_json::json!({ "nodes": { "n": null }, "scenario": value_of(&text) });
        let errors: Vec<_> = schema.iter_errors(&lab).map(|error| format!("{error}")).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

/// Every object type of the schema, with a lab file that holds one: what the reader knows there is what the schema lists.
#[test]
fn keys_are_the_same_in_schema_and_reader() {
    let places = [
        ("File", "?: 1"),
        ("Host", "nodes: {n: }\nhosts: {h: {?: 1}}"),
        ("MachineSettings", "nodes: {n: }\nmachines: {m: {address: 192.0.2.1, ?: 1}}"),
        ("Underlay", "nodes: {n: }\nhosts: 2\nunderlay: {?: 1}"),
        ("ImageSettings", "nodes: {n: }\nimages: {i: {path: x, ?: 1}}"),
        ("NetworkSettings", "nodes: {n: }\nnetworks: {x: {?: 1}}"),
        ("Node", "nodes: {n: {?: 1}}"),
        ("Membership", "nodes: {n: {networks: {net: {?: 1}}}}"),
        ("MountSettings", "nodes: {n: {mounts: [{source: x, target: /x, ?: 1}]}}"),
        ("Conditions", "nodes: {n: }\nnetworks: {x: {conditions: {?: 1}}}"),
        ("Ingress", "nodes: {n: }\nnetworks: {x: {conditions: {ingress: {?: 1}}}}"),
        ("Link", "nodes: {n: {count: 2}}\nlinks: [{between: [n1, n2], delay: 1ms, ?: 1}]"),
        ("DeviceCaps", "networks: {q: {driver: fast, rdma: true}}\nnodes: {n: {rdma: {?: 1}}}"),
        ("Disk", "nodes: {n: {disk: {write: 1MB/s, ?: 1}}}"),
        ("Rule", "nodes: {n: }\npolicy: [{?: 1}]"),
        ("RateSettings", "nodes: {n: }\npolicy: [{rate: {flow: 1gbit, ?: 1}}]"),
        ("Job", "nodes: {n: }\njob: {command: x, ?: 1}"),
        ("Figure", "nodes: {n: }\njob: {command: x, figure: {wall_time: true, ?: 1}}"),
        ("Scenario", "nodes: {n: }\nscenario: {events: [], ?: 1}"),
        ("Event", "nodes: {n: }\nscenario: {events: [{at: 1s, kill: n, ?: 1}]}"),
        ("Choice", "nodes: {n: }\nscenario: {events: [{at: 1s, kill: {choose: 1, of: n, ?: 1}}]}"),
        ("Run", "nodes: {n: }\nscenario: {events: [{at: 1s, run: {command: x, ?: 1}}]}"),
        ("Trace", "nodes: {n: }\nscenario: {events: [{trace: {file: x, format: csv, of: state, ?: 1}, nodes: n}]}"),
        ("Draw", "nodes: {n: }\nscenario: {events: [{at: {?: 1}, kill: n}]}"),
        ("Exponential", "nodes: {n: }\nscenario: {events: [{at: {exponential: {mean: 1s, ?: 1}}, kill: n}]}"),
        ("Weibull", "nodes: {n: }\nscenario: {events: [{at: {weibull: {shape: 1, scale: 1s, ?: 1}}, kill: n}]}"),
        ("Lognormal", "nodes: {n: }\nscenario: {events: [{at: {lognormal: {median: 1s, sigma: 1, ?: 1}}, kill: n}]}"),
        ("Pareto", "nodes: {n: }\nscenario: {events: [{at: {pareto: {shape: 1, minimum: 1s, ?: 1}}, kill: n}]}"),
        ("Normal", "nodes: {n: }\nscenario: {events: [{at: {normal: {mean: 1s, deviation: 1s, ?: 1}}, kill: n}]}"),
    ];
    let schema = json_schema();
    let objects = objects(&schema);
    assert_eq!(objects.len(), places.len(), "a type without a place here: {objects:?}");
    for (name, text) in places {
        let mut known = known_to_reader(&text.replace('?', "zzzzzzzzzz"));
        let (_, keys) =
            objects.iter().find(|(object, _)| object == name).unwrap_or_else(|| panic!("{name} is no type"));
        // A long list is cut short; what is listed must be there.
        if known.remove("…") {
            assert!(known.is_subset(keys), "{name}: {known:?}");
        } else {
            assert_eq!(keys, &known, "{name}");
        }
    }
}

fn objects(schema: &Value) -> Vec<(String, BTreeSet<String>)> {
    let definitions = schema["$defs"].as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value));
    let with_keys = std::iter::once(("File", schema)).chain(definitions).filter_map(|(name, value)| {
        let keys = value["properties"].as_object()?.keys().cloned().collect();
        assert_eq!(value["additionalProperties"], Value::Bool(false), "{name} takes unknown keys");
        Some((name.to_owned(), keys))
    });
    with_keys.collect()
}

/// The keys that the reader names when it refuses one.
fn known_to_reader(text: &str) -> BTreeSet<String> {
    let errors = parse("x.yaml", text, Path::new("/")).unwrap_err();
    let refusal = errors.errors().iter().find(|error| error.message.contains("zzzzzzzzzz"));
    let help = &refusal.unwrap_or_else(|| panic!("{}", errors.plain())).help;
    help.trim_start_matches("there are: ").split(", ").map(str::to_owned).collect()
}

//! Analyses of our own in the form of OpenStudio's, every algorithm, and any text.

#![allow(clippy::needless_pass_by_value, reason = "values of `json!` are handed over as they are made")]

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use slipway_campaign::design::{Plan, Rows};
use slipway_campaign::model::Design;
use slipway_campaign::parse;
use slipway_openstudio::{Files, ImportError, Imported, osw, read, read_workflow};

fn attributes(of: &[(&str, f64)]) -> Value {
    of.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn variable(name: &str, description: Value) -> Value {
    json!({
        "argument": {"name": name, "value_type": "double", "value": "0.5"},
        "static_value": 0.5, "uuid": format!("id-{name}"), "variable_type": "variable", "variable": true,
        "uncertainty_description": description,
    })
}

fn discrete(values: &[(Value, f64)]) -> Value {
    let values: Vec<Value> = values.iter().map(|(value, weight)| json!({"value": value, "weight": weight})).collect();
    json!({"type": "discrete", "attributes": [{"name": "discrete", "values_and_weights": values}]})
}

fn uniform() -> Value {
    json!({"type": "uniform_uncertain", "attributes": attributes(&[("lower_bounds", 0.0), ("upper_bounds", 1.0), ("modes", 0.5)])})
}

fn analysis(kind: &str, algorithm: Value, variables: Vec<Value>) -> Value {
    json!({"analysis": {
        "name": "Two_Overhangs", "display_name": "Two overhangs",
        "seed": {"file_type": "OSM", "path": "./seeds/office.osm"},
        "weather_file": {"file_type": "EPW", "path": "./weather/denver.epw"},
        "output_variables": [
            {"name": "openstudio_results.total_site_energy", "units": "GJ", "objective_function": true, "objective_function_target": 0},
        ],
        "problem": {"analysis_type": kind, "algorithm": algorithm, "workflow": [
            {"name": "add_overhangs", "measure_type": "RubyMeasure", "measure_definition_directory": "./measures/AddOverhangs",
             "arguments": [{"name": "facade", "value": "South"}, {"name": "empty", "value": null}], "variables": variables},
        ]},
        "run_workflow_timeout": 600,
    }})
}

fn imported(document: &Value) -> Imported {
    read(&document.to_string(), &Files::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(document: &Value, files: &Files) -> String {
    read(&document.to_string(), files).expect_err("the analysis cannot be a campaign").to_string()
}

/// The points of an imported campaign, as its file and its list say.
fn plan(imported: &Imported) -> Plan {
    let campaign = parse("campaign.yaml", &imported.campaign, Path::new("/")).expect("a campaign");
    let rows = matches!(campaign.design, Design::List { .. }).then(|| {
        let text = &imported.files.iter().find(|(name, _)| name == "points.csv").expect("a list").1;
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let columns = lines.next().expect("a header");
        let value = |cell: String| {
            cell.parse().map_or(slipway_campaign::value::Value::Text(cell), slipway_campaign::value::Value::Number)
        };
        Rows { columns, rows: lines.map(|line| line.into_iter().map(value).collect()).collect() }
    });
    Plan::new(&campaign, rows).expect("a plan")
}

#[test]
fn an_analysis_becomes_a_campaign_with_its_own_names() {
    let made = imported(&analysis(
        "lhs",
        json!({"number_of_samples": "12", "seed": 1973}),
        vec![variable("depth", uniform())],
    ));
    assert_eq!(made.name, "two-overhangs");
    let campaign = parse("campaign.yaml", &made.campaign, Path::new("/")).expect("a campaign");
    assert_eq!((campaign.seed, campaign.variables[0].name.as_str()), (1973, "add_overhangs.depth"));
    assert_eq!(campaign.outputs[0].name, "openstudio_results.total_site_energy");
    assert_eq!(plan(&made).len(), 12);
    let workflow = osw::Workflow::parse(&made.files[0].1).expect("a workflow");
    assert_eq!(
        (workflow.seed_file.as_deref(), workflow.measure_paths.as_slice()),
        (Some("seeds/office.osm"), &["measures".to_owned()][..])
    );
    assert_eq!(workflow.steps[0].arguments, json!({"facade": "South"}).as_object().expect("a map").clone());
    let objective = "objectives:\n  \"openstudio_results.total_site_energy\": {target: 0}\n";
    assert!(made.campaign.contains(objective), "{}", made.campaign);
}

#[test]
fn every_algorithm_has_its_points_or_a_refusal() {
    let two = || {
        vec![
            variable("depth", uniform()),
            variable("side", discrete(&[(json!(0.5), 1.0), (json!(2), 1.0), (json!(3), 1.0)])),
        ]
    };
    let count = |kind: &str, algorithm: Value| plan(&imported(&analysis(kind, algorithm, two()))).len();
    assert_eq!(count("single_run", json!({})), 1);
    assert_eq!(count("repeat_run", json!({"number_of_runs": 7})), 7);
    assert_eq!(count("preflight", json!({"run_max": 1, "run_min": 1, "run_mode": 0})), 2);
    assert_eq!(count("baseline_perturbation", json!({})), 1 + 2 + 2);
    assert_eq!(count("diag", json!({"number_of_samples": 5})), 5);
    assert_eq!(count("doe", json!({"experiment_type": "full_factorial", "number_of_samples": 4})), 4 * 3);
    assert_eq!(count("lhs", json!({"number_of_samples": 10, "sample_method": "individual_variables"})), 20);
    assert_eq!(count("sobol", json!({"number_of_samples": 8, "order": 1})), 8 * 4);
    assert_eq!(count("morris", json!({"r": 6, "levels": 5})), 6 * 3);
    assert_eq!(count("fast99", json!({"n": 10, "M": 4})), 65 * 2);
    for kind in ["optim", "sequential_search"] {
        let words = refused(&analysis(kind, json!({}), two()), &Files::default());
        assert!(words.contains(kind) && words.contains("$.analysis.problem.analysis_type"), "{words}");
    }
    assert!(refused(&analysis("lhs2", json!({}), two()), &Files::default()).contains("no algorithm of OpenStudio"));
}

#[test]
fn searches_keep_sizes_objectives_and_the_value_of_failed_points() {
    let settings = json!({"number_of_samples": 8, "generations": 3, "npart": 12, "popSize": 6, "failed_f_value": 1e6});
    for (kind, design, sizes, is_same) in [
        ("nsga_nrel", "nsga2", (8, 3), true),
        ("spea_nrel", "spea2", (8, 3), true),
        ("pso", "pso", (12, 3), true),
        ("ga", "nsga2", (6, 3), false),
        ("gaisl", "nsga2", (6, 3), false),
        ("rgenoud", "nsga2", (6, 3), false),
    ] {
        let made = imported(&analysis(kind, settings.clone(), vec![variable("depth", uniform())]));
        let (population, generations) = sizes;
        let expected =
            format!("design: {{{design}: {{population: {population}, generations: {generations}, failed: 1000000}}}}");
        assert!(made.campaign.contains(&expected), "{kind}: {}", made.campaign);
        assert!(made.campaign.contains("\"openstudio_results.total_site_energy\": {target: 0}"), "{}", made.campaign);
        let other = made.changes.iter().any(|note| note.text.contains(kind));
        assert_eq!(other, !is_same, "{kind}: {:?}", made.changes);
        assert!(!made.changes.iter().any(|note| note.path.contains("failed_f_value")), "{:?}", made.changes);
    }
    // Without an objective a search has nothing to search for.
    let mut document = analysis("nsga_nrel", json!({}), vec![variable("depth", uniform())]);
    document["analysis"]["output_variables"][0]["objective_function"] = false.into();
    assert!(refused(&document, &Files::default()).contains("objective"));
}

#[test]
fn objectives_of_one_group_count_together() {
    let mut document = analysis("nsga_nrel", json!({}), vec![variable("depth", uniform())]);
    document["analysis"]["output_variables"] = json!([
        {"name": "m.a", "objective_function": true, "objective_function_target": 1, "scaling_factor": 10, "objective_function_group": 1},
        {"name": "m.b", "objective_function": true, "objective_function_target": 2, "objective_function_group": 1},
        {"name": "m.c", "objective_function": true, "scaling_factor": "0", "objective_function_group": 2},
    ]);
    let made = imported(&document);
    for line in [
        "\"m.a\": {target: 1, scale: 10, group: \"group 1\"}",
        "\"m.b\": {target: 2, group: \"group 1\"}",
        "\"m.c\": {goal: minimize}",
    ] {
        assert!(made.campaign.contains(line), "{line}: {}", made.campaign);
    }
}

#[test]
fn data_points_are_the_points_of_a_batch() {
    let document =
        analysis("batch_datapoints", json!({}), vec![variable("depth", uniform()), variable("side", uniform())]);
    assert!(refused(&document, &Files::default()).contains("there are none"));
    let points = json!({"data_points": [{"set_variable_values": {"id-depth": 0.25, "id-side": 1}}, {"set_variable_values": {"id-depth": 0.75}}]});
    let files = Files { data_points: vec![points.to_string()], ..Files::default() };
    let made = read(&document.to_string(), &files).expect("a campaign");
    let list = &made.files.iter().find(|(name, _)| name == "points.csv").expect("a list").1;
    assert_eq!(list, "add_overhangs.depth,add_overhangs.side\n0.25,1\n0.75,0.5\n");
    assert!(made.changes.iter().any(|note| note.path == "data points 1: $.data_points[1]"), "{:?}", made.changes);
    let wrong = json!({"set_variable_values": {"other": 1}}).to_string();
    assert!(
        refused(&document, &Files { data_points: vec![wrong], ..Files::default() }).contains("no variable `other`")
    );
}

#[test]
fn every_kind_of_uncertainty_has_its_distribution() {
    let of = |kind: &str| json!({"type": kind, "attributes": attributes(&[("lower_bounds", 1.0), ("upper_bounds", 9.0), ("modes", 3.0), ("stddev", 2.0)])});
    for (kind, expected) in [
        ("uniform", "{uniform: [1, 9]}"),
        ("integer_uniform", "{integer: [1, 9]}"),
        ("triangle", "{triangle: [1, 3, 9]}"),
        ("normal", "{normal: {mean: 3, deviation: 2, min: 1, max: 9}}"),
        ("lognormal_uncertain", "{lognormal: {mean: 3, deviation: 2, min: 1, max: 9}}"),
    ] {
        let made = imported(&analysis("lhs", json!({"number_of_samples": 3}), vec![variable("x", of(kind))]));
        assert!(made.campaign.contains(&format!("\"add_overhangs.x\": {expected}")), "{kind}: {}", made.campaign);
    }
    let weighted =
        discrete(&[(json!("a"), 0.25), (json!("b"), 0.5), (json!("a"), 0.25), (json!("c"), 0.2), (json!("d"), 0.0)]);
    let made = imported(&analysis("lhs", json!({"number_of_samples": 3}), vec![variable("x", weighted)]));
    assert!(made.campaign.contains("{choices: {\"a\": 0.5, \"b\": 0.5, \"c\": 0.2}}"), "{}", made.campaign);
    for wrong in [of("weibull"), json!({"type": "normal", "attributes": []}), discrete(&[])] {
        let words = refused(&analysis("lhs", json!({}), vec![variable("x", wrong)]), &Files::default());
        assert!(words.contains("$.analysis.problem.workflow[0].variables[0].uncertainty_description"), "{words}");
    }
}

#[test]
fn a_design_is_repeated_for_each_pivot() {
    let mut pivot = variable("side", discrete(&[(json!("north"), 1.0), (json!("south"), 1.0)]));
    pivot["variable_type"] = json!("pivot");
    let made = imported(&analysis("lhs", json!({"number_of_samples": 5}), vec![variable("depth", uniform()), pivot]));
    assert_eq!(plan(&made).len(), 10);
}

#[test]
fn files_that_are_not_there_or_elsewhere_are_refused_by_name() {
    let mut document = analysis("single_run", json!({}), Vec::new());
    let names: BTreeSet<String> = ["seeds/office.osm", "measures/AddOverhangs/measure.rb"].map(str::to_owned).into();
    let words = refused(&document, &Files { names, ..Files::default() });
    assert!(words.contains("$.analysis.weather_file.path: weather/denver.epw is not among"), "{words}");
    for path in ["/etc/shadow", "../../x.osm", "seeds/../../x"] {
        document["analysis"]["seed"]["path"] = json!(path);
        assert!(refused(&document, &Files::default()).contains("leaves the analysis' folder"), "{path}");
    }
}

#[test]
fn a_workflow_is_a_campaign_of_one_point() {
    let made = read_workflow("project/Retrofit.osw", "{\"seed_file\": \"a.osm\", \"steps\": []}").expect("a campaign");
    assert_eq!(plan(&made).len(), 1);
    assert!(matches!(read_workflow("a.osw", "[]"), Err(ImportError::Workflow(_))));
}

/// Any JSON in the place of parts of an analysis.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,9}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_part_is_refused_or_gives_a_campaign(part in any_json(), at in 0usize..10) {
        let mut document = analysis("lhs", json!({"number_of_samples": 3}), vec![variable("depth", uniform())]);
        let places = [
            "", "/analysis", "/analysis/name", "/analysis/problem", "/analysis/problem/algorithm", "/analysis/problem/workflow/0",
            "/analysis/problem/workflow/0/name", "/analysis/problem/workflow/0/variables/0",
            "/analysis/problem/workflow/0/variables/0/uncertainty_description/attributes", "/analysis/output_variables",
        ];
        *document.pointer_mut(places[at]).expect("a place") = part;
        if let Ok(made) = read(&document.to_string(), &Files::default()) {
            prop_assert!(parse("campaign.yaml", &made.campaign, Path::new("/")).is_ok());
        }
    }

    #[test]
    fn bounds_of_any_size_are_refused_or_give_a_campaign(low in any::<f64>(), high in any::<f64>(), mode in any::<f64>(), kind in "uniform|triangle|normal|lognormal|integer") {
        let description = json!({"type": kind, "attributes": attributes(&[("lower_bounds", low), ("upper_bounds", high), ("modes", mode), ("stddev", 1.0)])});
        let _ = read(&analysis("lhs", json!({"number_of_samples": 2}), vec![variable("x", description)]).to_string(), &Files::default());
    }

    #[test]
    fn any_text_is_no_workflow_or_one(text in "\\PC*") {
        let _ = osw::Workflow::parse(&text);
    }
}

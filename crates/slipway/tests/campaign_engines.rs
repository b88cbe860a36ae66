//! Engines of campaigns for real: packages from the index, fetched by the product itself, and runs in workers' nodes.

mod common;

use std::fs;
use std::process::Command;

use common::{Place, told};
use serde_json::Value;

/// Writes a campaign of a test's own name, as `campaign.yaml`.
fn write(place: &Place, text: &str) {
    let text = format!("campaign: {}\n{text}", place.name("e"));
    fs::write(place.path().join("campaign.yaml"), text).expect("the campaign file can be written");
}

/// Runs the campaign: its exit code, and all that it says.
fn run(place: &Place) -> (Option<i32>, String) {
    let output = place.slipway(["campaign", "run"]).output().expect("slipway can be started");
    (output.status.code(), told(&output))
}

/// Results by point.
fn rows(place: &Place) -> Vec<Value> {
    let mut rows = place.json(["campaign", "results"]).as_array().expect("rows").clone();
    rows.sort_by_key(|row| row["point"].as_u64());
    rows
}

/// The message of the first point that failed.
fn failure(place: &Place) -> String {
    let points = place.json(["campaign", "points", "--state", "failed"]);
    let found = points.as_array().or_else(|| points["points"].as_array()).and_then(|points| points.first());
    found.map_or_else(String::new, |point| point["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_python_function_returns_numbers_and_series_and_its_errors_are_failures() {
    let place = Place::new();
    fs::write(place.path().join("half.py"), "def half(x):\n    return x / 2\n").expect("it can be written");
    let model = "from half import half\n\ndef simulate(x, y=1):\n    if x > 5:\n        raise ValueError(f'{x} is too much')\n    return {'z': half(x) + y, 'all': [x, y, 3]}\n";
    fs::write(place.path().join("model.py"), model).expect("it can be written");
    let file = |function: &str| {
        format!(
            "run: {{python: {{file: model.py, function: {function}}}}}\ninputs: [half.py]\nattempts: 1\nvariables: {{x: [1, 4, 9]}}\ndesign: grid\noutputs: {{z: , all: }}\n"
        )
    };
    write(&place, &file("simulat"));
    let (code, words) = run(&place);
    assert!(code == Some(2) && words.contains("there are: simulate"), "{words}");
    write(&place, &file("simulate"));
    let (code, words) = run(&place);
    assert_eq!(code, Some(5), "{words}");
    let numbers: Vec<_> = rows(&place).iter().map(|row| row["z"].as_f64()).collect();
    assert_eq!(numbers, [Some(1.5), Some(3.0)]);
    assert!(failure(&place).starts_with("ValueError: 9 is too much"), "{}", failure(&place));
}

/// Three days of January instead of a year.
const SHORT: &str = "'SimulationControl/Run Simulation for Weather File Run Periods': 'Yes', 'SimulationControl/Run Simulation for Sizing Periods': 'No', 'RunPeriod/End Month': 1, 'RunPeriod/End Day of Month': 3";

fn office(more: &str, set: &str) -> String {
    format!(
        "run: {{energyplus: {{model: 'example:RefBldgSmallOffice', weather: 'example:USA_IL_Chicago'{more}, set: {{{set}}}}}}}\nattempts: 1\n"
    )
}

#[test]
fn energyplus_runs_edited_models_and_says_in_its_own_words_why_one_fails() {
    let place = Place::new();
    // With so much light, a zone becomes too hot while it runs: no look at the model tells.
    let outputs = "variables: {thickness: [0.05, 0.2], lights: [8, 1e7]}\ndesign: grid\noutputs:\n  heat: {meter: 'Electricity:Facility', unit: kWh}\n  lighting: {table: End Uses/Interior Lighting/Electricity}\n  warm: {variable: Zone Mean Air Temperature, of: Core_ZN, take: greatest}\n";
    let set =
        "'Material/Mass NonRes Wall Insulation/Thickness': '{thickness}', 'Lights/*/Watts per Floor Area': '{lights}'";
    let text = office(", annual: false, reporting: daily", &format!("{SHORT}, {set}")) + outputs;
    write(&place, &text.replace("USA_IL_Chicago", "USA_CO_Golden"));
    let (code, words) = run(&place);
    assert_eq!(code, Some(5), "{words}");
    let weather =
        ["the weather file is of Denver Centennial Golden Nr, ", "km from the model's own place, USA IL-CHICAGO"];
    assert!(weather.iter().all(|part| words.contains(part)), "{words}");
    let rows = rows(&place);
    assert_eq!(rows.len(), 2, "{words}");
    assert_ne!(rows[0]["heat"], rows[1]["heat"], "walls matter");
    assert!(rows.iter().all(|row| row["warm"].as_f64().is_some_and(|warm| (15.0..30.0).contains(&warm))), "{rows:?}");
    assert!(failure(&place).starts_with("Severe: ") && failure(&place).contains("temperature"), "{}", failure(&place));
}

#[test]
fn energyplus_refuses_before_the_first_point_what_it_would_refuse_at_each() {
    let place = Place::new();
    let wall = "'Material/Mass NonRes Wall Insulation/Thickness': '{thickness}'";
    let set = format!("{SHORT}, {wall}");
    let heat = "{meter: 'Electricity:Facility', unit: kWh}";
    let outputs = |values: &str, output: &str| {
        format!("variables: {{thickness: {values}}}\ndesign: grid\noutputs: {{heat: {output}}}\n")
    };
    let good = outputs("[0.05, 0.2]", heat);
    for (more, set, outputs, words) in [
        (
            ", annual: false",
            "'Material/Mass/Thickness': '{thickness}'",
            &good,
            "the model has no `Material` of that name",
        ),
        // Out of the field's range in EnergyPlus' own schema, at one end of the design.
        (
            ", annual: false",
            set.as_str(),
            &outputs("[0.05, 0.2, -1]", heat),
            "[thickness] - \"-1\" - Expected number greater",
        ),
        (", annual: false", set.as_str(), &outputs("{choices: [0.05, thick]}", heat), "[thickness]"),
        // Reports that the model does not have.
        (
            ", annual: false",
            set.as_str(),
            &outputs("[0.05]", "{meter: 'Elektricity:Facility'}"),
            "near it are: Electricity:Facility",
        ),
        ("", wall, &outputs("[0.05]", "{variable: Zone Air Temperatur}"), "reported no variable `Zone Air Temperatur`"),
        // No run period that gives results.
        (", annual: false", wall, &good, "the model runs design days only"),
    ] {
        write(&place, &(office(more, set) + outputs));
        let (code, told) = run(&place);
        assert!(code == Some(2) && told.contains(words), "{words}: {told}");
        // Nothing is left that would refuse the file once it is mended.
        assert!(!place.path().join("slipway-campaigns").join(place.name("e")).exists(), "{told}");
    }
    let path = |name: &str| place.path().join(name);
    let row = format!("2017,6,1,1,0,?9?9{}\n", ",0".repeat(20));
    let begins = "LOCATION,Summer\nDATA PERIODS,1,1,Data,Sunday,6/1,8/31\n";
    fs::write(path("summer.epw"), format!("{begins}{}", row.repeat(24))).expect("it can be written");
    fs::write(path("cut.epw"), format!("{begins}{row}2017,6,1,")).expect("it can be written");
    for (weather, words) in [
        ("summer.epw", "it has 6/1 to 8/31, and the model's `RunPeriod` is 1/1 to 1/3"),
        ("cut.epw", "line 4: a row of weather begins with"),
    ] {
        write(&place, &(office(", annual: false", &set).replace("example:USA_IL_Chicago", weather) + &good));
        let (code, told) = run(&place);
        assert!(code == Some(2) && told.contains(words), "{words}: {told}");
    }
}

#[test]
fn energyplus_runs_a_year() {
    let place = Place::new();
    write(
        &place,
        &(office("", "'Lights/*/Watts per Floor Area': 8")
            + "keep: tables\noutputs: {year: {meter: 'Electricity:Facility', unit: kWh}}\n"),
    );
    let (code, words) = run(&place);
    assert_eq!(code, Some(0), "{words}");
    let year = rows(&place)[0]["year"].as_f64().expect("a number");
    assert!((40_000.0..90_000.0).contains(&year), "{year} kWh of 511 m² of offices");
}

const MEASURE: &str = r#"
import openstudio

class ThickerInsulation(openstudio.measure.ModelMeasure):
    def arguments(self, model=None):
        found = openstudio.measure.OSArgumentVector()
        found.append(openstudio.measure.OSArgument.makeDoubleArgument("thickness", True))
        return found

    def run(self, model, runner, user_arguments):
        thickness = runner.getDoubleArgumentValue("thickness", user_arguments)
        if thickness > 1:
            runner.registerError("nobody builds that")
            return False
        period = model.getRunPeriod()
        period.setEndMonth(1)
        period.setEndDayOfMonth(3)
        changed = [one for one in model.getStandardOpaqueMaterials() if "insulation" in one.nameString()]
        for material in changed:
            material.setThickness(thickness)
        runner.registerValue("materials", len(changed))
        return True
"#;

#[test]
fn the_example_of_a_cabin_heats_and_cools_it() {
    let place = Place::new();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns/cabin");
    fs::copy(example.join("cabin.idf"), place.path().join("cabin.idf")).expect("the model is there");
    let text = fs::read_to_string(example.join("campaign.yaml")).expect("the campaign file is there");
    write(&place, &text.replace("lhs: 1000", "lhs: 2"));
    let (code, words) = run(&place);
    assert_eq!(code, Some(0), "{words}");
    for row in rows(&place) {
        let of = |output: &str| row[output].as_f64().expect("a number");
        assert!((500.0..20_000.0).contains(&of("heating")) && (50.0..5000.0).contains(&of("cooling")), "{row}");
    }
}

#[test]
#[ignore = "OpenFOAM is large; `make test-long` runs it"]
fn openfoam_finds_the_published_velocities_of_a_cavity() {
    let place = Place::new();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns/cavity");
    fs::copy(example.join("cavity.sh"), place.path().join("cavity.sh")).expect("the script is there");
    let text = fs::read_to_string(example.join("campaign.yaml")).expect("the campaign file is there");
    fs::write(place.path().join("campaign.yaml"), text.replace("campaign: cavity", "campaign: e-cavity"))
        .expect("writable");
    let (code, words) = run(&place);
    assert_eq!(code, Some(0), "{words}");
    // Ghia, Ghia and Shin, J. Comput. Phys. 48 (1982), Tables I and II, at y = x = 0.5.
    let published = [(100.0, -0.20581, 0.05454), (400.0, -0.11477, 0.05186)];
    for (reynolds, u, v) in published {
        let is_finest = |row: &&Value| row["reynolds"].as_f64() == Some(reynolds) && row["cells"] == 80;
        let rows = rows(&place);
        let row = rows.iter().find(is_finest).expect("the finest mesh is there");
        let off = |output: &str, published: f64| (row[output].as_f64().expect("a number") - published).abs();
        assert!(off("u", u) < 0.005 && off("v", v) < 0.005, "{row}");
    }
}

#[test]
fn openstudio_runs_a_workflow_of_measures_in_python_and_refuses_ruby_without_its_program() {
    let place = Place::new();
    let packages = [slipway_energyplus::OPENSTUDIO, slipway_energyplus::PACKAGE];
    let environment = slipway_python::Environment::make(&slipway_python::cache(), &packages, &mut |_| {});
    let environment = environment.unwrap_or_else(|error| panic!("{error}"));
    let path = |name: &str| place.path().join(name);
    for folder in ["files", "measures/ThickerInsulation", "measures/OldOne"] {
        fs::create_dir_all(path(folder)).expect("a folder");
    }
    let code = format!(
        "import openstudio; openstudio.model.exampleModel().save(openstudio.path('{}'), True)",
        path("files/seed.osm").display()
    );
    assert!(Command::new(environment.python()).args(["-c", &code]).status().expect("an interpreter").success());
    let weather = environment.packages().expect("packages").join("pyenergyplus/data/weather");
    let weather = fs::read_dir(weather).expect("weather files").next().expect("one").expect("one").path();
    fs::copy(weather, path("files/site.epw")).expect("a copy");
    fs::write(path("measures/ThickerInsulation/measure.py"), MEASURE).expect("it can be written");
    fs::write(path("measures/OldOne/measure.rb"), "").expect("it can be written");
    let workflow = |step: &str| {
        let text = format!(
            "{{\"seed_file\": \"seed.osm\", \"weather_file\": \"site.epw\", \"steps\": [{{\"measure_dir_name\": \"{step}\"}}]}}"
        );
        fs::write(path("in.osw"), text).expect("it can be written");
    };
    write(
        &place,
        "run: {openstudio: {workflow: in.osw, set: {ThickerInsulation/thickness: '{ThickerInsulation.thickness}'}}}\nattempts: 1\nvariables: {ThickerInsulation.thickness: [0.05, 2]}\ndesign: grid\noutputs:\n  ThickerInsulation.materials:\n  site: {table: Site and Source Energy/Total Site Energy/Total Energy, unit: GJ}\n",
    );
    workflow("OldOne");
    if std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .all(|folder| !folder.join("openstudio").exists())
    {
        let (code, words) = run(&place);
        assert!(
            code == Some(2) && words.contains("need the program `openstudio`") && words.contains("OldOne"),
            "{words}"
        );
    }
    workflow("ThickerInsulation");
    let (code, words) = run(&place);
    assert_eq!(code, Some(5), "{words}");
    let rows = rows(&place);
    assert!(
        rows[0]["ThickerInsulation.materials"].as_f64() > Some(0.0) && rows[0]["site"].as_f64() > Some(0.0),
        "{rows:?}"
    );
    assert!(failure(&place).contains("nobody builds that"), "{}", failure(&place));
}

#[test]
fn an_analysis_that_cannot_run_is_refused_and_nothing_is_written() {
    let place = Place::new();
    let analysis =
        r#"{"analysis": {"name": "a", "problem": {"analysis_type": "optim", "algorithm": {}, "workflow": []}}}"#;
    fs::write(place.path().join("a.json"), analysis).expect("it can be written");
    let output = place.slipway(["campaign", "import", "a.json"]).output().expect("slipway can be started");
    let words = told(&output);
    for part in ["$.analysis.seed.path", "$.analysis.weather_file.path", "`optim` has no design here"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(output.status.code() == Some(2) && !place.path().join("campaign.yaml").exists(), "{words}");
}

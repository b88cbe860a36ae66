//! Every file below `wrong/` has its message under a snapshot, every file below `right/` its resolved lab.

use std::path::Path;

use slipway_lab::parse;

fn parse_file(path: &Path) -> Result<slipway_lab::model::Lab, slipway_document::errors::DocumentErrors> {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    parse(name, &text, Path::new("/labs"))
}

#[test]
fn wrong_files_say_what_is_wrong() {
    insta::glob!("wrong/*.yaml", |path| {
        let errors = parse_file(path).expect_err("a file under tests/wrong was accepted");
        insta::assert_snapshot!(errors.plain());
    });
}

#[test]
fn right_files_resolve() {
    insta::glob!("right/*.yaml", |path| {
        let lab = parse_file(path).unwrap_or_else(|errors| panic!("{}", errors.plain()));
        insta::assert_json_snapshot!(lab);
    });
}

/// As the command shows them: with the lines around, for people.
#[test]
fn errors_render_as_diagnostics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong/many_places.yaml");
    let errors = parse_file(&path).unwrap_err();
    let theme = miette::GraphicalTheme::unicode_nocolor();
    let mut rendered = String::new();
    miette::GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut rendered, &errors).unwrap();
    insta::assert_snapshot!(rendered);
    insta::assert_json_snapshot!(&errors.errors()[0]);
}

/// What the template comments out is right too.
#[test]
fn every_key_of_the_template_works() {
    let plain = parse("lab.yaml", slipway_lab::template(), Path::new("/labs"));
    assert_eq!(plain.unwrap_or_else(|errors| panic!("{}", errors.plain())).nodes.len(), 4);

    let is_key = |line: &str| {
        let word = line.trim_start_matches("# ").trim_start().split(':').next().unwrap_or_default();
        line.contains(':') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    };
    let uncomment = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        match line.trim_start().strip_prefix("# ") {
            Some(key) if is_key(line.trim_start()) => format!("{}{key}\n", " ".repeat(indent)),
            _ => format!("{line}\n"),
        }
    };
    let all: String = slipway_lab::template().lines().map(uncomment).collect();
    // One of the two figures, and hosts for the underlay to join.
    let all = all.replace("  figure: {wall_time: true}\n", "").replace("hosts: 1\n", "hosts: 2\n");
    let lab = parse("lab.yaml", &all, Path::new("/labs")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    assert_eq!((lab.nodes.len(), lab.networks.len(), lab.hosts.len()), (7, 4, 2));
    let guide = include_str!("../../../docs/guide/scenarios.md");
    let shown = |key: &String| slipway_lab::template().contains(key) || guide.contains(key);
    let missing: Vec<_> = keys(&slipway_lab::json_schema()).into_iter().filter(|key| !shown(key)).collect();
    assert!(missing.is_empty(), "keys that neither the template nor the guide shows: {missing:?}");
}

/// The keys of all types of the schema but those of maps that have a short form.
fn keys(schema: &serde_json::Value) -> Vec<String> {
    let of = |value: &serde_json::Value| value["properties"].as_object().map(|keys| keys.keys().cloned().collect());
    let types = schema["$defs"].as_object().unwrap().iter().filter(|(name, _)| *name != "MountSettings");
    let mut all: Vec<String> = types.filter_map(|(_, value)| of(value)).flat_map(|keys: Vec<String>| keys).collect();
    all.extend(of(schema).unwrap_or_default());
    all
}

//! Every file below `wrong/` has its message under a snapshot, every file below `right/` its resolved lab.

use std::path::Path;

use slipway_lab::parse;

fn parse_file(path: &Path) -> Result<slipway_lab::model::Lab, slipway_lab::LabErrors> {
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

//! Every file below `wrong/` has its message under a snapshot, every file below `right/` its resolved campaign.

use std::path::Path;

use slipway_campaign::model::Campaign;
use slipway_campaign::{example, parse};
use slipway_document::errors::DocumentErrors;

fn parse_file(path: &Path) -> Result<Campaign, DocumentErrors> {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    parse(name, &text, Path::new("/campaigns"))
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
        let campaign = parse_file(path).unwrap_or_else(|errors| panic!("{}", errors.plain()));
        insta::assert_debug_snapshot!(campaign);
    });
}

/// The lines that the example comments out are right too.
#[test]
fn every_key_of_the_example_works() {
    let plain = parse("example.yaml", example(), Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    assert_eq!((plain.variables.len(), plain.outputs.len()), (2, 1));

    let all: String = example().lines().flat_map(|line| [uncommented(line), "\n".to_owned()]).collect();
    // One of the two forms of `workers`.
    let all = all.replace("workers: 4  ", "# ");
    let all = parse("example.yaml", &all, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    assert_eq!((all.variables.len(), all.outputs.len(), all.inputs.len()), (9, 6, 1));
}

/// A line without its `# `, if a key follows.
fn uncommented(line: &str) -> String {
    let Some(text) = line.strip_prefix('#') else { return line.to_owned() };
    let word = text.trim_start().split(':').next().unwrap_or_default();
    let is_key = text.contains(':') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.');
    let indent = text.len() - text.trim_start().len();
    match (is_key, indent) {
        (true, 1) if !text.contains(", oat") && !word.contains('.') => {
            let top = [
                "seed",
                "env",
                "inputs",
                "baseline",
                "objectives",
                "constraints",
                "attempts",
                "timeout",
                "pause",
                "workers",
                "storage",
                "keep",
            ];
            if top.contains(&word) { text.trim_start().to_owned() } else { format!("  {}", text.trim_start()) }
        }
        (true, 3) if word == "model.txt" => text.to_owned(),
        _ => line.to_owned(),
    }
}

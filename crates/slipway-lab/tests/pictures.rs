//! Pictures of the right files, under snapshots; `svg` in a directory of one's choice with `SVG_DIR=…`.

use slipway_lab::{graph, parse};

#[test]
fn of_right_files() {
    insta::glob!("{right,large}/*.yaml", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let lab = parse(path.file_name().unwrap().to_str().unwrap(), &text, "/labs".as_ref()).unwrap();
        if let Some(folder) = std::env::var_os("SVG_DIR") {
            let file = std::path::PathBuf::from(folder).join(format!("{}.svg", lab.name));
            std::fs::write(file, graph::svg(&lab)).unwrap();
        }
        insta::assert_snapshot!("svg", graph::svg(&lab));
        insta::assert_snapshot!("dot", graph::dot(&lab));
        insta::assert_snapshot!("mermaid", graph::mermaid(&lab));
    });
}

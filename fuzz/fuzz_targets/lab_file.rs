//! Whatever a lab file holds, the answer is a lab that can be drawn or errors that can be shown.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

slipway_fuzz::target!(|text: &str| {
    match slipway_lab::parse("fuzz.yaml", text, Path::new("/labs")) {
        Ok(lab) => {
            let _ = (slipway_lab::graph::svg(&lab), slipway_lab::graph::dot(&lab), slipway_lab::graph::mermaid(&lab));
        }
        Err(errors) => assert!(!errors.plain().is_empty()),
    }
});

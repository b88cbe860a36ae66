//! Whatever a platform file holds, the answer is a lab file that reads, or errors that can be shown. The first byte chooses
//! the reader.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use slipway_platform::{ImportError, from_distem, from_simgrid};

slipway_fuzz::target!(|text: &str| {
    let platform = if text.starts_with('<') {
        from_simgrid("fuzz.xml", text, "delays.csv")
    } else {
        from_distem("fuzz.json", text)
    };
    match platform {
        Ok(platform) => {
            let lab = slipway_lab::parse("fuzz.yaml", &platform.text, Path::new("/labs"));
            assert!(lab.is_ok(), "{}", platform.text);
        }
        Err(ImportError::Wrong(errors)) => assert!(!errors.plain().is_empty()),
        Err(ImportError::Lab(error)) => assert!(!error.to_string().is_empty()),
    }
});

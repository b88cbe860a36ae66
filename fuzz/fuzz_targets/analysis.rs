//! Whatever an analysis of OpenStudio (OSA) holds, the answer is a campaign with its files, or reasons. Data points may follow
//! the analysis, each after a line `---`.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use slipway_openstudio::osw::Workflow;
use slipway_openstudio::{Files, read};

slipway_fuzz::target!(|text: &str| {
    let mut parts = text.split("\n---\n");
    let analysis = parts.next().unwrap_or_default();
    let files = Files { data_points: parts.map(str::to_owned).collect(), ..Files::default() };
    match read(analysis, &files) {
        Ok(made) => {
            let campaign = slipway_campaign::parse("campaign.yaml", &made.campaign, Path::new("/campaign"));
            let campaign = campaign.unwrap_or_else(|errors| panic!("{}", errors.plain()));
            assert_eq!(campaign.name, made.name);
            for (name, text) in &made.files {
                assert!(!name.contains('/'), "{name}");
                if name.ends_with(".osw") {
                    Workflow::parse(text).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

//! Whatever a workflow of OpenStudio (OSW) holds, it is refused, or it reads back as what was read, and is a campaign.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use slipway_openstudio::osw::Workflow;
use slipway_openstudio::read_workflow;

slipway_fuzz::target!(|text: &str| {
    let workflow = match Workflow::parse(text) {
        Ok(workflow) => workflow,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = serde_json::to_string(&workflow).expect("plain data");
    assert_eq!(Workflow::parse(&written).as_ref(), Ok(&workflow));
    for step in &workflow.steps {
        assert!(!step.folder().contains('/') && step.is_called(step.folder()));
    }
    let made = read_workflow("in.osw", text).expect("a workflow is a campaign");
    let campaign = slipway_campaign::parse("campaign.yaml", &made.campaign, Path::new("/campaign"));
    assert!(campaign.is_ok(), "{}", made.campaign);
});

//! Whatever a campaign file holds, the answer is a campaign whose points have values, or errors that can be shown.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;

use slipway_campaign::design::Plan;
use slipway_campaign::value::Value;
use slipway_results::extract::Extractor;

slipway_fuzz::target!(|text: &str| {
    let campaign = match slipway_campaign::parse("fuzz.yaml", text, Path::new("/campaigns")) {
        Ok(campaign) => campaign,
        Err(errors) => return assert!(!errors.plain().is_empty()),
    };
    if let Err(error) = Extractor::new(&campaign.outputs) {
        assert!(!error.to_string().is_empty());
    }
    let plan = match Plan::new(&campaign, None) {
        Ok(plan) if !plan.is_search() => plan,
        Ok(_) => return,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for point in [0, plan.len() / 2, plan.len().saturating_sub(1)].into_iter().filter(|point| *point < plan.len()) {
        let values = plan.point(point);
        assert_eq!(values.len(), campaign.variables.len());
        assert_eq!(values, plan.point(point));
        for value in &values {
            assert!(!matches!(value, Value::Number(number) if !number.is_finite()), "{value}");
        }
        for word in campaign.run.command.iter().chain(campaign.run.env.values()) {
            let _ = word.fill(&values);
        }
    }
});

//! Whatever a model (IDF, OSM) or a weather file (EPW) holds, it is read or refused, and an edited field is the only change.
//! The first line is the path of a field, `=`, and its new value; the model follows.
#![cfg_attr(fuzzing, no_main)]

use slipway_energyplus::idf::{Idf, check_value};
use slipway_energyplus::path::Path;
use slipway_energyplus::{Report, Reporting, add_reports, weather};

slipway_fuzz::target!(|text: &str| {
    for annual in [true, false] {
        if let Err(error) = weather::check(text, annual) {
            assert!(!error.to_string().is_empty());
        }
    }
    let (edit, text) = text.split_once('\n').unwrap_or(("", text));
    let model = match Idf::parse(text.to_owned()) {
        Ok(model) => model,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(model.with(Vec::new()), text);
    let reports = [Report::Meter("Electricity:Facility".to_owned()), Report::Variable("Zone".to_owned()), Report::Tables];
    for all in [true, false] {
        let asked = add_reports(&model, &reports, Reporting::Daily, all).expect("a model with reports is one");
        assert_eq!(asked.of_class("Output:SQLite").count(), 1);
    }
    let (path, value) = edit.split_once('=').unwrap_or((edit, "0"));
    let value = value.trim();
    let Ok(path) = Path::read(path) else { return };
    assert_eq!(Path::read(&path.to_string()).as_ref(), Ok(&path));
    let places = match model.find(&path) {
        Ok(places) => places,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(!places.is_empty());
    if check_value(&path, value).is_err() {
        return;
    }
    let count = places.len();
    let edited = model.with(places.into_iter().map(|place| (place, value.to_owned())).collect());
    let edited = Idf::parse(edited).expect("an edited model is one");
    // Names may be the fields that changed: then the path leads elsewhere.
    if let Ok(places) = edited.find(&path) {
        assert!(places.len() <= count);
    }
});

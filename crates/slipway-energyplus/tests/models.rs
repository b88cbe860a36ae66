//! Models of our own, and any text.

use proptest::prelude::*;
use slipway_energyplus::idf::{Idf, IdfError, check_value};
use slipway_energyplus::path::Path;
use slipway_energyplus::place::Place;
use slipway_energyplus::query::{self, Take};
use slipway_energyplus::weather::{self, WeatherError};
use slipway_energyplus::{Report, Reporting, add_reports};

const MODEL: &str = "\
! A comment, with; all that a comment may have
  Version,25.2;
Material, Steel Insulation, ! not a name
    MediumRough,             !- Roughness
    0.0495,                  !- Thickness {m}
    ,                        !- Conductivity {W/m-K}
    265;                     !- Density {kg/m3}
Lights,
  A lights,    !- Name
  10.76;       !- Watts per Zone Floor Area {W/m2}
Lights,
  B / lights,  !- Name
  7;           !- Watts per Zone Floor Area {W/m2}
Output:Meter,Electricity:Facility,hourly; Output:SQLite,
  Simple;      !- Option Type
";

fn model() -> Idf {
    Idf::parse(MODEL.to_owned()).expect("a model")
}

fn path(text: &str) -> Path {
    Path::read(text).expect("a path")
}

fn set(edits: &[(&str, &str)]) -> Result<String, IdfError> {
    let model = model();
    let mut changes = Vec::new();
    for (text, value) in edits {
        let path = path(text);
        check_value(&path, value)?;
        changes.extend(model.find(&path)?.into_iter().map(|place| (place, (*value).to_owned())));
    }
    Ok(model.with(changes))
}

#[test]
fn fields_change_where_they_stand_and_nothing_else_does() {
    let edited = set(&[
        ("material/steel insulation/thickness", "0.2"),
        ("Material/Steel Insulation/4", "0.03"),
        ("Lights/B / lights/Watts per Zone Floor Area", "5"),
        ("Version/1", "25.2"),
    ]);
    let expected =
        MODEL.replace("    0.0495,", "    0.2,").replace("    ,      ", "    0.03,      ").replace("  7;  ", "  5;  ");
    assert_eq!(edited, Ok(expected));
    let all = set(&[("Lights/*/Watts per Zone Floor Area", "1")]).expect("two fields");
    assert!(!all.contains("10.76") && !all.contains(" 7;"), "{all}");
    assert_eq!(model().version(), Some("25.2"));
}

#[test]
fn paths_that_lead_nowhere_say_what_there_is() {
    for (text, words) in [
        ("Materiel/Steel Insulation/Thickness", "Hint: it has Lights, Material"),
        ("Material/Steel/Thickness", "Hint: it has Steel Insulation"),
        ("Material/Steel Insulation/Thikness", "Thickness"),
        ("Material/Steel Insulation/9", "Hint: it has 5"),
        ("Lights/Watts per Zone Floor Area", "Hint: name one"),
        ("Output:Meter/Electricity:Facility/Reporting Frequency", "write the field's number"),
    ] {
        let error = model().find(&path(text)).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    assert!(set(&[("Version/1", "25.2;\nBuilding")]).is_err());
}

#[test]
fn a_model_that_does_not_end_is_refused_with_its_line() {
    for (text, line) in [("Version,25.2;\nMaterial,\n  a", 2), ("\n\nMaterial", 3), ("a;\n,b;", 2)] {
        let error = Idf::parse(text.to_owned()).expect_err(text).to_string();
        assert!(error.starts_with(&format!("line {line}: ")), "{text}: {error}");
    }
}

#[test]
fn reports_are_asked_for_once_and_at_one_frequency() {
    let reports =
        [Report::Meter("Gas:Facility".into()), Report::Variable("Zone Mean Air Temperature".into()), Report::Tables];
    let asked = add_reports(&model(), &reports, Reporting::Daily, true).expect("a model");
    assert_eq!(asked.of_class("Output:SQLite").count(), 1);
    let meters: Vec<_> = asked.of_class("Output:Meter").map(|meter| asked.field(meter, 2)).collect();
    assert_eq!(meters, [Some("Daily"), Some("Daily")]);
    let own = add_reports(&model(), &reports, Reporting::Daily, false).expect("a model");
    assert!(own.text().contains("Electricity:Facility,hourly;"));
    assert!(add_reports(&model(), &[Report::Meter("a; Building,".into())], Reporting::Daily, false).is_err());
}

/// A weather file of so many hours, with these days in its header.
fn epw(hours: usize, days: &str) -> String {
    let row = format!("2017,1,1,1,0,?9?9{}\n", ",0".repeat(20));
    format!("LOCATION,X\nDATA PERIODS,1,1,Data,Sunday, {days}\n{}", row.repeat(hours))
}

#[test]
fn weather_files_are_told_from_others() {
    let year = epw(8760, "1/ 1,12/31");
    assert!(weather::check(&year, true).is_ok());
    assert_eq!(weather::check(&epw(8758, "1/ 1,12/31"), true), Err(WeatherError::Short(8758)));
    assert_eq!(weather::check("<html>", true), Err(WeatherError::NoLocation));
    for wrong in ["2017,13,1,1", "2017,1,1,0", "a,1,1,1", "2017,1,1", "2017,1,1,1,0,?9,1"] {
        let error = weather::check(&format!("{}{wrong}\n", epw(2, "1/1,1/1")), false).expect_err(wrong);
        assert!(matches!(error, WeatherError::Row { line: 5, .. }), "{wrong}: {error}");
    }
    // Four rows an hour.
    let fine = epw(8760, "1/ 1,12/31").replace("DATA PERIODS,1,1,", "DATA PERIODS,1,4,");
    assert_eq!(weather::check(&fine, true), Err(WeatherError::Short(2190)));
}

#[test]
fn places_of_models_and_weather_are_apart_as_on_earth() {
    let chicago = "LOCATION,Chicago Ohare Intl Ap,IL,USA,TMY3,725300,41.98,-87.92,-6.0,201.0\n";
    let chicago = Place::of_weather(chicago).expect("a place");
    let model = |fields: &str| Idf::parse(format!("Version,25.2;\nSite:Location,{fields};\n")).expect("a model");
    // Great-circle distance of the two airports: 1,429 km.
    let denver = Place::of_model(&model("Denver Intl,39.86,-104.67,-7,1655")).expect("a place");
    assert!((1420.0..1440.0).contains(&chicago.km_to(&denver)), "{}", chicago.km_to(&denver));
    assert!(denver.km_to(&denver) < 1e-6);
    let antipode = Place::of_model(&model("Far,-41.98,92.08,0,0")).expect("a place");
    assert!((20_000.0..20_020.0).contains(&antipode.km_to(&chicago)));
    for nowhere in ["X,91,0,0,0", "X,a,0,0,0", "X,NaN,0,0,0", "X"] {
        assert_eq!(Place::of_model(&model(nowhere)), None, "{nowhere}");
    }
    assert_eq!(Place::of_weather("LOCATION,X"), None);
}

#[test]
fn run_periods_are_days_of_the_weather_file() {
    let run = |begin: &str, end: &str, more: &str| {
        let text = format!("Version,25.2;\nRunPeriod,Cold,{begin},{end},Sunday,No,No,No,Yes,Yes{more};\n");
        Idf::parse(text).expect("a model")
    };
    let covers = |days: &str, model: &Idf| weather::check(&epw(24, days), false).expect("weather").covers(model, true);
    let winter = run("1,3,", "1,20,", "");
    assert_eq!(covers("1/ 1,12/31", &winter), Ok(()));
    assert_eq!(covers("11/ 1, 2/28", &winter), Ok(()), "a period that passes the end of the year");
    let error = covers("6/ 1, 8/31", &winter).expect_err("summer").to_string();
    assert!(error.contains("it has 6/1 to 8/31, and the model's `RunPeriod` is 1/3 to 1/20"), "{error}");
    // Years count where the model says so.
    assert_eq!(covers("1/ 1/2017,12/31/2017", &run("1,3,1999", "1,20,1999", "")), Ok(()));
    let actual = |year: u32| run(&format!("1,3,{year}"), &format!("1,20,{year}"), ",Yes");
    assert!(covers("1/ 1/2017,12/31/2017", &actual(1999)).is_err());
    assert_eq!(covers("1/ 1/2017,12/31/2017", &actual(2017)), Ok(()));
    let days = Idf::parse("SimulationControl,Yes,Yes,No,Yes,No;".to_owned()).expect("a model");
    assert_eq!(covers("1/ 1,12/31", &days), Err(WeatherError::DesignDays));
    assert_eq!(weather::check(&epw(24, "1/1,1/1"), false).expect("weather").covers(&days, false), Ok(()));
    assert_eq!(covers("1/ 1,12/31", &Idf::parse(String::new()).expect("a model")), Err(WeatherError::NoRunPeriod));
}

proptest! {
    #[test]
    fn any_text_is_a_model_or_has_an_error(text in "\\PC*|([a-z ,;!\\-\n{}é]{0,200})") {
        if let Ok(model) = Idf::parse(text.clone()) {
            prop_assert_eq!(model.with(Vec::new()), text);
        }
    }

    #[test]
    fn an_edited_field_is_the_only_change(values in prop::collection::vec("[a-zA-Z0-9. ]{0,12}", 1..8), at in 0usize..8, new in "[a-z0-9.]{1,9}") {
        let text = format!("Class,\n{};\n", values.join(",\n"));
        let model = Idf::parse(text).expect("a model");
        let at = at % values.len();
        let path = path(&format!("class/{}", at + 1));
        let places = model.find(&path).expect("a field");
        let edited = Idf::parse(model.with(places.into_iter().map(|place| (place, new.clone())).collect())).expect("a model");
        let object = edited.of_class("Class").next().expect("the object");
        for (number, value) in values.iter().enumerate() {
            let expected = if number == at { new.as_str() } else { value.trim() };
            prop_assert_eq!(edited.field(object, number + 1), Some(expected));
        }
    }

    #[test]
    fn any_words_are_one_query(name in "\\PC{0,40}", object in "\\PC{0,40}") {
        let query = query::variable(&name, Some(&object), Reporting::Hourly, Take::Sum);
        // Quotes pair up, so no word ends its text.
        prop_assert_eq!(query.matches('\'').count() % 2, 0);
    }
}

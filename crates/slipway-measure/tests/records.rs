//! Records are read back as written, whatever happened to the file, and the summary follows from them alone.

use proptest::prelude::*;
use slipway_measure::probe::{Point, Sample};
use slipway_measure::record::{Begin, Comparison, End, FORMAT, Job, Measurement, RecordError, Writer};
use slipway_measure::summary::{Summary, Verdict};

const EXAMPLE: &str = include_str!("fixtures/records.jsonl");

fn written(comparison: &Comparison) -> String {
    let mut text = Vec::new();
    let mut writer = Writer::begin(&mut text, &comparison.begin).unwrap();
    for measurement in &comparison.measurements {
        writer.measurement(measurement).unwrap();
    }
    if let Some(end) = &comparison.end {
        writer.end(end).unwrap();
    }
    String::from_utf8(text).unwrap()
}

fn begin(drivers: &[&str]) -> Begin {
    Begin {
        format: FORMAT.into(),
        version: "0.1.0".into(),
        lab: "demo".into(),
        lab_sha256: "00".repeat(32),
        drivers: drivers.iter().map(|&driver| driver.into()).collect(),
        jobs: vec![Job { name: "iperf3".into(), commands: vec!["iperf3 -c 10.64.0.2".into()] }],
        repeat: 5,
        warm_up: 1,
        seed: 1,
        command: vec!["slipway".into(), "compare".into()],
        machine: serde_json::json!({"kernel": "6.18"}),
        started: "2026-11-21T12:00:00Z".into(),
        checks: Vec::new(),
        scenario: None,
        bench: None,
    }
}

fn measurement(round: u32, driver: &str, value: f64) -> Measurement {
    let sample = Sample {
        figure: "throughput".into(),
        unit: "Gb/s".into(),
        higher_is_better: true,
        headline: true,
        value,
        curve: vec![Point { bytes: 1, micros: value }],
    };
    Measurement {
        round,
        warm_up: round == 1,
        driver: driver.into(),
        job: "iperf3".into(),
        mechanism: "veth".into(),
        started: "2026-11-21T12:00:01Z".into(),
        seconds: 2.0,
        samples: vec![sample],
        error: None,
        played: Vec::new(),
        counters: None,
    }
}

/// `values`: one list of counted values for each driver; a warm-up far from all of them goes before.
fn comparison(values: &[(&str, &[f64])]) -> Comparison {
    let drivers: Vec<&str> = values.iter().map(|(driver, _)| *driver).collect();
    let mut measurements = Vec::new();
    for (driver, values) in values {
        measurements.push(measurement(1, driver, 1e6));
        for (round, value) in (2..).zip(*values) {
            measurements.push(measurement(round, driver, *value));
        }
    }
    Comparison { begin: begin(&drivers), measurements, end: Some(End { finished: "2026-11-21T12:01:00Z".into() }) }
}

fn verdicts(comparison: &Comparison) -> Vec<(String, Verdict, String)> {
    let summary = Summary::new(comparison);
    let figure = &summary.figures[0];
    figure.rows.iter().map(|row| (row.driver.clone(), row.verdict, figure.verdict(row, &summary.baseline))).collect()
}

#[test]
fn a_file_on_disk_is_read_and_written_the_same() {
    let comparison = Comparison::read(EXAMPLE).unwrap();
    assert_eq!(comparison.measurements.len(), 5 * 8 * 4);
    assert_eq!(Comparison::read(&written(&comparison)).unwrap(), comparison);
}

#[test]
fn what_a_later_version_adds_is_passed_over() {
    let comparison = comparison(&[("host", &[1.0, 2.0])]);
    let later = written(&comparison)
        .replace(r#"{"type":"begin","#, r#"{"type":"begin","energy":{"joules":3},"#)
        .replace(r#"{"type":"end","#, "{\"type\":\"temperature\",\"kelvin\":300}\n{\"type\":\"end\",");
    assert_eq!(Comparison::read(&later).unwrap(), comparison);
}

#[test]
fn a_kill_costs_at_most_the_line_being_written() {
    let whole = comparison(&[("host", &[1.0, 2.0])]);
    let text = written(&whole);
    let cut = Comparison::read(&text[..text.len() - 5]).unwrap();
    assert_eq!(cut.measurements, whole.measurements);
    assert_eq!(cut.end, None);
}

#[test]
fn wrong_files_are_refused_with_the_reason() {
    assert!(matches!(Comparison::read(""), Err(RecordError::NoBegin)));
    assert!(matches!(Comparison::read("{\"type\":\"end\",\"finished\":\"\"}\n"), Err(RecordError::NoBegin)));
    let newer = written(&comparison(&[])).replace(FORMAT, "slipway-compare/2");
    assert!(Comparison::read(&newer).unwrap_err().to_string().contains("slipway-compare/2"));
    let damaged = format!("{}{{\"type\":\"measurement\"}}\n", written(&comparison(&[])));
    assert!(matches!(Comparison::read(&damaged), Err(RecordError::Line { line: 3, .. })));
}

#[test]
fn a_value_that_json_cannot_say_is_not_written() {
    let mut writer = Writer::begin(Vec::new(), &begin(&[])).unwrap();
    assert!(writer.measurement(&measurement(1, "host", f64::NAN)).is_err());
}

#[test]
fn verdicts_follow_from_the_counted_rounds() {
    let found = verdicts(&comparison(&[
        ("bridge", &[9.9, 10.4, 9.8, 10.1, 10.2]),
        ("host", &[10.0, 10.2, 10.1, 9.9, 10.3]),
        ("vxlan", &[5.0, 5.1, 4.9, 5.0, 5.2]),
        ("sriov", &[10.3, 10.5, 10.4, 10.2, 10.6]),
        ("late", &[5.0, 5.0]),
    ]));
    let words: Vec<&str> = found.iter().map(|(_, _, words)| words.as_str()).collect();
    assert_eq!(
        words,
        [
            "= host within noise",
            "baseline",
            "2×\u{20}slower",
            "3.0\u{a0}% faster",
            "2.02×\u{20}slower? too few rounds (n < 5)"
        ]
    );
}

#[test]
fn without_host_the_first_driver_is_the_baseline() {
    let found = verdicts(&comparison(&[("vxlan", &[1.0; 5]), ("bridge", &[2.0; 5])]));
    assert_eq!(found[0].1, Verdict::Baseline);
    assert_eq!((found[1].1, found[1].2.as_str()), (Verdict::Better, "2×\u{20}faster"));
}

#[test]
fn a_baseline_of_zero_gives_no_ratio() {
    let found = verdicts(&comparison(&[("host", &[0.0; 5]), ("bridge", &[2.0; 5])]));
    assert_eq!((found[1].1, found[1].2.as_str()), (Verdict::NoRatio, "no ratio"));
}

#[test]
fn nothing_measured_is_an_empty_summary() {
    let empty = Comparison { measurements: Vec::new(), ..comparison(&[("host", &[1.0])]) };
    assert!(Summary::new(&empty).figures.is_empty());
    assert!(slipway_measure::report::html(&empty).contains("What did the network cost?"));
}

#[test]
fn markdown_has_a_row_for_each_driver_and_no_way_out_of_a_cell() {
    let text = Summary::new(&comparison(&[("host", &[1.0; 5]), ("a|b<i>\n", &[2.0; 5])])).markdown();
    assert!(text.contains("### throughput (Gb/s)"));
    assert!(text.contains("| host | 5 | 1 | 1 – 1 | – | – | baseline |"), "{text}");
    assert!(text.contains("| a\\|b&lt;i>  | 5 | 2 |"), "{text}");
}

#[test]
fn a_summary_survives_json() {
    let summary = Summary::new(&Comparison::read(EXAMPLE).unwrap());
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
}

proptest! {
    #[test]
    fn any_values_are_read_back_exactly(values in proptest::collection::vec(-1e300..1e300_f64, 0..6), name in ".*") {
        let comparison = comparison(&[("host", &values), (&name, &values)]);
        prop_assert_eq!(Comparison::read(&written(&comparison)).unwrap(), comparison);
    }

    #[test]
    fn any_text_is_records_or_an_error(text in ".*", cut in 0..EXAMPLE.len()) {
        let _ = Comparison::read(&text);
        let _ = Comparison::read(&format!("{}{text}\n", EXAMPLE.get(..cut).unwrap_or_default()));
    }
}

proptest! {
    // Each case draws thousands of resamples.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_records_make_a_report(values in proptest::collection::vec(any::<f64>().prop_filter("JSON", |v| v.is_finite()), 0..6)) {
        let reversed: Vec<f64> = values.iter().rev().copied().collect();
        let page = slipway_measure::report::html(&comparison(&[("host", &values), ("vxlan", &reversed)]));
        prop_assert!(!page.contains("NaN") && !page.contains("\"inf"));
    }
}

//! The report in a real browser, in a network namespace without any interface: what it shows, it shows offline.
//!
//! `fixtures/records.jsonl` holds invented numbers of realistic size; the other fixtures are what programs really wrote.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use slipway_measure::record::Comparison;
use slipway_measure::report;
use slipway_measure::summary::Summary;

const EXAMPLE: &str = include_str!("fixtures/records.jsonl");

/// Opens `page` in headless Chromium, which does `action` with it.
fn browse(folder: &Path, page: &str, action: &[&str]) -> Output {
    let file = folder.join("report.html");
    fs::write(&file, page).unwrap();
    let output = Command::new("unshare")
        .args(["--net", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--log-level=0", "--window-size=1280,2400"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(action)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("`unshare` starts (Debian package util-linux)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "chromium failed; this test needs root and the Debian package `chromium` (apt-get install chromium): {said}"
    );
    output
}

/// Lines that the page wrote to the browser's console: script errors, blocked or failed loads. Pages of Chromium's own write
/// there too, such as that the machine is slow.
fn console(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let of_page = |line: &&str| line.contains("CONSOLE") && !line.contains("source: chrome://");
    said.lines().filter(of_page).map(str::to_owned).collect()
}

fn dom(page: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let output = browse(folder.path(), page, &["--dump-dom"]);
    (String::from_utf8(output.stdout.clone()).unwrap(), console(&output))
}

#[test]
fn a_campaigns_page_loads_nothing_and_has_a_table_for_each_picture() {
    let points: Vec<(f64, f64)> = (0..200).map(|i| (f64::from(i), f64::from(i % 17))).collect();
    let output = report::Output {
        name: "heat".to_owned(),
        unit: "kWh".to_owned(),
        values: points.iter().map(|(_, value)| *value).collect(),
        scatter: vec![report::Scatter { variable: "area".to_owned(), words: Vec::new(), points: points.clone() }],
        sensitivity: Ok(report::Bars {
            used: 200,
            measures: vec!["S1".to_owned(), "ST".to_owned()],
            rows: vec![("area".to_owned(), vec![Some((0.4, Some((0.3, 0.5)))), Some((0.6, None))])],
        }),
    };
    let page = report::campaign(&report::Campaign {
        name: "offices".to_owned(),
        progress: points,
        breaks: vec![70.0],
        time: report::Time { used: 50.0, lost: 2.0, idle: 8.0, fixed: 100.0 },
        failures: vec![("timeout".to_owned(), 3)],
        outputs: vec![output],
        ..report::Campaign::default()
    });
    let (dom, console) = dom(&page);
    assert_eq!(console, Vec::<String>::new());
    let labels: HashSet<&str> = dom.split("aria-label=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(labels.len(), 6, "each picture has a title of its own: {labels:?}");
    for table in
        ["Results over time", "Time of workers", "Values of heat", "0.400 [0.300, 0.500]", "lowest, middle and highest"]
    {
        assert!(dom.contains(table), "{table} is missing");
    }
}

#[test]
fn the_page_holds_every_driver_and_figure_and_loads_nothing() {
    let comparison = Comparison::read(EXAMPLE).unwrap();
    let summary = Summary::new(&comparison);
    let (dom, console) = dom(&report::html(&comparison));
    assert_eq!(console, Vec::<String>::new());
    for driver in &summary.drivers {
        assert!(dom.contains(&format!("<b>{driver}</b>")), "driver {driver} is missing");
    }
    for figure in summary.figures.iter().filter(|figure| figure.headline) {
        assert!(
            dom.contains(&format!("aria-label=\"{}: every run under each driver\"", figure.name)),
            "{}",
            figure.name
        );
        assert!(dom.contains(&format!("aria-label=\"{}: values in the order of the runs\"", figure.name)));
    }
    assert!(dom.contains("One-way time over message sizes") && dom.contains("Throughput over message sizes"));
    assert!(dom.contains("slipway compare examples/demo.yaml"));
}

#[test]
fn the_page_has_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("page.png");
    let page = report::html(&Comparison::read(EXAMPLE).unwrap());
    browse(folder.path(), &page, &[&format!("--screenshot={}", picture.display())]);

    let file = std::io::BufReader::new(fs::File::open(&picture).unwrap());
    let mut decoder = png::Decoder::new(file);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((frame.width, frame.height), (1280, 2400));
    let size = frame.color_type.samples();
    let colours: HashSet<&[u8]> = pixels.chunks_exact(size).map(|pixel| &pixel[..3]).collect();
    // Text alone has the shades between ink and ground; plots add the drivers' colours and theirs.
    assert!(colours.len() > 300, "{} colours: the page is all but blank", colours.len());
    let blue = [0x00, 0x72, 0xb2];
    let near = |pixel: &&[u8]| pixel.iter().zip(blue).all(|(&a, b)| a.abs_diff(b) < 48);
    assert!(colours.iter().any(near), "no mark in the colour of `bridge`");
}

#[test]
fn text_from_records_stays_text() {
    let mut hostile = Comparison::read(EXAMPLE).unwrap();
    let attack = "\"'></title></svg><script>console.error('in')</script><img src=http://10.0.0.1/x>";
    hostile.begin.lab = attack.into();
    hostile.begin.command = vec![attack.into()];
    hostile.begin.machine = serde_json::json!({ attack: attack });
    for measurement in &mut hostile.measurements {
        measurement.mechanism = attack.into();
        if measurement.driver == "vxlan" {
            measurement.driver = attack.into();
        }
        if let Some(error) = &mut measurement.error {
            *error = attack.into();
        }
        for sample in &mut measurement.samples {
            sample.figure += attack;
            sample.unit += attack;
        }
    }
    let (dom, console) = dom(&report::html(&hostile));
    assert_eq!(console, Vec::<String>::new());
    assert!(!dom.contains("<script") && !dom.contains("<img"));
}

#[test]
fn a_page_that_loads_or_runs_something_would_be_noticed() {
    let page = report::html(&Comparison::read(EXAMPLE).unwrap());
    for intruder in ["<script>1</script>", "<img src=http://10.0.0.1/x>"] {
        let (_, console) = dom(&page.replace("<h1>", &format!("{intruder}<h1>")));
        assert!(!console.is_empty(), "{intruder} went unnoticed");
    }
}

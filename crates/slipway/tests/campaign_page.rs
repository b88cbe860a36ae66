//! The page of campaigns in headless Chromium, driven by `WebDriver`. `SLIPWAY_PICTURES=FOLDER` keeps its pictures.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::Place;
use common::http::Served;
use serde_json::json;

const FILE: &str = r#"
campaign: page
run:
  - sh
  - -c
  - |
    sleep 0.4
    awk -v x={x} -v y={y} -v kind={kind} 'BEGIN {
      if (x > 9.6) { print "** Severe ** <img src=x onerror=alert(1)>" > "/dev/stderr"; exit 2 }
      print "cost", x * x + y + (kind == "b" ? 20 : 0)
      print "t,y" > "out.csv"
      for (t = 0; t < 48; t++) print t "," x * sin(t / 4) + y > "out.csv"
    }'
variables: {x: {uniform: [0, 10]}, y: {uniform: [0, 5]}, kind: [a, b, c]}
design: {lhs: 48}
attempts: 1
workers: 2
outputs: {cost: {regex: 'cost ([0-9.]+)', unit: EUR}, wave: {file: out.csv, series: y, unit: m}}
"#;

#[test]
fn the_page_shows_and_steers_a_campaign() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    let made = served.call("POST", "/api/v1/campaigns", Some(&json!({ "file": FILE })));
    assert_eq!(made.status, 201, "{}", made.text());
    let pictures = std::env::var_os("SLIPWAY_PICTURES").map_or_else(|| place.path().join("pictures"), PathBuf::from);
    std::fs::create_dir_all(&pictures).expect("a folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/campaign_page/check.py");
    let output = Command::new("python3").arg(script).arg(&served.url).arg(&pictures).output().expect("python3 runs");
    assert!(output.status.success(), "{}", common::told(&output));
}

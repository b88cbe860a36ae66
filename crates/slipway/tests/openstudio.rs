//! The flow of OpenStudio's client, driven by scripts that send what that client sends.
//!
//! One goes to `slipway-api`, where a small converter of the test's own makes campaigns that run anywhere. The other goes to
//! `slipway campaign serve`, with the converter that users have.

mod common;

use std::process::Command;
use std::sync::Arc;

use common::Place;
use common::http::Served;
use slipway_api::{Convert, Converted, Files, Options, Server};

#[derive(Debug)]
struct Small;

impl Convert for Small {
    fn convert(&self, analysis: &str, files: &Files) -> Result<Converted, String> {
        let document: serde_json::Value = serde_json::from_str(analysis).map_err(|error| error.to_string())?;
        let (name, points) =
            (&document["analysis"]["name"], &document["analysis"]["problem"]["algorithm"]["number_of_samples"]);
        if name == "refused" {
            return Err(format!("make a campaign: it refuses `refused`, with {} points", files.data_points.len()));
        }
        let (process, name) = (std::process::id(), name.as_str().unwrap_or_default());
        let campaign = format!(
            "campaign: os-{process}-{name}\ninputs: [weather]\n\
             run: [sh, -c, 'cat weather/site.epw; test {{x}} -ne 2 || {{ echo broken >&2; exit 3; }}; echo value {{x}}']\n\
             variables: {{x: {{integer: [1, {points}]}}}}\ndesign: grid\nattempts: 1\n\
             outputs: {{value: {{regex: 'value ([0-9]+)', unit: kWh}}}}\n"
        );
        Ok(Converted { campaign, files: vec![("workflow.osw".to_owned(), "{}".to_owned())] })
    }
}

#[test]
fn its_clients_flow_works() {
    let place = Place::new();
    let program = place.path().join("slipway");
    // The server's children find the state of this place.
    let folders = [("STATE", "state"), ("IMAGES", "images"), ("SCRATCH", "scratch")];
    let exports =
        folders.map(|(name, folder)| format!("export SLIPWAY_{name}={}", place.path().join(folder).display()));
    let script = format!("#!/bin/sh\n{}\nexec {} \"$@\"\n", exports.join("\n"), env!("CARGO_BIN_EXE_slipway"));
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it can be run");
    let server = Server::open(Options {
        folder: place.path().join("campaigns"),
        listen: "127.0.0.1:0".parse().expect("an address"),
        tls: None,
        tokens: None,
        names: Vec::new(),
        program,
        converter: Some(Arc::new(Small)),
    });
    let server = server.expect("it can listen");
    let url = server.url();
    let (base, token) = url.split_once("/?token=").expect("a token");
    let (base, token) = (base.to_owned(), token.to_owned());
    std::thread::spawn(|| server.run());
    run("client.py", &base, &token);
    assert!(!place.path().join("up").exists());
}

#[test]
fn the_command_makes_campaigns_of_analyses() {
    let place = Place::new();
    let served = Served::new(&place, &[]);
    run("analyses.py", &format!("http://{}", served.address), &served.token);
}

/// Runs a script of the client, which ends by itself.
#[track_caller]
fn run(script: &str, base: &str, token: &str) {
    let script = format!("{}/tests/openstudio/{script}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3").args(["-B", &script, base, token]).output().expect("python3 runs");
    assert!(output.status.success(), "{}", common::told(&output));
}

//! What the command says where no lab runs: help, errors, answers, under snapshots (`TRYCMD=overwrite` renews them).

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, told};

#[test]
fn it_says_what_it_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let cases = trycmd::TestCases::new();
    cases.env("SLIPWAY_STATE", at("state")).env("SLIPWAY_IMAGES", at("images")).env("SLIPWAY_SCRATCH", at("scratch"));
    cases.env("NO_COLOR", "1").case("tests/cmd/*.trycmd").run();
}

#[test]
fn completions_are_scripts_that_their_shells_read() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(["completion", shell]);
        assert!(script.contains("freeze"), "{shell}: {script}");
    }
    let check = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn();
    let mut check = check.expect("bash is installed");
    let script = place.run(["completion", "bash"]);
    std::io::Write::write_all(&mut check.stdin.take().expect("piped"), script.as_bytes()).expect("written");
    assert!(check.wait().expect("ended").success());
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let place = Place::new();
    place.run(["man", "pages"]);
    for command in ["", "-up", "-down", "-exec", "-copy", "-doctor"] {
        let page = std::fs::read_to_string(place.path().join(format!("pages/slipway{command}.1"))).expect("written");
        assert!(page.contains("Examples"), "{page}");
    }
    assert!(!place.path().join("pages/slipway-man.1").exists(), "what is hidden is no page");
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let place = Place::new();
    let schema: serde_json::Value = serde_json::from_str(&place.run(["schema"])).expect("JSON");
    assert_eq!(schema, slipway_lab::json_schema());
}

#[test]
fn the_doctor_looks_at_everything() {
    let place = Place::new();
    let answer = place.json(["doctor"]);
    let checks = answer["checks"].as_array().expect("a list");
    for driver in ["host", "bridge", "ovs", "macvlan", "vxlan", "sriov", "fast"] {
        let subject = format!("driver {driver}");
        assert!(checks.iter().any(|check| check["subject"] == *subject), "{driver} in {answer}");
    }
    let text = place.run(["doctor", "bridge"]);
    assert!(text.contains("✔ driver bridge"), "{text}");
    let sriov = checks.iter().find(|check| check["subject"] == "driver sriov").expect("seen above");
    let code = if sriov["verdict"] == "good" { 0 } else { 3 };
    let output = place.slipway(["doctor", "sriov"]).output().expect("started");
    assert_eq!(output.status.code(), Some(code), "{}", told(&output));
}

#[test]
fn an_answer_that_nobody_reads_is_no_failure() {
    let place = Place::new();
    let mut schema = place.slipway(["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    drop(schema.stdout.take());
    let output = schema.wait_with_output().expect("ended");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", told(&output));
}

/// A recorded machine.
fn machine(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../slipway-host/tests/machines/{name}.txt"))
        .display()
        .to_string()
}

#[test]
fn a_recording_of_this_machine_gives_the_same_advice() {
    let place = Place::new();
    let (folder, text) =
        (place.path().join("here").display().to_string(), place.path().join("here.txt").display().to_string());
    place.run(["tune", "record", &folder]);
    // Of the same moment: the machine's counters go on.
    place.run(["tune", "record", "--root", &folder, &text]);
    let check =
        |root: &str| place.run(["tune", "check", "--json", "--rtt", "80ms", "--rate", "10gbit", "--root", root]);
    assert_eq!(check(&folder), check(&text));
    let advice = place.json(["tune", "check", "--all"]);
    assert!(advice["advices"].as_array().expect("a list").len() > 50);
}

#[test]
fn strict_is_an_exit_code() {
    let place = Place::new();
    let root = machine("laptop");
    place.run(["tune", "check", "--root", &root]);
    let output = place.slipway(["tune", "check", "--strict", "--root", &root]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn wrong_words_get_the_next_step() {
    let place = Place::new();
    let fails = |args: &[&str]| told(&place.slipway(args).output().expect("it runs"));
    let answer = fails(&["tune", "rules", "ring-xr"]);
    assert!(answer.contains("did you mean `ring-"), "{answer}");
    let answer = fails(&["tune", "check", "--root", "/etc/hostname"]);
    assert!(answer.contains("no recording of a machine") && answer.contains("Hint: "), "{answer}");
    let answer = fails(&["tune", "check", "--rtt", "80"]);
    assert!(answer.contains("has no unit"), "{answer}");
}

#[test]
fn a_wrong_rule_is_told_with_its_line() {
    let place = Place::new();
    let folder = place.path().join("rules");
    std::fs::create_dir(&folder).expect("made");
    let rule = place.run(["tune", "rules", "swapping", "--yaml"]);
    std::fs::write(folder.join("mine.yaml"), rule.replace("is <= 10", "si <= 10")).expect("written");
    let folder = folder.display().to_string();
    let output = place.slipway(["tune", "check", "--rules", &folder, "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(error["error"]["message"], "there is no fact `si` here", "{error}");
    assert!(error["error"]["line"].is_u64(), "{error}");
}

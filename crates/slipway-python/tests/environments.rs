//! Environments from the package index, as this machine's pip reaches it.

use std::fs;
use std::process::Command;

use slipway_python::{Environment, EnvironmentError, Step};
use tempfile::TempDir;

/// A small package without dependencies and with a program.
const PACKAGE: &str = "charset-normalizer==3.4.4";

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

fn make(cache: &TempDir, requirements: &[&str], steps: &mut Vec<String>) -> Result<Environment, EnvironmentError> {
    Environment::make(cache.path(), requirements, &mut |step: Step<'_>| steps.push(format!("{step:?}")))
}

#[test]
fn an_environment_is_made_once_and_its_programs_run() {
    let cache = folder();
    assert_eq!(Environment::find(cache.path(), &[PACKAGE]).expect("an interpreter"), None);
    let mut steps = Vec::new();
    // Two at once: one makes it, the other waits for it or finds it.
    let (made, other) = std::thread::scope(|threads| {
        let other = threads.spawn(|| make(&cache, &[PACKAGE], &mut Vec::new()).expect("an environment"));
        (make(&cache, &[PACKAGE], &mut steps).expect("an environment"), other.join().expect("no panic"))
    });
    assert_eq!(made, other);
    assert_eq!(Environment::find(cache.path(), &[PACKAGE]).expect("an interpreter"), Some(made.clone()));

    let code = "import charset_normalizer as c; print(c.__version__, c.__file__)";
    let output = Command::new(made.python()).args(["-c", code]).output().expect("an interpreter");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let packages = made.packages().expect("packages");
    assert!(shown.starts_with("3.4.4 ") && shown.contains(&packages.display().to_string()), "{shown}");
    // A script begins with the interpreter's path, which changed when the folder was renamed.
    let script = Command::new(made.folder().join("bin/normalizer")).arg("--version").output().expect("a script");
    assert!(script.status.success(), "{script:?}");
    let report = fs::read_to_string(made.folder().join("slipway-packages.json")).expect("pip's report");
    assert!(report.contains("\"sha256\""), "{report}");

    // Neither pip nor an index is asked again: there is none under this name.
    let mut again = Vec::new();
    make(&cache, &[PACKAGE], &mut again).expect("the same environment");
    assert_eq!(again, Vec::<String>::new());
}

#[test]
fn a_package_that_there_is_not_leaves_nothing() {
    let cache = folder();
    let error =
        make(&cache, &["charset-normalizer==0.0.0.1"], &mut Vec::new()).expect_err("no such version").to_string();
    assert!(error.contains("charset-normalizer==0.0.0.1") && error.contains("Hint: "), "{error}");
    let left: Vec<_> =
        fs::read_dir(cache.path()).expect("the cache").filter_map(|entry| Some(entry.ok()?.path())).collect();
    assert!(left.iter().all(|path| path.extension().is_some_and(|ending| ending == "lock")), "{left:?}");
}

#[test]
fn a_requirement_without_version_is_refused_before_anything_is_made() {
    let cache = folder();
    let error = make(&cache, &["six", "-e ."], &mut Vec::new()).expect_err("no version");
    assert!(matches!(&error, EnvironmentError::Requirement(text) if text == "six"), "{error:?}");
    assert_eq!(fs::read_dir(cache.path()).expect("the cache").count(), 0);
}

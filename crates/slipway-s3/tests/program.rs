//! The program alone. With this test, `cargo test --workspace` builds the program for the tests of `slipway` too.

use std::process::{Command, Stdio};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_slipway-s3"))
}

#[test]
fn it_tells_its_version() {
    let output = program().arg("--version").output().expect("it runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("slipway-s3 {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn it_ends_when_nobody_asks() {
    let output = program().stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

//! Programs of verbs, in nodes `a` and `b`.

use std::process::{Command, Stdio};

use super::{Lab, await_that, told};

/// A program in a node, which ends within a minute.
pub fn program(lab: &Lab<'_>, node: &str, words: &[&str]) -> Command {
    let mut command = lab.program(node, ["timeout", "60"].iter().chain(words).copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that connects by `rdma_cm`. A client is refused until its server listens.
#[track_caller]
pub fn by_rdma_cm(lab: &Lab<'_>, server: &[&str], client: &[&str]) -> String {
    let child = program(lab, "a", server).spawn().expect("started");
    let mut printed = String::new();
    await_that("the client is served", || {
        let asked = program(lab, "b", client).output().expect("started");
        printed = String::from_utf8_lossy(&asked.stdout).into_owned();
        asked.status.success()
    });
    let heard = child.wait_with_output().expect("ended");
    assert!(heard.status.success(), "{server:?}: {}", told(&heard));
    String::from_utf8_lossy(&heard.stdout).into_owned() + &printed
}

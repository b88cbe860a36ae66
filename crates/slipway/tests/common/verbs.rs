//! The plug-in of libibverbs, where the command under test finds it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;

/// Builds the plug-in once, and puts it beside the command.
#[allow(dead_code, unreachable_pub, reason = "benchmarks include this file, and build their own")]
pub fn plug_in() {
    static ONCE: Once = Once::new();
    // In a virtual machine nothing can be built, and it is there already.
    ONCE.call_once(|| {
        if std::env::var_os("SLIPWAY_PLUG_IN_IS_BUILT").is_none() {
            build(&[]);
        }
    });
}

/// Builds the plug-in with options of `scripts/verbs.sh`, and puts it beside the command.
#[allow(unreachable_pub, reason = "benchmarks include this file as a private module")]
pub fn build(options: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("scripts/verbs.sh");
    let built = Command::new(script).args(options).env("CARGO", env!("CARGO")).stderr(Stdio::inherit()).output();
    let built = built.expect("the script can be run");
    assert!(built.status.success(), "the plug-in can be built");
    for built in String::from_utf8(built.stdout).expect("paths").lines().map(Path::new) {
        let beside = Path::new(env!("CARGO_BIN_EXE_slipway")).with_file_name(built.file_name().expect("a file"));
        // Renamed into its place, since other tests may be reading it.
        let fresh = beside.with_extension(format!("{}.new", std::process::id()));
        std::fs::copy(built, &fresh).and_then(|_| std::fs::rename(&fresh, beside)).expect("it can be put there");
    }
}

//! System calls that fail when a test wants them to, for `slipway` and all that it starts: the anchor, routers, nodes.
//!
//! ```ignore
//! // Every `mkdirat` of `up` and of the lab's anchor fails:
//! let fault = Fault::of(libc::SYS_mkdirat, Errno::NOSPC);
//! let output = place.failing(&fault, ["up", "lab.yaml"]).output();
//!
//! // Only `bpf` with command 5 (BPF_PROG_LOAD) fails, while a file exists. The lab comes up whole, its anchor carries
//! // the fault, and the test chooses the moment.
//! let fault = Fault::of(libc::SYS_bpf, Errno::NOMEM).where_argument(0, 5).only_while(&place.path().join("failing"));
//! place.failing(&fault, ["up", "lab.yaml"]).output();
//! std::fs::write(place.path().join("failing"), "");
//! place.fails(1, ["set", …]);
//! ```
//!
//! A filter (`seccomp(2)`) makes them fail, so arguments behind pointers cannot be told apart. A fault with
//! [`only_while`](Fault::only_while) takes the one listener that a process tree may have: nodes on a network with driver `fast`
//! cannot start programs under it. A filter stays with all that the command starts. So a lab brought up under a fault
//! keeps it. Later commands of the test are free of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;

use super::{Place, told};

/// A system call that fails.
#[derive(Debug, Clone)]
pub struct Fault {
    call: i64,
    error: Errno,
    argument: Option<(u8, u32)>,
    only_while: Option<PathBuf>,
}

impl Fault {
    /// All calls with this number (`libc::SYS_…`).
    pub fn of(call: i64, error: Errno) -> Self {
        Self { call, error, argument: None, only_while: None }
    }

    /// Only calls whose argument (from 0) has these lower 32 bits.
    pub fn where_argument(self, index: u8, value: u32) -> Self {
        Self { argument: Some((index, value)), ..self }
    }

    /// Only while a file exists.
    pub fn only_while(self, file: &Path) -> Self {
        Self { only_while: Some(file.to_owned()), ..self }
    }
}

impl Place {
    /// As [`slipway`](Self::slipway), under a fault.
    pub fn failing<S: AsRef<std::ffi::OsStr>>(&self, fault: &Fault, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program());
        self.furnish(&mut command);
        let (index, value) = fault.argument.map_or(("-1".to_owned(), 0), |(index, value)| (index.to_string(), value));
        command.args([fault.call.to_string(), fault.error.raw_os_error().to_string(), index, value.to_string()]);
        command.arg(fault.only_while.as_deref().unwrap_or(Path::new("")));
        command.arg(env!("CARGO_BIN_EXE_slipway")).args(arguments);
        command
    }
}

/// The program that puts the filter in place, compiled once in a run.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/fails.c");
        let path = folder.path().join("fails");
        let mut command = Command::new("gcc");
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path).arg(source);
        let output = command.output().expect("gcc: install build-essential");
        assert!(output.status.success(), "{}", told(&output));
        (folder, path)
    });
    path
}

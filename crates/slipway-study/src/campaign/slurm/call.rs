//! A program of Slurm's that runs beside the coordinator.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Most bytes of an answer: some ten thousand jobs.
const LARGEST: u64 = 4 << 20;

/// A program that runs. Its words go to files, so that it never waits for a reader.
pub(super) struct Call {
    child: Child,
    output: File,
    errors: File,
}

impl Call {
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        Self::with_input(command, "")
    }

    pub(super) fn with_input(command: &mut Command, text: &str) -> io::Result<Self> {
        let (mut input, output, errors) = (tempfile::tempfile()?, tempfile::tempfile()?, tempfile::tempfile()?);
        input.write_all(text.as_bytes())?;
        input.rewind()?;
        let pipes = (Stdio::from(output.try_clone()?), Stdio::from(errors.try_clone()?));
        // A Ctrl-C is the coordinator's to handle.
        let child = command.stdin(input).stdout(pipes.0).stderr(pipes.1).process_group(0).spawn()?;
        Ok(Self { child, output, errors })
    }

    /// Its answer, or its error message, once it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<Result<String, String>>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        self.said(status).map(Some)
    }

    /// Waits for its end.
    pub(super) fn finish(mut self) -> io::Result<Result<String, String>> {
        let status = self.child.wait()?;
        self.said(status)
    }

    fn said(&mut self, status: ExitStatus) -> io::Result<Result<String, String>> {
        let read = |file: &mut File| -> io::Result<String> {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(0))?;
            file.take(LARGEST).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        if status.success() {
            return read(&mut self.output).map(Ok);
        }
        let words = read(&mut self.errors)?;
        Ok(Err(if words.trim().is_empty() { status.to_string() } else { words }))
    }
}

//! fio(1): sequential reads and writes of one file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Output, ReadError, Sample, Step, argv, only};

const PROGRAM: &str = "fio";

/// One sequential pass over a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fio {
    /// The file. fio makes it for a write, and removes it afterwards; a read finds it.
    pub file: PathBuf,
    /// True: writes; false: reads.
    pub write: bool,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a request.
    pub block: u64,
    /// Requests under way at once, where the engine can.
    pub depth: u16,
    /// Past the page cache.
    pub direct: bool,
    /// Of a write: the time counts until the data are on the device.
    pub sync: bool,
    /// Seconds after which it ends early.
    pub most_seconds: u16,
    /// fio's word for how it gives requests to the kernel: `io_uring`, `libaio` or `psync`.
    pub engine: String,
}

/// Engines that fio may use, the best first. `psync` has one request under way.
pub const ENGINES: [&str; 3] = ["io_uring", "libaio", "psync"];

impl Fio {
    /// The job's name in records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.write { "fio write" } else { "fio read" }
    }

    /// fio's argv. Its standard output is the report alone.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        let mut words = argv(&[PROGRAM, "--name=bench", "--output-format=json", "--fallocate=none", "--thread"]);
        let file = escaped(&self.file);
        words.extend([
            format!("--filename={file}"),
            format!("--rw={}", if self.write { "write" } else { "read" }),
            format!("--size={}", self.size),
            format!("--bs={}", self.block),
            format!("--iodepth={}", self.depth),
            format!("--direct={}", u8::from(self.direct)),
            format!("--ioengine={}", self.engine),
            format!("--runtime={}", self.most_seconds),
        ]);
        if self.write {
            words.extend(argv(&["--create_on_open=1", "--unlink=1", "--refill_buffers"]));
            if self.sync {
                words.push("--end_fsync=1".into());
            }
        }
        words
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        vec![Step { server: None, client: self.argv() }]
    }

    /// `jobs[0].read` or `.write` of fio's JSON. Some versions print notes before it.
    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(PROGRAM, outputs)?.succeeded(PROGRAM)?;
        let start = output.stdout.iter().position(|&byte| byte == b'{').unwrap_or(0);
        let report: Value = serde_json::from_slice(&output.stdout[start..]).unwrap_or_default();
        let part = if self.write { "write" } else { "read" };
        let number = |pointer: &str| {
            let found = report.pointer(pointer).and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
            found.ok_or_else(|| ReadError::Missing { program: PROGRAM.into(), what: format!("the number {pointer}") })
        };
        if number("/jobs/0/error")? != 0.0 {
            let code =
                report.pointer("/jobs/0/error").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
            return Err(ReadError::Failed { program: PROGRAM.into(), code: code.unwrap_or(1), said: output.words() });
        }
        let (bytes, milliseconds) =
            (number(&format!("/jobs/0/{part}/io_bytes"))?, number(&format!("/jobs/0/{part}/runtime"))?);
        if bytes == 0.0 || milliseconds == 0.0 {
            return Err(ReadError::Missing {
                program: PROGRAM.into(),
                what: "a byte that went to or from the disk".into(),
            });
        }
        Ok(vec![
            Sample::headline(&format!("sequential {part}"), "MB/s", bytes / milliseconds / 1e3),
            Sample::detail(
                &format!("{part} latency, 99 %"),
                "ms",
                number(&format!("/jobs/0/{part}/clat_ns/percentile/99.000000"))? / 1e6,
            ),
            Sample::detail("fio CPU", "%", number("/jobs/0/usr_cpu")? + number("/jobs/0/sys_cpu")?),
        ])
    }
}

/// fio takes a colon as the end of a file's name.
fn escaped(file: &Path) -> String {
    file.to_string_lossy().replace('\\', r"\\").replace(':', r"\:")
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const WRITE: &[u8] = include_bytes!("../../tests/fixtures/fio-write.json");

    fn fio(write: bool) -> Fio {
        Fio {
            file: "/data/a:b/file".into(),
            write,
            size: 1 << 28,
            block: 1 << 18,
            depth: 1,
            direct: false,
            sync: write,
            most_seconds: 10,
            engine: "io_uring".into(),
        }
    }

    #[test]
    fn a_write_is_read() {
        let samples = fio(true).read(&[output(WRITE, b"", 0)]).unwrap();
        let read: Vec<String> = samples.iter().map(|s| format!("{}: {:.3} {}", s.figure, s.value, s.unit)).collect();
        assert_eq!(read[..2], ["sequential write: 1420.293 MB/s", "write latency, 99 %: 0.157 ms"]);
        assert!(samples[0].headline && samples[2].figure == "fio CPU");
        let noted = [b"note: both iodepth >= 1 and synchronous I/O engine are selected\n", WRITE].concat();
        assert!(fio(true).read(&[output(&noted, b"", 0)]).is_ok());
        assert!(fio(false).read(&[output(WRITE, b"", 0)]).is_err(), "nothing was read");
    }

    #[test]
    fn options_become_words() {
        let words = fio(true).argv().join(" ");
        assert!(words.contains(r"--filename=/data/a\:b/file --rw=write --size=268435456 --bs=262144"), "{words}");
        assert!(words.ends_with("--refill_buffers --end_fsync=1"), "{words}");
        assert!(!fio(false).argv().join(" ").contains("unlink"), "a read leaves the file");
    }

    #[test]
    fn a_failure_is_told_in_fios_words() {
        let error = fio(true).read(&[output(b"", b"fio: pid=1, err=28/file:filesetup.c, No space left on device", 1)]);
        assert!(error.unwrap_err().to_string().contains("No space left"));
        assert!(matches!(fio(true).read(&[output(&WRITE[..900], b"", 0)]), Err(ReadError::Missing { .. })));
    }
}

//! Any program, MPI or not: its wall time, or a number picked from its standard output.

use regex::Regex;
use serde_json::Value;
use serde_json_path::JsonPath;
use slipway_lab::model::{Figure, Pick};

use super::{Output, ReadError, Sample, Step, only};

/// Any program, and the figure picked from its output.
#[derive(Debug, Clone)]
pub struct Command {
    argv: Vec<String>,
    figure: Figure,
    picker: Picker,
}

#[derive(Debug, Clone)]
enum Picker {
    WallTime,
    Regex(Regex),
    JsonPath(JsonPath),
}

/// Why a figure cannot be picked; found before anything runs.
#[derive(Debug, thiserror::Error)]
pub enum PickError {
    /// The command has no word.
    #[error("measure a command: it is empty. Hint: give the program after `--`")]
    Empty,
    /// The regular expression is wrong.
    #[error("compile the regular expression of a figure: {0}. Hint: see https://docs.rs/regex#syntax")]
    Regex(#[from] Box<regex::Error>),
    /// The regular expression picks nothing.
    #[error(
        "use the regular expression “{0}”: it has no group. Hint: put the number in parentheses, as in `time: ([0-9.]+) s`"
    )]
    NoGroup(String),
    /// The JSON path is wrong.
    #[error("parse the JSON path of a figure: {0}. Hint: a path looks like `$.end.seconds` (RFC 9535)")]
    JsonPath(#[from] Box<serde_json_path::ParseError>),
}

/// The figure of a job that names none.
pub(super) fn wall_time() -> Figure {
    Figure { name: "wall time".into(), unit: "s".into(), higher_is_better: false, pick: Pick::WallTime }
}

impl Command {
    pub(super) fn new(argv: &[String], figure: &Figure) -> Result<Self, PickError> {
        if argv.is_empty() {
            return Err(PickError::Empty);
        }
        let picker = match &figure.pick {
            Pick::WallTime => Picker::WallTime,
            Pick::Regex(pattern) => Picker::Regex(one_group(pattern)?),
            Pick::JsonPath(path) => Picker::JsonPath(JsonPath::parse(path).map_err(Box::new)?),
        };
        Ok(Self { argv: argv.to_vec(), figure: figure.clone(), picker })
    }

    /// The program without its folder.
    pub(super) fn name(&self) -> &str {
        let program = self.argv[0].as_str();
        program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program)
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        vec![Step { server: None, client: self.argv.clone() }]
    }

    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(self.name(), outputs)?;
        output.succeeded(self.name())?;
        let (picked, what) = match &self.picker {
            Picker::WallTime => (Some(output.wall.as_secs_f64()), String::new()),
            Picker::Regex(regex) => (by_regex(regex, &output.stdout), format!("a number that matches {regex}")),
            Picker::JsonPath(path) => (by_path(path, &output.stdout), format!("exactly one number at {path}")),
        };
        let missing = || ReadError::Missing { program: self.name().to_owned(), what };
        let value = picked.filter(|value| value.is_finite()).ok_or_else(missing)?;
        let Figure { name, unit, higher_is_better, .. } = self.figure.clone();
        Ok(vec![Sample { figure: name, unit, higher_is_better, headline: true, value, curve: Vec::new() }])
    }
}

fn one_group(pattern: &str) -> Result<Regex, PickError> {
    let regex = Regex::new(pattern).map_err(Box::new)?;
    if regex.captures_len() < 2 {
        return Err(PickError::NoGroup(pattern.to_owned()));
    }
    Ok(regex)
}

fn by_regex(regex: &Regex, stdout: &[u8]) -> Option<f64> {
    let text = String::from_utf8_lossy(stdout);
    regex.captures(&text)?.get(1)?.as_str().trim().parse().ok()
}

fn by_path(path: &JsonPath, stdout: &[u8]) -> Option<f64> {
    let value: Value = serde_json::from_slice(stdout).ok()?;
    path.query(&value).exactly_one().ok()?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::super::{Probe, ReadError};
    use super::*;

    fn read(pick: Pick, stdout: &str) -> Result<f64, ReadError> {
        let figure = Figure { name: "x".into(), unit: "s".into(), higher_is_better: false, pick };
        let probe = Probe::of_command(&["/usr/bin/hpcc".into()], &figure).unwrap();
        assert_eq!(probe.name(), "hpcc");
        Ok(probe.read(&[output(stdout.as_bytes(), b"", 0)])?[0].value)
    }

    #[test]
    fn each_way_of_picking_finds_its_number() {
        assert_eq!(read(Pick::WallTime, ""), Ok(1.5));
        assert_eq!(read(Pick::Regex("time = ([0-9.e-]+)".into()), "time = 1.5e-3 s\ntime = 9"), Ok(0.0015));
        assert_eq!(read(Pick::JsonPath("$.runs[-1].s".into()), r#"{"runs":[{"s":1},{"s":2.5}]}"#), Ok(2.5));
    }

    #[test]
    fn what_is_not_one_finite_number_is_missing() {
        for (pick, stdout) in [
            (Pick::Regex("(.*)".into()), "fast"),
            (Pick::Regex("(inf)".into()), "inf"),
            (Pick::JsonPath("$.runs[*]".into()), r#"{"runs":[1,2]}"#),
            (Pick::JsonPath("$.a".into()), r#"{"a":"1"}"#),
            (Pick::JsonPath("$.a".into()), r#"{"a":1"#),
        ] {
            assert!(matches!(read(pick, stdout), Err(ReadError::Missing { .. })), "{stdout}");
        }
    }

    #[test]
    fn wrong_pickers_are_refused_before_anything_runs() {
        let build = |pick| {
            let figure = Figure { pick, ..wall_time() };
            Probe::of_command(&["true".into()], &figure).unwrap_err().to_string()
        };
        assert!(build(Pick::Regex("(".into())).contains("unclosed group"));
        assert!(build(Pick::Regex("[0-9]+".into())).contains("parentheses"));
        assert!(build(Pick::JsonPath("a b".into())).contains("RFC 9535"));
        assert!(matches!(Probe::of_command(&[], &wall_time()), Err(PickError::Empty)));
    }

    #[test]
    fn a_failed_program_has_no_figure() {
        let probe = Probe::of_command(&["mpirun".into()], &wall_time()).unwrap();
        let error = probe.read(&[output(b"", b"mpirun: rank 3 died\n", 139)]).unwrap_err();
        assert_eq!(
            error,
            ReadError::Failed { program: "mpirun".into(), code: 139, said: "mpirun: rank 3 died".into() }
        );
    }
}

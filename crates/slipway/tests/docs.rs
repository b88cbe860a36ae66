//! Runs what README.md and the guide show, in order, file by file: fenced blocks of `console` are commands and their
//! output, blocks of `yaml` are labs, or campaigns where they have `run:`. So nothing is documented that does not work.
//!
//! - `$ ` begins a command, `> ` continues it; both go to `sh`, in a folder that belongs to the file. It must exit with 0.
//!   (`slipway verify` may exit with 1: whether links are as asked is also up to how busy the machine is.)
//! - Standard output, where any is shown, is compared. `[..]` stands for anything within a line, a line `...` for any lines.
//! - A block ```` ```yaml file=NAME ```` is written to NAME first, and so is one of another kind. Every YAML block must be a valid lab.
//!
//! `SLIPWAY_DOCS=jobs.md` runs the pages alone whose path ends so.
//!
//! The labs of `examples/` say in the comment at their top how to run them; that is run too.

#[allow(unreachable_pub, reason = "as other tests share it")]
#[path = "common/verbs.rs"]
mod verbs;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A fenced block.
struct Block {
    line: usize,
    info: String,
    text: String,
}

/// A command, and what it is shown to print.
#[derive(Default)]
struct Step {
    line: usize,
    command: String,
    output: String,
}

#[test]
fn everything_shown_works() {
    let _turn = alone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    let guide = std::fs::read_dir(root.join("docs/guide")).expect("the guide is there");
    files.extend(guide.map(|entry| entry.expect("its folder can be read").path()));
    files.sort();
    if let Ok(page) = std::env::var("SLIPWAY_DOCS") {
        files.retain(|file| file.ends_with(&page));
        assert!(!files.is_empty(), "no page of the guide is called `{page}`");
    }
    let wrong: String = files.iter().map(|file| check(file, &root)).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// One at a time: what is shown uses short names, and two labs cannot have the same.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong in a file; empty if nothing is.
fn check(file: &Path, root: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a document can be read");
    if text.contains("rdma: true") {
        verbs::plug_in();
    }
    let place = Place::new(root);
    let mut wrong = String::new();
    for block in blocks(&text) {
        let mut words = block.info.split_whitespace();
        let kind = words.next();
        if let Some(name) = words.find_map(|word| word.strip_prefix("file=")) {
            std::fs::write(place.folder.path().join(name), &block.text).expect("a file can be written");
        }
        let outcome = match kind {
            Some("yaml") if block.text.lines().any(|line| line.starts_with("run:")) => is_campaign(&block),
            Some("yaml") => is_lab(&block),
            Some("console") => steps(&block).iter().try_for_each(|step| place.run(step)),
            _ => Ok(()),
        };
        if let Err((line, account)) = outcome {
            let _ = writeln!(wrong, "{}:{line}: {account}", file.display());
            // What follows builds on it.
            break;
        }
    }
    for lab in place.left() {
        let _ = writeln!(wrong, "{}: lab `{lab}` is left running", file.display());
    }
    wrong
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                blocks.push(Block { line: number + 2, info: info.to_owned(), text: String::new() });
            }
        } else if let Some(block) = blocks.last_mut().filter(|_| inside) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    blocks
}

fn is_lab(block: &Block) -> Result<(), (usize, String)> {
    let result = slipway_lab::parse("shown.yaml", &block.text, Path::new("/"));
    result.map(drop).map_err(|errors| (block.line, errors.plain()))
}

fn is_campaign(block: &Block) -> Result<(), (usize, String)> {
    let result = slipway_campaign::parse("shown.yaml", &block.text, Path::new("/"));
    result.map(drop).map_err(|errors| (block.line, errors.plain()))
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in block.text.lines().enumerate() {
        match (line.strip_prefix("$ "), line.strip_prefix("> "), steps.last_mut()) {
            (Some(command), ..) => {
                steps.push(Step { line: block.line + number, command: command.to_owned(), ..Step::default() });
            }
            (_, Some(more), Some(step)) if step.output.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            (.., Some(step)) => {
                step.output.push_str(line);
                step.output.push('\n');
            }
            (.., None) => {}
        }
    }
    steps
}

/// Where a file's commands run: a folder and a state of its own.
struct Place {
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
    examples: PathBuf,
}

impl Place {
    fn new(root: &Path) -> Self {
        let place = || tempfile::tempdir().expect("a temporary folder can be made");
        let place = Self { folder: place(), state: place(), examples: root.join("examples") };
        std::os::unix::fs::symlink(&place.examples, place.folder.path().join("examples")).expect("a link can be made");
        place
    }

    fn sh(&self, script: &str) -> Command {
        let slipway = Path::new(env!("CARGO_BIN_EXE_slipway")).parent().expect("the program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", slipway.display()))
            // Fetched once for all tests.
            .env("SLIPWAY_PYTHON", Path::new(env!("CARGO_TARGET_TMPDIR")).join("python"))
            .env("SLIPWAY_STATE", self.state.path());
        command
    }

    fn run(&self, step: &Step) -> Result<(), (usize, String)> {
        let wrong = |account: String| Err((step.line, format!("`{}` {account}", step.command)));
        let output = self.sh(&step.command).output().expect("sh can be run");
        let printed = String::from_utf8_lossy(&output.stdout);
        let judges = step.command.starts_with("slipway verify") && output.status.code() == Some(1);
        if !output.status.success() && !judges {
            let errors = String::from_utf8_lossy(&output.stderr);
            return wrong(format!("ends with {}:\n{printed}{errors}", output.status));
        }
        let (shown, seen): (Vec<&str>, Vec<&str>) = (step.output.lines().collect(), printed.lines().collect());
        if !shown.is_empty() && !matches(&shown, &seen) {
            return wrong(format!("is shown to print\n{}but prints\n{printed}", step.output));
        }
        Ok(())
    }

    /// Names of labs that still run; they are taken down.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.state.path()).expect("the state can be listed");
        let names =
            entries.map(|entry| entry.expect("the state can be read").file_name().to_string_lossy().into_owned());
        let labs: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        for lab in &labs {
            self.sh(&format!("slipway down {lab}")).status().expect("sh can be run");
        }
        labs
    }
}

fn matches(shown: &[&str], seen: &[&str]) -> bool {
    match shown.split_first() {
        None => seen.is_empty(),
        Some((&"...", rest)) => (0..=seen.len()).any(|skipped| matches(rest, &seen[skipped..])),
        Some((line, rest)) => seen.split_first().is_some_and(|(first, seen)| fits(line, first) && matches(rest, seen)),
    }
}

fn fits(shown: &str, seen: &str) -> bool {
    match shown.trim_end().split_once("[..]") {
        None => shown.trim_end() == seen.trim_end(),
        Some((start, rest)) => seen.strip_prefix(start).is_some_and(|seen| {
            let ends = seen.char_indices().map(|(at, _)| at).chain([seen.len()]);
            ends.into_iter().any(|at| fits(rest, &seen[at..]))
        }),
    }
}

/// Left out: what takes minutes (`compare`, OpenFOAM), and what wants a terminal (`shell`).
#[test]
fn every_example_runs_as_it_says() {
    const SHOW: [&str; 9] = [
        "hello.yaml",
        "two-hosts.yaml",
        "gateway.yaml",
        "ospf/ospf.yaml",
        "mpi-hpcc.yaml",
        "redis.yaml",
        "nginx.yaml",
        "pings.yaml",
        "images/lab.yaml",
    ];
    let _turn = alone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wrong = String::new();
    for name in SHOW {
        let text = std::fs::read_to_string(root.join("examples").join(name)).expect("the example is there");
        let place = Place::new(&root);
        let comment = text.lines().zip(1..).map_while(|(line, number)| Some((line.strip_prefix('#')?, number)));
        let commands = comment.filter_map(|(line, number)| Some((line.strip_prefix("   ")?, number)));
        for (command, line) in
            commands.filter(|(command, _)| !command.contains(" compare ") && !command.contains(" shell "))
        {
            let step = Step { line, command: command.to_owned(), ..Step::default() };
            if let Err((line, account)) = place.run(&step) {
                let _ = writeln!(wrong, "examples/{name}:{line}: {account}");
                break;
            }
        }
        for lab in place.left() {
            let _ = writeln!(wrong, "examples/{name}: lab `{lab}` is left running");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_example_is_a_lab_or_a_campaign() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = std::fs::read_dir(&examples).expect("the examples are there");
    let folders = folders.map(|entry| entry.expect("their folder can be read").path()).filter(|path| path.is_dir());
    for folder in folders.chain([examples.clone()]) {
        let files = std::fs::read_dir(&folder).expect("an example's folder can be read");
        for path in files.map(|entry| entry.expect("it can be read").path()) {
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).expect("an example can be read");
                let name = path.to_string_lossy();
                let read = if folder.ends_with("campaigns") {
                    slipway_campaign::parse(&name, &text, &folder).map(drop)
                } else {
                    slipway_lab::parse(&name, &text, &folder).map(drop)
                };
                assert!(read.is_ok(), "{}", read.map_err(|errors| errors.plain()).unwrap_err());
            }
        }
    }
}

#[test]
fn wildcards() {
    assert!(fits("a[..]c[..]", "abbc"));
    assert!(fits("[..]", ""));
    assert!(!fits("a[..]c", "abb"));
    assert!(matches(&["a", "...", "z"], &["a", "b", "c", "z"]));
    assert!(matches(&["a", "..."], &["a"]));
    assert!(!matches(&["a"], &["a", "b"]));
}

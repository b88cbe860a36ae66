//! An error, for a person or a program to read.

use std::fmt::Display;
use std::io::{self, Write as _};

use miette::{GraphicalReportHandler, GraphicalTheme};
use serde_json::{Value, json};
use slipway_api::{ServeError, TokenError};
use slipway_coordinator::{FolderError, RunError};
use slipway_document::FileError;
use slipway_document::errors::DocumentErrors;
use slipway_document::text::{printable, printable_json};
use slipway_engine::copy::CopyError;
use slipway_engine::exec::ExecError;
use slipway_engine::job::JobError;
use slipway_engine::lab::{DownError, LabError, UpError};
use slipway_engine::network::NetworkError;
use slipway_engine::rsh::RshError;
use slipway_engine::scenario::ScenarioError;
use slipway_engine::state::StateError;
use slipway_host::facts::{RecordError, SourceError};
use slipway_host::rules::RulesError;
use slipway_host::setting::{ApplyError, JournalError, PersistError};
use slipway_image::{ImageError, SaveError};
use slipway_lab::SelectError;
use slipway_machines::MachineError;
use slipway_study::StudyError;
use slipway_study::campaign::tables::TablesError;
use slipway_study::campaign::{CampaignError, EngineError};
use slipway_sys::cgroup::CgroupError;
use slipway_verify::VerifyError;

use crate::exit::Exit;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: What,
}

#[derive(Debug)]
enum What {
    /// "failed to …", and what to do about it, a line each.
    Plain { message: String, hints: Vec<String> },
    /// A file is wrong: it could not be understood, or made. `file` is its kind, as in "lab".
    File { errors: Box<DocumentErrors>, doing: &'static str, file: &'static str },
    /// Nobody reads the answer any more.
    Unread,
}

impl Failure {
    /// `account` fits "failed to …"; a line or sentence of it that begins with `Hint: ` says what to do.
    pub(crate) fn new(exit: Exit, account: &impl Display) -> Self {
        let account = account.to_string().replace(". Hint: ", "\nHint: ");
        let (hints, message): (Vec<&str>, Vec<&str>) = account.lines().partition(|line| line.starts_with("Hint: "));
        let hints = hints.into_iter().filter_map(|line| line.strip_prefix("Hint: ")).map(str::to_owned).collect();
        Self { exit, what: What::Plain { message: message.join("\n"), hints } }
    }

    /// The arguments are wrong.
    pub(crate) fn usage(account: impl Display) -> Self {
        Self::new(Exit::Usage, &account)
    }

    /// For `map_err`: `doing` is a verb with its object, as in "write lab.yaml".
    pub(crate) fn io(doing: impl Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(exit_of(&error), &format!("{doing}: {error}"))
    }

    /// The same, ending as a program would that did not come to run.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Its account, for somebody else to tell; empty where a file is wrong.
    pub(crate) fn account(&self) -> String {
        let What::Plain { message, hints } = &self.what else { return String::new() };
        let hints = hints.iter().map(|hint| format!("\nHint: {hint}"));
        std::iter::once(message.clone()).chain(hints).collect()
    }

    /// The exit code that fits the failure.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Tells it on standard error.
    pub(crate) fn report(&self, as_json: bool, color: bool) {
        let text = match (&self.what, as_json) {
            (What::Unread, _) => return,
            (_, true) => format!("{}\n", printable_json(&json!({ "error": self.json() }).to_string())),
            (What::File { errors, doing, file }, _) => draw(errors, doing, file, color),
            (What::Plain { message, hints }, _) => {
                let hints: Vec<String> = hints.iter().map(|hint| format!("Hint: {hint}\n")).collect();
                printable(&format!("slipway: failed to {message}\n{}", hints.concat()))
            }
        };
        // Where standard error is gone too, the exit code remains.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn json(&self) -> Value {
        match &self.what {
            What::Plain { message, hints } => {
                let help = (!hints.is_empty()).then(|| hints.join("\n"));
                json!({ "message": message, "help": help, "file": null, "line": null, "column": null })
            }
            What::File { errors, .. } => {
                let first = &errors.errors()[0];
                json!({
                    "message": first.message, "help": first.help,
                    "file": first.file, "line": first.line, "column": first.column,
                    "all": errors.errors(),
                })
            }
            What::Unread => Value::Null,
        }
    }
}

/// With the file's text around each place.
fn draw(errors: &DocumentErrors, doing: &str, file: &str, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(100);
    let mut text = format!("slipway: failed to {doing} the {file} file: {errors}\n");
    for error in errors.errors() {
        text.push('\n');
        if handler.render_report(&mut text, error).is_err() {
            return errors.plain();
        }
    }
    text
}

fn exit_of(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::PermissionDenied { Exit::Unable } else { Exit::Failed }
}

impl From<DocumentErrors> for Failure {
    fn from(errors: DocumentErrors) -> Self {
        StudyError::from(errors).into()
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        let file = |errors, doing| Self { exit: Exit::Usage, what: What::File { errors, doing, file: "lab" } };
        let exit = match error {
            StudyError::File(errors) => return file(errors, "understand"),
            StudyError::Refused(errors) => return file(errors, "do as asked by"),
            StudyError::Image(error) => return error.into(),
            StudyError::Up(error) => return (*error).into(),
            StudyError::Lab(error) => return error.into(),
            StudyError::Rsh(error) => return error.into(),
            StudyError::Down(error) => return error.into(),
            StudyError::Job(error) => return error.into(),
            StudyError::Scenario(error) => return error.into(),
            StudyError::Machine(error) => return error.into(),
            StudyError::Verify(error) => return error.into(),
            StudyError::Io { ref source, .. } => exit_of(source),
            StudyError::Output { .. } => {
                return Self::usage(format!("{error}\nHint: name one that is not there yet with --out"));
            }
            StudyError::Unreadable { ref source, .. } => {
                let hint = match source.kind() {
                    io::ErrorKind::NotFound => "\nHint: check the path; `slipway init FILE` writes a new one",
                    io::ErrorKind::InvalidData => "\nHint: a lab file is YAML in UTF-8",
                    _ => "",
                };
                return Self::usage(format!("{error}{hint}"));
            }
            StudyError::NoScenario(_)
            | StudyError::Trace { .. }
            | StudyError::Plan { .. }
            | StudyError::Room { .. }
            | StudyError::Readahead(_) => Exit::Usage,
            StudyError::CheckInterrupted(signal)
            | StudyError::BenchInterrupted(signal)
            | StudyError::ComparisonInterrupted { signal, .. } => Exit::Program(signal.saturating_add(128)),
            StudyError::NoDriver(_) | StudyError::Tool(_) => Exit::Unable,
            StudyError::Records(_) | StudyError::Log(_) => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        let exit = match error {
            CampaignError::File(errors) => {
                return Self { exit: Exit::Usage, what: What::File { errors, doing: "understand", file: "campaign" } };
            }
            CampaignError::Study(error) => return error.into(),
            CampaignError::Unreadable { ref source, .. } => {
                let hint = match source.kind() {
                    io::ErrorKind::NotFound => "\nHint: `slipway campaign init` writes a new one",
                    io::ErrorKind::InvalidData => "\nHint: a campaign file is YAML in UTF-8",
                    _ => "",
                };
                return Self::usage(format!("{error}{hint}"));
            }
            CampaignError::Engine(EngineError::Environment(_)) => Exit::Failed,
            CampaignError::Plan(_) | CampaignError::List(_) | CampaignError::Input(_) | CampaignError::Engine(_) => {
                Exit::Usage
            }
            CampaignError::Folder(FolderError::Missing(_)) => Exit::NotFound,
            CampaignError::Tables(TablesError::Missing { .. }) => Exit::Unable,
            CampaignError::Folder(FolderError::File(FileError { ref source, .. }))
            | CampaignError::Run(RunError::Io { ref source, .. }) => exit_of(source),
            // The code of runs in which any point failed.
            CampaignError::Run(RunError::Baseline(_)) => Exit::Strained,
            CampaignError::Python(_)
            | CampaignError::Invitation(_)
            | CampaignError::Join(_)
            | CampaignError::Folder(_)
            | CampaignError::Run(_)
            | CampaignError::Store(_)
            | CampaignError::Objects(_)
            | CampaignError::Tables(_) => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let exit = match &error {
            ServeError::Folder { source, .. } | ServeError::Listen { source, .. } | ServeError::Io(source) => {
                exit_of(source)
            }
            ServeError::Tokens(TokenError::File(FileError { source, .. })) => exit_of(source),
            ServeError::Plain(_) | ServeError::Open(_) | ServeError::Tls(_) | ServeError::Tokens(_) => Exit::Usage,
        };
        Self::new(exit, &error)
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        let exit = match &error {
            StateError::NotRunning(_) => Exit::NotFound,
            StateError::Io { source, .. } => exit_of(source),
            StateError::Format { .. } | StateError::Taken(_) | StateError::Held { .. } => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::State(error) => error.into(),
            LabError::NotRunning { .. } => Self::new(Exit::NotFound, &error),
            LabError::NoGroup(_) => Self::new(Exit::Unable, &error),
            error => Self::new(Exit::Failed, &error),
        }
    }
}

impl From<RshError> for Failure {
    fn from(error: RshError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        let exit = match error {
            MachineError::Lab(error) => return error.into(),
            MachineError::Verify(error) => return error.into(),
            MachineError::Scenario(error) => return error.into(),
            MachineError::Version { .. } | MachineError::Unreachable { .. } | MachineError::NotHere { .. } => {
                Exit::Unable
            }
            MachineError::Refused { .. }
            | MachineError::Image(_)
            | MachineError::Carry { .. }
            | MachineError::Unshareable { .. }
            | MachineError::NotShared { .. }
            | MachineError::NoTunnels { .. }
            | MachineError::Several(_)
            | MachineError::Here { .. }
            | MachineError::Rsh(_) => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Lab(error) => error.into(),
            VerifyError::NoRoute { .. } | VerifyError::Unknown { .. } => Self::usage(&error),
            error @ (VerifyError::Io { .. }
            | VerifyError::Interrupted
            | VerifyError::NoPath
            | VerifyError::OtherAnswer) => Self::new(Exit::Failed, &error),
        }
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        let exit = match error {
            ScenarioError::Lab(error) => return error.into(),
            ScenarioError::NotPlaying(_) | ScenarioError::NothingLeft { .. } => Exit::NotFound,
            ScenarioError::Io { ref source, .. } => exit_of(source),
            _ => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Lab(error) => error.into(),
            error => Self::new(Exit::Program(error.code()), &error),
        }
    }
}

impl From<UpError> for Failure {
    fn from(error: UpError) -> Self {
        match error {
            UpError::State(error) => error.into(),
            UpError::Open(error) => error.into(),
            UpError::Image(error) => error.into(),
            UpError::Refused(_) => Self::usage(&error),
            UpError::Matrix(error) => Self::usage(error),
            UpError::Conditions(error) => Self::new(Exit::Unable, &error),
            // As a shell says that a signal ended a program.
            UpError::Interrupted(signal) => Self::new(Exit::Program(128 + signal as u8), &error),
            error => Self::new(Exit::Failed, &error),
        }
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        let exit = match &error {
            ImageError::Io { source, .. } => exit_of(source),
            ImageError::Limit { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Rule(errors) => {
                Self { exit: Exit::Usage, what: What::File { errors, doing: "understand", file: "rule" } }
            }
            error => Self::usage(&error),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::usage(&error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        let exit = match &error {
            RecordError::There(_) => Exit::Usage,
            RecordError::File(FileError { source, .. }) => exit_of(source),
        };
        Self::new(exit, &error)
    }
}

impl From<CgroupError> for Failure {
    fn from(error: CgroupError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

impl From<SaveError> for Failure {
    fn from(error: SaveError) -> Self {
        let exit = if matches!(error, SaveError::Kind(_)) { Exit::Usage } else { Exit::Failed };
        Self::new(exit, &error)
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        let exit = match &error {
            // As a shell says that a signal ended a program.
            CopyError::Interrupted(signal) => Exit::Program(128 + *signal as u8),
            _ => Exit::Failed,
        };
        Self::new(exit, &error)
    }
}

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Self {
        let exit = if matches!(error, NetworkError::Unsupported { .. }) { Exit::Unable } else { Exit::Failed };
        Self::new(exit, &error)
    }
}

impl From<DownError> for Failure {
    fn from(error: DownError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::new(Exit::Program(error.code()), &error)
    }
}

impl From<SelectError> for Failure {
    fn from(error: SelectError) -> Self {
        Self::new(Exit::NotFound, &format!("choose nodes: {error}\nHint: {}", error.help()))
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

impl From<PersistError> for Failure {
    fn from(error: PersistError) -> Self {
        Self::new(Exit::Failed, &error)
    }
}

/// Failures to write an answer. A reader that has left (`slipway ps | head -1`) is none.
pub(crate) fn unwritten(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure { exit: Exit::Success, what: What::Unread };
    }
    Failure::new(Exit::Failed, &format!("write the answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_told_apart_from_the_message() {
        let failure = Failure::new(Exit::Failed, &"do x: no\nHint: try y\nand then z");
        let json = failure.json();
        assert_eq!(json["message"], "do x: no\nand then z");
        assert_eq!(json["help"], "try y");
    }
}

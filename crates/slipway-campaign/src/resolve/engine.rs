//! Engines: each becomes a command, the inputs that it reads and the packages that it needs.

use std::path::Path;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::{Report as Errors, Span};
use slipway_document::packages::is_pinned;
use slipway_energyplus::idf::is_value;
use slipway_energyplus::path::Path as FieldPath;
use slipway_energyplus::{OPENSTUDIO, PACKAGE, Report, Reporting};

use super::output::{RESULTS, Reads};
use super::run::template;
use super::variable::value;
use crate::file::{EnergyPlus, Engines, OpenStudio, Program, PythonFunction, Scalar};
use crate::model::{Content, ENGINES, Engine, EngineKind, Input, Model, PYTHON, Reports, Source};
use crate::template::Template;

/// The beginning of an example's name.
const EXAMPLE: &str = "example:";
/// Words that Python keeps for itself (`keyword.kwlist`).
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// An engine as a point runs it.
pub(super) struct Prepared {
    pub(super) command: Vec<Template>,
    pub(super) engine: Engine,
    pub(super) inputs: Vec<Input>,
}

/// The results that a program or an engine leaves without being told where.
pub(super) fn reads(program: &Program) -> Reads {
    let Program::Engine(engines) = program else { return Reads::Files };
    let reporting = |written: Option<Reporting>| written.unwrap_or(Reporting::Hourly);
    match engines.as_ref() {
        Engines { energyplus: Some(of), .. } => Reads::database(reporting(of.value.reporting)),
        Engines { openstudio: Some(of), .. } if of.value.model.is_some() => {
            Reads::database(reporting(of.value.reporting))
        }
        Engines { openstudio: Some(_), .. } => Reads::Steps,
        Engines { python: Some(_), .. } => Reads::Returned,
        // The error is that no engine is named; outputs are right with one of them.
        Engines { python: None, energyplus: None, openstudio: None } => Reads::database(Reporting::Hourly),
    }
}

/// The engine of a campaign. `outputs`: names of those that it returns itself; `reports`: those that outputs read.
pub(super) fn engine(
    engines: &Engines,
    (at, whole): (Span, Span),
    variables: &[String],
    outputs: &[String],
    reports: Vec<Report>,
    base_dir: &Path,
    errors: &mut Errors,
) -> Option<Prepared> {
    let mut of = Of { variables, base_dir, errors };
    match (&engines.python, &engines.energyplus, &engines.openstudio) {
        (Some(written), None, None) => Some(of.python(written, outputs)),
        (None, Some(written), None) => Some(of.energyplus(&written.value, reports)),
        (None, None, Some(written)) => of.openstudio(written, outputs, &reports),
        (None, None, None) => {
            if !of.errors.touches(whole) {
                of.errors.add(
                    at,
                    "no engine is named",
                    "write a command, or one of `python`, `energyplus` and `openstudio`",
                );
            }
            None
        }
        _ => {
            of.errors.add(at, "a point runs one engine", "keep one of `python`, `energyplus` and `openstudio`");
            None
        }
    }
}

/// All that an engine's keys are read with.
struct Of<'a> {
    variables: &'a [String],
    base_dir: &'a Path,
    errors: &'a mut Errors,
}

impl Of<'_> {
    fn python(&mut self, written: &Spanned<PythonFunction>, outputs: &[String]) -> Prepared {
        let PythonFunction { file, function, requires } = &written.value;
        let packages: Vec<String> = requires.iter().flatten().map(|package| package.value.clone()).collect();
        for package in requires.iter().flatten().filter(|package| !is_pinned(&package.value)) {
            self.errors.add(
                package.at,
                "this does not name one version of a package",
                "write for example `numpy==2.4.0`",
            );
        }
        if !is_identifier(&function.value) {
            self.errors.add(function.at, "this is no name of a Python function", "write the name after `def`");
        }
        for variable in self.variables.iter().filter(|variable| !is_identifier(variable)) {
            let message = format!("`{variable}` cannot be a keyword argument of a Python function");
            self.errors.add(written.at, message, "give the variable another name");
        }
        let name = file.value.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if name.is_empty() || name == ".." {
            self.errors.add(file.at, "this is no path of a file", "write the path of a Python file");
        }
        let mut command = script("python.py");
        command.extend([name, &function.value].map(Template::plain));
        command.extend(outputs.iter().map(Template::plain));
        let source = Source::Path(self.base_dir.join(&file.value));
        Prepared {
            command,
            engine: Engine {
                kind: EngineKind::Python { file: name.into(), function: function.value.clone() },
                packages,
            },
            inputs: vec![Input { name: name.into(), source, content: Content::Same }],
        }
    }

    fn energyplus(&mut self, written: &EnergyPlus, reports: Vec<Report>) -> Prepared {
        let EnergyPlus { model, weather, annual, reporting, set } = written;
        let annual = annual.unwrap_or(true);
        let mut command = script("energyplus.py");
        command.extend(arguments("in.idf", annual, &reports));
        let all = reporting.is_some();
        let reporting = reporting.unwrap_or(Reporting::Hourly);
        let fields = self.fields(set);
        let content = Content::Model(Model { fields, reports: Some(Reports { wanted: reports, reporting, all }) });
        let model = Input { name: "in.idf".into(), source: self.file(model, Source::ExampleModel), content };
        let engine = Engine { kind: EngineKind::EnergyPlus { annual }, packages: vec![PACKAGE.to_owned()] };
        Prepared { command, engine, inputs: vec![model, self.weather(weather)] }
    }

    fn openstudio(
        &mut self,
        written: &Spanned<OpenStudio>,
        outputs: &[String],
        reports: &[Report],
    ) -> Option<Prepared> {
        let packages = vec![OPENSTUDIO.to_owned(), PACKAGE.to_owned()];
        let OpenStudio { model, workflow, weather, annual, reporting, set } = &written.value;
        match (model, workflow) {
            (Some(model), None) => {
                let annual = annual.unwrap_or(true);
                let mut command = script("openstudio.py");
                command.extend(arguments("in.osm", annual, reports));
                command.extend(reporting.map_or(&[][..], |_| &["--all"]).iter().copied().map(Template::plain));
                command.extend(["--reporting", reporting.unwrap_or(Reporting::Hourly).word()].map(Template::plain));
                let content = Content::Model(Model { fields: self.fields(set), reports: None });
                let source = Source::Path(self.base_dir.join(&model.value));
                let mut inputs = vec![Input { name: "in.osm".into(), source, content }];
                if let Some(weather) = weather {
                    inputs.push(self.weather(weather));
                } else {
                    self.errors.add(
                        model.at,
                        "a model needs a weather file",
                        "add `weather:` and the path of an EPW file",
                    );
                }
                Some(Prepared {
                    command,
                    engine: Engine { kind: EngineKind::OpenStudioModel { annual }, packages },
                    inputs,
                })
            }
            (None, Some(workflow)) => {
                if weather.is_some() || annual.is_some() || reporting.is_some() {
                    let help = "leave `weather`, `annual` and `reporting` out";
                    self.errors.add(written.at, "a workflow names its weather file and its reports itself", help);
                }
                let (arguments, mut command) = self.arguments(set);
                let mut words = script("openstudio.py");
                words.extend(["--workflow", "workflow/in.osw"].map(Template::plain));
                words.append(&mut command);
                words.extend(outputs.iter().flat_map(|output| [Template::plain("--output"), Template::plain(output)]));
                let source = Source::Workflow(self.base_dir.join(&workflow.value));
                let inputs = vec![Input { name: "workflow".into(), source, content: Content::Same }];
                let engine = Engine { kind: EngineKind::OpenStudioWorkflow { arguments }, packages };
                Some(Prepared { command: words, engine, inputs })
            }
            _ => {
                if !self.errors.touches(written.whole) {
                    self.errors.add(
                        written.at,
                        "OpenStudio runs a model or a workflow",
                        "write `model:` or `workflow:`",
                    );
                }
                None
            }
        }
    }

    fn weather(&mut self, written: &Spanned<String>) -> Input {
        let source = self.file(written, Source::ExampleWeather);
        Input { name: "in.epw".into(), source, content: Content::Same }
    }

    /// A file of the user's own, or an example.
    fn file(&mut self, written: &Spanned<String>, example: fn(String) -> Source) -> Source {
        if let Some(name) = written.value.strip_prefix(EXAMPLE) {
            return example(name.trim().to_owned());
        }
        if written.value.is_empty() || written.value.contains('\0') {
            self.errors.add(written.at, "this is no path", "write the path of a file");
        }
        Source::Path(self.base_dir.join(&written.value))
    }

    /// Fields of a model's objects.
    fn fields(&mut self, set: &Named<Scalar>) -> Vec<(FieldPath, Template)> {
        let mut fields = Vec::new();
        for entry in &set.0 {
            let text = value(&entry.value).to_string();
            if !is_value(&text) {
                let message = "a field's value has no comma, semicolon, comment or new line";
                self.errors.add(entry.name.at, message, "set one field");
            }
            let filled = template(&text, entry.name.at, self.variables, self.errors);
            match FieldPath::read(&entry.name.value) {
                Ok(path) => fields.push((path, filled)),
                Err(why) => self.errors.add(entry.name.at, why, "write for example `Material/Insulation/Thickness`"),
            }
        }
        fields
    }

    /// Arguments of a workflow's measures, and the words that tell the script.
    fn arguments(&mut self, set: &Named<Scalar>) -> (Vec<(String, String)>, Vec<Template>) {
        let (mut names, mut words) = (Vec::new(), Vec::new());
        for entry in &set.0 {
            let Some((measure, argument)) = entry.name.value.split_once('/') else {
                self.errors.add(entry.name.at, "an argument is `measure/argument`", "write the measure's name first");
                continue;
            };
            // A path has no braces, or a point's value would stand for part of it.
            let path = entry.name.value.replace('{', "{{").replace('}', "}}");
            let text = format!("{path}={}", value(&entry.value));
            words.push(Template::plain("--set"));
            words.push(template(&text, entry.name.at, self.variables, self.errors));
            names.push((measure.to_owned(), argument.to_owned()));
        }
        (names, words)
    }
}

/// The first words of an engine's command.
fn script(name: &str) -> Vec<Template> {
    let words = [format!("{PYTHON}/bin/python"), "-IB".to_owned(), format!("{ENGINES}/{name}")];
    words.map(Template::plain).to_vec()
}

/// Words that tell a script the model, and the reports that must be among its results.
fn arguments(model: &str, annual: bool, reports: &[Report]) -> Vec<Template> {
    let mut words = vec!["--model", model, "--weather", "in.epw"];
    words.extend(annual.then_some("--annual"));
    for report in reports {
        match report {
            Report::Meter(name) => words.extend(["--meter", name]),
            Report::Variable(name) => words.extend(["--variable", name]),
            Report::Tables => words.push("--tables"),
        }
    }
    words.into_iter().map(Template::plain).collect()
}

/// Whether Python takes a text for a name.
fn is_identifier(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !KEYWORDS.contains(&text)
}

/// Adds an engine's inputs to the user's own.
pub(super) fn add_inputs(own: &mut Vec<Input>, engine: Vec<Input>, at: Span, errors: &mut Errors) {
    for input in engine {
        let taken = |other: &&mut Input| other.name == input.name || other.name == *RESULTS;
        match own.iter_mut().find(taken) {
            Some(other) => {
                let message = format!("the engine's own file has the name of the input `{}`", other.name.display());
                errors.add(at, message, "give the input another name");
            }
            None => own.push(input),
        }
    }
}

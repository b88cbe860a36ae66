//! The program of a point.

use std::collections::BTreeMap;

use slipway_document::de::Named;
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;

use super::variable::value;
use crate::file::{Program, Scalar};
use crate::template::Template;

/// Words that only a shell understands.
const OF_SHELLS: [&str; 8] = ["|", "||", "&&", "&", ";", ">", ">>", "<"];

/// The command of a program; `None` with an error, and of an engine.
pub(super) fn command(program: &Program, at: Span, variables: &[String], report: &mut Report) -> Option<Vec<Template>> {
    let words = words(program, at, report)?;
    Some(words.iter().map(|word| template(word, at, variables, report)).collect())
}

/// The words of a command; at least one, and none that an argument vector cannot hold.
fn words(program: &Program, at: Span, report: &mut Report) -> Option<Vec<String>> {
    let words = match program {
        Program::Engine(_) => return None,
        Program::Words(words) => words.clone(),
        Program::Line(line) => shell_words::split(line)
            .inspect_err(|_| {
                report.add(at, "a quote is not closed", "close it, or write the command as a list of words");
            })
            .ok()?,
    };
    if words.first().is_none_or(String::is_empty) {
        report.add(at, "a command without a program", "write the program's name as its first word");
        return None;
    }
    if words.iter().any(|word| word.contains('\0')) {
        report.add(at, "a command cannot hold a zero byte", "take it out");
    }
    let of_shell = words.iter().find(|word| OF_SHELLS.contains(&word.as_str()) || ends_a_command(word));
    if let (Program::Line(_), Some(word)) = (program, of_shell) {
        report.add(
            at,
            format!("no shell reads this command, so `{word}` would be an argument"),
            "write `sh -c '…'`, or the command as a list of words",
        );
    }
    Some(words)
}

/// Whether a shell would take the end of a word for the end of a command, as in `cd build; make`.
fn ends_a_command(word: &str) -> bool {
    let is_plain = |rest: &str| rest.chars().all(|one| one.is_alphanumeric() || "-_./={}".contains(one));
    word.strip_suffix(';').is_some_and(is_plain)
}

/// Environment variables (environ(7)).
pub(super) fn environment(
    env: &Named<Scalar>,
    variables: &[String],
    report: &mut Report,
) -> BTreeMap<String, Template> {
    let mut read = BTreeMap::new();
    for entry in &env.0 {
        let name = &entry.name;
        let text = value(&entry.value).to_string();
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            report.add(name.at, "this is no name of a variable", "write a name without `=`");
        }
        if text.contains('\0') {
            report.add(name.at, "a variable cannot hold a zero byte", "take it out");
        }
        read.insert(name.value.clone(), template(&text, name.at, variables, report));
    }
    read
}

pub(super) fn template(text: &str, at: Span, variables: &[String], report: &mut Report) -> Template {
    Template::read(text, variables).unwrap_or_else(|unknown| {
        let help = format!("{}; write `{{{{{unknown}}}}}` for the text itself", suggest(&unknown, variables));
        report.add(at, format!("there is no variable `{unknown}`"), help);
        Template::default()
    })
}

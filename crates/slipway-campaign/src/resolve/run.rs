//! The program of a point.

use std::collections::BTreeMap;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::{Report, Span};
use slipway_document::suggest;

use super::variable::value;
use crate::file::{Command, Scalar};
use crate::model::Run;
use crate::template::Template;

/// Words that only a shell understands.
const OF_SHELLS: [&str; 8] = ["|", "||", "&&", "&", ";", ">", ">>", "<"];

pub(super) fn run(
    command: &Spanned<Command>,
    env: &Named<Scalar>,
    variables: &[String],
    report: &mut Report,
) -> Option<Run> {
    let words = words(command, report)?;
    let command = words.iter().map(|word| template(word, command.at, variables, report)).collect();
    Some(Run { command, env: environment(env, variables, report) })
}

/// The words of a command; at least one, and none that an argument vector cannot hold.
fn words(command: &Spanned<Command>, report: &mut Report) -> Option<Vec<String>> {
    let words = match &command.value {
        Command::Words(words) => words.clone(),
        Command::Line(line) => shell_words::split(line)
            .inspect_err(|_| {
                report.add(command.at, "a quote is not closed", "close it, or write the command as a list of words");
            })
            .ok()?,
    };
    if words.first().is_none_or(String::is_empty) {
        report.add(command.at, "a command without a program", "write the program's name as its first word");
        return None;
    }
    if words.iter().any(|word| word.contains('\0')) {
        report.add(command.at, "a command cannot hold a zero byte", "take it out");
    }
    let of_shell = words.iter().find(|word| OF_SHELLS.contains(&word.as_str()) || ends_a_command(word));
    if let (Command::Line(_), Some(word)) = (&command.value, of_shell) {
        report.add(
            command.at,
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
fn environment(env: &Named<Scalar>, variables: &[String], report: &mut Report) -> BTreeMap<String, Template> {
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

fn template(text: &str, at: Span, variables: &[String], report: &mut Report) -> Template {
    Template::read(text, variables).unwrap_or_else(|unknown| {
        let help = format!("{}; write `{{{{{unknown}}}}}` for the text itself", suggest(&unknown, variables));
        report.add(at, format!("there is no variable `{unknown}`"), help);
        Template::default()
    })
}

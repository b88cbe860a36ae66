//! Programs and their environment.

use std::collections::BTreeMap;

use crate::de::{Named, Spanned};
use crate::errors::Report;
use crate::file::{Command, Value};

/// The words of a command; at least one, and none that an argument vector cannot hold.
pub(super) fn words(command: &Spanned<Command>, report: &mut Report) -> Option<Vec<String>> {
    let words = match &command.value {
        Command::Words(words) => words.clone(),
        Command::Line(line) => shell_words::split(line).unwrap_or_else(|_| {
            report.add(command.at, "a quote is not closed", "close it, or write the command as a list of words");
            vec![line.clone()]
        }),
    };
    if words.first().is_none_or(String::is_empty) {
        report.add(command.at, "a command without a program", "write the program's name as its first word");
        return None;
    }
    if words.iter().any(|word| word.contains('\0')) {
        report.add(command.at, "a command cannot hold a zero byte", "take it out");
        return None;
    }
    Some(words)
}

/// Environment variables (environ(7)).
pub(super) fn env(written: &Named<Value>, report: &mut Report) -> BTreeMap<String, String> {
    for entry in &written.0 {
        let name = &entry.name;
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            report.add(name.at, "this is no name of a variable", "write a name without `=`");
        }
        if entry.value.0.contains('\0') {
            report.add(name.at, "a variable cannot hold a zero byte", "take it out");
        }
    }
    written.0.iter().map(|entry| (entry.name.value.clone(), entry.value.0.clone())).collect()
}

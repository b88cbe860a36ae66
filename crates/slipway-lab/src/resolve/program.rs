//! Programs, their environment, and the kernel settings that they meet.

use std::collections::BTreeMap;

use slipway_document::de::{Named, Spanned};
use slipway_document::errors::Report;

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

/// Settings outside of `net.` that an IPC namespace has for itself (`ipc_namespaces(7)`).
const OF_IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// Kernel settings of a host's network, and of its nodes'.
pub(super) fn tune(written: &Named<Value>, report: &mut Report) -> BTreeMap<String, String> {
    if let Some(entry) = written.0.iter().find(|entry| OF_IPC.contains(&entry.name.value.as_str())) {
        let help = "write it among the `sysctls` of nodes";
        report.add(entry.name.at, format!("`{}` is each node's own", entry.name.value), help);
    }
    sysctls(written, report)
}

/// Kernel settings, none of which reaches beyond the node.
pub(super) fn sysctls(written: &Named<Value>, report: &mut Report) -> BTreeMap<String, String> {
    for entry in &written.0 {
        let name = &entry.name;
        let letters = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.value.chars().all(letters) || name.value.contains("..") || name.value.ends_with('.') {
            let help = "write it as sysctl(8) does, such as `net.ipv4.tcp_congestion_control`";
            report.add(name.at, "this is no name of a kernel setting", help);
        } else if !name.value.starts_with("net.") && !OF_IPC.contains(&name.value.as_str()) {
            report.add(
                name.at,
                format!("`{}` is the whole machine's", name.value),
                "a node has settings of its own below `net.`, and kernel.msg*, kernel.sem, kernel.shm*",
            );
        }
        if entry.value.0.contains(['\0', '\n']) {
            report.add(name.at, "a kernel setting is one line", "take the line break out");
        }
    }
    written.0.iter().map(|entry| (entry.name.value.clone(), entry.value.0.clone())).collect()
}

//! Names of hosts and labs.

use slipway_document::de::Spanned;
use slipway_document::errors::Report;
use slipway_document::names::{LONGEST, check};

/// Reports a name that cannot be a host's: programs take `12` or `0x7f` for an IPv4 address (`inet_aton(3)`).
pub(crate) fn check_host(name: &Spanned<String>, report: &mut Report) {
    if name.value.starts_with(|c: char| c.is_ascii_digit()) {
        report.add(name.at, "a host name that starts with a digit reads as an address", "begin it with a letter");
    } else if name.value == "localhost" {
        report.add(name.at, "`localhost` is every node's name for itself", "choose another name");
    } else {
        check(name, report);
    }
}

/// A lab's name from its file's: `labs/My Lab.yaml` gives `my-lab`.
pub(crate) fn from_file(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.split('.').next().unwrap_or(base).to_lowercase();
    let safe: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(LONGEST).collect();
    match safe.trim_matches('-') {
        "" => "lab".to_owned(),
        name => name.to_owned(),
    }
}

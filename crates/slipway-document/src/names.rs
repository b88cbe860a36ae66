//! Names that a file gives to things.

use crate::de::Spanned;
use crate::errors::Report;

/// Longest name, in characters. With a number of five digits behind it, it still fits a host name (63, RFC 1035).
pub const LONGEST: usize = 32;

/// Reports a name that is not `[a-z0-9][a-z0-9-]*` of at most 32 characters.
pub fn check(name: &Spanned<String>, report: &mut Report) {
    let text = name.value.as_str();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(plain) || text.starts_with('-') {
        let help = format!("write at most {LONGEST} of a-z, 0-9 and `-`, not starting with `-`");
        report.add(name.at, "this name cannot be used", help);
    }
}

/// A name from a file's: `labs/My Lab.yaml` gives `my-lab`; `otherwise` where nothing of it is left.
#[must_use]
pub fn from_file(file: &str, otherwise: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.split('.').next().unwrap_or(base).to_lowercase();
    let safe: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(LONGEST).collect();
    match safe.trim_matches('-') {
        "" => otherwise.to_owned(),
        name => name.to_owned(),
    }
}

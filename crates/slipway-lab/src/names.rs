//! Names, and what was probably meant by one that does not exist.

use crate::de::Spanned;
use crate::errors::Report;

/// Longest name. With a number of five digits behind it, it still fits a host name (63, RFC 1035).
const LONGEST: usize = 32;

/// Reports a name that is not `[a-z0-9][a-z0-9-]*` of at most 32 characters.
pub(crate) fn check(name: &Spanned<String>, report: &mut Report) {
    let text = name.value.as_str();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(plain) || text.starts_with('-') {
        let help = format!("write at most {LONGEST} of a-z, 0-9 and `-`, not starting with `-`");
        report.add(name.at, "this name cannot be used", help);
    }
}

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

/// The help for an unknown word: the known word nearest to it, then all of them.
#[must_use]
pub fn suggest<S: AsRef<str>>(unknown: &str, known: &[S]) -> String {
    let known = known.iter().map(AsRef::as_ref);
    let list = match known.clone().take(24).collect::<Vec<_>>() {
        few if few.len() < 24 => few.join(", "),
        many => format!("{}, …", many[..12].join(", ")),
    };
    match closest(unknown, known) {
        Some(word) => format!("did you mean `{word}`? There are: {list}"),
        None if list.is_empty() => "leave it out: none are declared".to_owned(),
        None => format!("there are: {list}"),
    }
}

/// Words of other programs, each with Slipway's own.
const OTHER_WORDS: [(&str, &str); 14] = [
    ("latency", "delay"),
    ("bandwidth", "rate"),
    ("bw", "rate"),
    ("throughput", "rate"),
    ("speed", "rate"),
    ("lag", "delay"),
    ("drop", "loss"),
    ("packet_loss", "loss"),
    ("corruption", "corrupt"),
    ("duplication", "duplicate"),
    ("reordering", "reorder"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("cores", "cpu"),
];

/// The known word that means the same, or is within a third of the letters changed, added, left out or swapped.
#[must_use]
pub fn closest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.collect();
    let same = OTHER_WORDS.iter().find(|(other, _)| other.eq_ignore_ascii_case(unknown));
    if let Some(word) = same.and_then(|(_, word)| known.iter().find(|known| *known == word)) {
        return Some(*word);
    }
    // Nothing so long is a misspelt name, and comparing takes length times length.
    if unknown.len() > 2 * LONGEST {
        return None;
    }
    let unknown = unknown.to_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&unknown, word), word))
        .filter(|(distance, word)| {
            let length = word.len().max(unknown.len());
            *distance <= (length / 3).max(1) && *distance < length
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

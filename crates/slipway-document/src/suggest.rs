//! The known word that was probably meant by one that is not known.

/// Longest word that may be a misspelt one, in bytes. Comparing takes length times length.
const LONGEST: usize = 64;

/// The help for an unknown word: the known word nearest to it, then all of them.
#[must_use]
pub fn suggest<S: AsRef<str>>(unknown: &str, known: &[S]) -> String {
    let known = known.iter().map(AsRef::as_ref);
    let list = match known.clone().take(27).collect::<Vec<_>>() {
        few if few.len() < 27 => few.join(", "),
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
    if unknown.len() > LONGEST {
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

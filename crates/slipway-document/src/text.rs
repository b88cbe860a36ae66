//! Text that others wrote, made fit for a terminal.

use std::fmt::Write as _;

/// Whether a character steers a terminal or is not seen on it. These are control characters, tabs and ends of lines
/// among them, characters that change the direction of others, and characters without width. Separators that not every
/// terminal takes for the end of a line count too.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The text with what would be hidden written out, as `\u{202e}`. Tabs and ends of lines stay.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !matches!(c, '\n' | '\t') {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON with what would be hidden written as `\u202e`: the same value to whoever reads it.
#[must_use]
pub fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Names one after the other; of many, the first few.
#[must_use]
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    match names.len().checked_sub(SHOWN).filter(|&more| more > 1) {
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
        None => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_hidden_is_written_out() {
        assert_eq!(printable("a\u{202e}b\tc\nd"), "a\\u{202e}b\tc\nd");
        assert_eq!(printable("\u{1b}[2J\u{9b}\r\u{200b}é漢"), "\\u{1b}[2J\\u{9b}\\u{d}\\u{200b}é漢");
    }

    proptest! {
        #[test]
        fn nothing_hidden_passes(text in any::<String>(), bad in proptest::sample::select(
            "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}\u{200b}\u{feff}\u{85}\u{9b}\u{7f}\u{1b}\r\0\u{e0041}"
                .chars().collect::<Vec<_>>())) {
            let text = format!("{text}{bad}{text}");
            let shown = printable(&text);
            prop_assert!(shown.chars().all(|c| !is_hidden(c) || matches!(c, '\n' | '\t')));
            let json = serde_json::to_string(&text).expect("a string");
            let shown = printable_json(&json);
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).expect("still JSON"), text);
        }
    }

    #[test]
    fn long_lists_are_cut_short() {
        let names = |count: usize| (1..=count).map(|n| format!("n{n}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(2)), "n1, n2");
        assert!(listed(&names(11)).ends_with("n10, n11"), "one more is not worth the words");
        assert!(listed(&names(300)).ends_with("n10 and 290 more"));
    }
}

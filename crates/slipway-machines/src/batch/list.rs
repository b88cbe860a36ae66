//! Compressed lists, as Slurm writes them: of hosts, such as `n[01-04,7],login` (`scontrol(1)`, "show hostnames"), and of
//! counts, such as `2(x3),1` (`sbatch(1)`, `SLURM_JOB_CPUS_PER_NODE`).

use super::BatchError;

/// Most hosts of a list: ten times as many as a lab has machines.
pub const MOST: usize = 10_000;
/// Most bytes of a name (RFC 1035, 2.3.4).
const LONGEST: usize = 255;

/// The hosts of a list, in its order.
///
/// # Errors
/// When it is no list, or has more than [`MOST`] hosts.
pub fn hosts(text: &str) -> Result<Vec<String>, BatchError> {
    let wrong = |reason| BatchError::list(text, reason);
    let mut hosts = Vec::new();
    for word in split(text).map_err(wrong)? {
        hosts.extend(expand(word, MOST - hosts.len()).map_err(wrong)?);
    }
    Ok(hosts)
}

/// Splits at commas that stand in no brackets.
pub(super) fn split(text: &str) -> Result<Vec<&str>, &'static str> {
    let (mut words, mut begin, mut within) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match (c, within) {
            ('[', true) => return Err("brackets within brackets"),
            ('[', false) => within = true,
            (']', false) => return Err("a bracket closes that was not opened"),
            (']', true) => within = false,
            (',', false) => {
                words.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if within {
        return Err("a bracket is not closed");
    }
    words.push(&text[begin..]);
    Ok(words)
}

/// The hosts that one word stands for: `rack[1-2]n[01-04]`.
fn expand(word: &str, room: usize) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while !rest.is_empty() {
        let (plain, after) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
        if plain.bytes().any(|byte| !byte.is_ascii_alphanumeric() && !b"-_.".contains(&byte)) {
            return Err("names have letters, digits, `-`, `_` and `.`");
        }
        let (numbers, after) = match after.strip_prefix('[') {
            None => (vec![String::new()], after),
            Some(after) => {
                let (ranges, after) = after.split_once(']').ok_or("a bracket is not closed")?;
                (numbers(ranges, room / names.len())?, after)
            }
        };
        if names.len().saturating_mul(numbers.len()) > room {
            return Err("it has too many machines");
        }
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{plain}{number}"))).collect();
        if names.first().is_some_and(|name| name.len() > LONGEST) {
            return Err("a name is too long");
        }
        rest = after;
    }
    if names.first().is_none_or(String::is_empty) {
        return Err("a name is empty");
    }
    // ssh and srun take a word that begins with a dash for an option.
    if names[0].starts_with('-') {
        return Err("a name begins with a dash");
    }
    if names.len() > room {
        return Err("it has too many machines");
    }
    Ok(names)
}

/// The numbers of `01-04,7`, as they are written.
fn numbers(ranges: &str, room: usize) -> Result<Vec<String>, &'static str> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (number(first)?, number(last)?);
        if high < low {
            return Err("a range goes down");
        }
        if high - low >= (room - numbers.len()) as u64 {
            return Err("it has too many machines");
        }
        // As wide as the first: `08-10`.
        numbers.extend((low..=high).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(numbers)
}

fn number(text: &str) -> Result<u64, &'static str> {
    let is_number = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().map_err(|_| "a range is no number") } else { Err("a range is no number") }
}

/// The counts of `2(x3),1`: 2, 2, 2, 1.
///
/// # Errors
/// When it is no list, or has more than [`MOST`] counts.
pub fn counts(text: &str) -> Result<Vec<u32>, BatchError> {
    let wrong = |reason| BatchError::list(text, reason);
    let mut counts = Vec::new();
    for word in text.split(',') {
        let (count, times) = match word.split_once("(x") {
            None => (word, "1"),
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(|| wrong("a bracket is not closed"))?),
        };
        let count = number(count).ok().and_then(|count| u32::try_from(count).ok());
        let count = count.ok_or_else(|| wrong("a count is no number"))?;
        let times = number(times).ok().and_then(|times| usize::try_from(times).ok());
        let times = times.ok_or_else(|| wrong("a count is no number"))?;
        if times > MOST - counts.len() {
            return Err(wrong("it has too many machines"));
        }
        counts.extend(std::iter::repeat_n(count, times));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        let all = |text| hosts(text).unwrap().join(" ");
        assert_eq!(all("n[01-04,7],login"), "n01 n02 n03 n04 n7 login");
        assert_eq!(
            all("rack[1-2]n[08-10]-ib"),
            "rack1n08-ib rack1n09-ib rack1n10-ib rack2n08-ib rack2n09-ib rack2n10-ib"
        );
        assert_eq!(all("a.example,b_2"), "a.example b_2");
        assert_eq!(counts("2(x3),1").unwrap(), [2, 2, 2, 1]);
    }

    #[test]
    fn wrong_lists_say_why() {
        let cases = [
            ("", "a name is empty"),
            ("a,", "a name is empty"),
            ("n[1-", "a bracket is not closed"),
            ("n[1-[2]]", "brackets within brackets"),
            ("n]", "a bracket closes that was not opened"),
            ("n[3-1]", "a range goes down"),
            ("n[]", "a range is no number"),
            ("n[1-99999999999]", "it has too many machines"),
            ("n[1-1000]m[1-1000]", "it has too many machines"),
            ("n[1-9999],m[1-2]", "it has too many machines"),
            ("-oProxyCommand=x", "names have letters, digits, `-`, `_` and `.`"),
            ("-o", "a name begins with a dash"),
            ("a b", "names have letters, digits, `-`, `_` and `.`"),
        ];
        for (text, why) in cases {
            match hosts(text) {
                Err(BatchError::List { reason, .. }) => assert_eq!(reason, why, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["", "2(x3", "x", "1,,2", "2(x99999999999)", "-1"] {
            assert!(counts(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "[a-c0-9,\\[\\]x()-]{0,40}|.{0,40}") {
            if let Ok(hosts) = hosts(&text) {
                prop_assert!((1..=MOST).contains(&hosts.len()));
                prop_assert!(hosts.iter().all(|host| !host.is_empty() && !host.starts_with('-') && !host.contains(['[', ',', ' '])));
                prop_assert_eq!(super::hosts(&hosts.join(",")).unwrap(), hosts, "written out, it means the same");
            }
            if let Ok(counts) = counts(&text) {
                prop_assert!((0..=MOST).contains(&counts.len()));
            }
        }

        #[test]
        fn a_range_is_all_between_its_ends(low in 0u64..2000, more in 0u64..2000, width in 1usize..6) {
            let names = hosts(&format!("n[{low:0width$}-{:0width$}]", low + more)).unwrap();
            let all: Vec<String> = (low..=low + more).map(|number| format!("n{number:0width$}")).collect();
            prop_assert_eq!(names, all);
        }
    }
}

//! Trace files: what happened somewhere else, or shall happen here. Pure: from text to points in time, or to the line that
//! is wrong.

use serde_json::Value;
use slipway_document::units::Seconds;

use super::model::{Format, TraceFile};
use super::time::{MOST_EVENTS, nanoseconds};

/// A full Ethernet frame of 1500 bytes, as [`rate`](crate::condition::LinkConditions::rate) counts it: one delivery of
/// a Mahimahi trace. (There it is 1504 bytes: 1500 and the header of a TUN device.)
const DELIVERY: u64 = 1514;

/// A value from a moment on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Nanoseconds since the trace began.
    pub at: u64,
    /// The line of the file, from 1.
    pub line: usize,
    /// As the key that it is for is written.
    pub value: String,
}

/// The reason why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct TraceError {
    /// From 1.
    pub line: usize,
    /// The fault, and a remedy.
    pub message: String,
}

/// Ends the reading at a line.
fn refuse<T>(line: usize, message: impl Into<String>) -> Result<T, TraceError> {
    Err(TraceError { line, message: message.into() })
}

/// A trace that was read.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The points, in order of time.
    pub(crate) points: Vec<Point>,
    /// After so many nanoseconds it begins anew. `None`: it does not.
    pub(crate) period: Option<u64>,
}

impl Recording {
    pub(crate) fn read(file: &TraceFile, text: &str) -> Result<Self, TraceError> {
        let (mut points, period) = match file.format {
            Format::Distem => (distem(text, &file.of)?, None),
            Format::Csv => (csv(text, &file.of)?, None),
            Format::Mahimahi => {
                let (points, period) = mahimahi(text, file.window)?;
                // A trace of one value needs no second round.
                (points.clone(), (points.len() > 1).then_some(period))
            }
        };
        if let Some(unit) = &file.unit {
            for point in points.iter_mut().filter(|point| is_number(&point.value)) {
                point.value.push_str(unit);
            }
        }
        points.sort_by_key(|point| point.at);
        Ok(Self { points, period })
    }
}

/// An event trace of Distem: lines of a date in seconds and a value. Its REST interface takes JSON instead, an object
/// of dates to values or a list of `[date, value]`. Values without a unit are in Distem's: megabytes per second for
/// `rate` (it writes `mbps`, which is that in `tc(8)`) and milliseconds for `delay`. For `cpu` they are a share up to
/// 1, and megahertz beyond.
///
/// Source: Distem 1.x, `lib/distem/events/event.rb`, `event_trace_string_add` in `lib/distem/daemon/distemcoordinator.rb`.
///
/// # Errors
/// The first line that is something else.
pub fn distem(text: &str, key: &str) -> Result<Vec<Point>, TraceError> {
    let pairs = if text.trim_start().starts_with(['{', '[']) { json_pairs(text)? } else { line_pairs(text)? };
    let point = |(line, date, value): (usize, String, String)| {
        let value = distem_value(&value, key).map_err(|message| TraceError { line, message })?;
        Ok(Point { at: time(&date, line)?, line, value })
    };
    pairs.into_iter().map(point).collect()
}

type Pair = (usize, String, String);

fn line_pairs(text: &str) -> Result<Vec<Pair>, TraceError> {
    let mut pairs = Vec::new();
    for (line, words) in lines(text) {
        let mut words = words.split_whitespace();
        let (Some(date), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return refuse(line, "not a date and a value; write a line such as `12.5 up`");
        };
        pairs.push((line, date.to_owned(), value.to_owned()));
        check_count(pairs.len(), line)?;
    }
    Ok(pairs)
}

fn json_pairs(text: &str) -> Result<Vec<Pair>, TraceError> {
    let word = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let pair = |date: Option<String>, value: Option<&Value>| match (date, value.and_then(word)) {
        (Some(date), Some(value)) => Ok((1, date, value)),
        _ => refuse(1, "an entry is not a date and a value; write `{\"12.5\": \"up\"}` or `[[12.5, \"up\"]]`"),
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(entries)) => {
            entries.iter().map(|(date, value)| pair(Some(date.clone()), Some(value))).collect()
        }
        Ok(Value::Array(entries)) => {
            let parts = |entry: &Value| match entry.as_array().map(Vec::as_slice) {
                Some([date, value]) => pair(word(date), Some(value)),
                _ => pair(None, None),
            };
            entries.iter().map(parts).collect()
        }
        Ok(_) => refuse(1, "neither an object nor a list"),
        Err(error) => refuse(error.line().max(1), format!("not JSON: {error}")),
    }
}

/// A value of Distem's as one of ours.
fn distem_value(text: &str, key: &str) -> Result<String, String> {
    let number: Option<f64> = text.parse().ok().filter(|_| is_number(text));
    Ok(match (key, number) {
        ("rate", Some(number)) => bits(number * 8e6),
        ("rate", None) => match rate_of_tc(text) {
            Some(rate) => bits(rate),
            None => return Err(format!("`{text}` is no rate of tc(8); write one such as `100mbit` or `10mbps`")),
        },
        ("delay", Some(number)) => format!("{number}ms"),
        ("cpu", Some(share)) if share <= 1.0 => format!("{}%", share * 100.0),
        ("cpu", Some(megahertz)) => format!("{megahertz} MHz"),
        _ => text.to_owned(),
    })
}

/// Source: `tc(8)`, "RATES": a bare number is bits per second, `bps` are bytes.
fn rate_of_tc(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("", 1.0),
        ("bit", 1.0),
        ("kbit", 1e3),
        ("mbit", 1e6),
        ("gbit", 1e9),
        ("tbit", 1e12),
        ("bps", 8.0),
        ("kbps", 8e3),
        ("mbps", 8e6),
        ("gbps", 8e9),
        ("tbps", 8e12),
    ];
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, scale) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    is_number(number).then(|| number.parse::<f64>().ok())?.map(|number| number * scale)
}

fn bits(rate: f64) -> String {
    format!("{:.0}bit", rate.max(1.0))
}

/// Comma-separated values below a header. The column `time` (or `date`) holds times, in seconds where they have no unit; the
/// column named like the key, or the only other one, the values. An empty cell changes nothing.
///
/// # Errors
/// The first line that is something else.
pub fn csv(text: &str, key: &str) -> Result<Vec<Point>, TraceError> {
    let mut lines = lines(text);
    let Some((line, header)) = lines.next() else {
        return refuse(1, format!("the file is empty; write a header such as `time,{key}`"));
    };
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let Some(times) = names.iter().position(|name| matches!(*name, "time" | "date")) else {
        return refuse(line, format!("no column is called `time`; write a header such as `time,{key}`"));
    };
    let only_other = (names.len() == 2).then_some(1 - times.min(1));
    let Some(values) = names.iter().position(|name| *name == key).or(only_other) else {
        return refuse(line, format!("no column is called `{key}`; write a header such as `time,{key}`"));
    };
    let mut points = Vec::new();
    for (line, row) in lines {
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        if cells.len() != names.len() {
            return refuse(line, format!("{} cells below a header of {}", cells.len(), names.len()));
        }
        if !cells[values].is_empty() {
            points.push(Point { at: time(cells[times], line)?, line, value: cells[values].to_owned() });
        }
        check_count(points.len(), line)?;
    }
    Ok(points)
}

/// A packet-delivery trace of Mahimahi: a line for each full packet that may pass, with its time in milliseconds. The rate
/// over each `window`; one in which nothing passes is joined with those after it until something does, so that no byte is
/// lost or won. With the points, the time in nanoseconds after which the trace begins anew: its last line's.
///
/// Source: `mm-link(1)`.
///
/// # Errors
/// The first line that is something else.
pub fn mahimahi(text: &str, window: Seconds) -> Result<(Vec<Point>, u64), TraceError> {
    const MILLISECOND: u64 = 1_000_000;
    let window = nanoseconds(Some(window.0)).filter(|window| *window >= MILLISECOND);
    let Some(window) = window else { return refuse(1, "a window of less than a millisecond; write `window: 100ms`") };
    let mut deliveries: Vec<(u64, usize)> = Vec::new();
    for (line, text) in lines(text) {
        let time =
            text.parse::<u64>().ok().filter(|time| text.starts_with(|c: char| c.is_ascii_digit()) && *time < 1 << 40);
        let Some(time) = time.map(|time| time * MILLISECOND) else {
            return refuse(line, "not a time in whole milliseconds; write a number such as `12`");
        };
        if deliveries.last().is_some_and(|(before, _)| *before > time) {
            return refuse(line, "earlier than the line above; sort the file");
        }
        deliveries.push((time, line));
    }
    let Some((period, line)) = deliveries.last().copied() else { return refuse(1, "no packet passes; write a time") };
    if period == 0 {
        return refuse(line, "the trace is over at 0 ms; its last line must be later");
    }
    let mut points: Vec<Point> = Vec::new();
    let (mut begin, mut next) = (0, 0);
    while let Some((time, line)) = deliveries.get(next).copied() {
        // A delivery at a window's end is its last.
        let end = (begin + (time - begin).div_ceil(window).max(1) * window).min(period);
        let passed = deliveries[next..].partition_point(|(time, _)| *time <= end);
        let bits = u128::from(DELIVERY * 8) * passed as u128 * 1_000_000_000;
        let value = format!("{}bit", (bits / u128::from(end - begin)).max(1));
        if points.last().is_none_or(|before| before.value != value) {
            points.push(Point { at: begin, line, value });
        }
        check_count(points.len(), line)?;
        (begin, next) = (end, next + passed);
    }
    Ok((points, period))
}

/// One duration a line, in seconds where it has no unit.
pub(crate) fn durations(text: &str) -> Result<Vec<f64>, TraceError> {
    let mut durations = Vec::new();
    for (line, text) in lines(text) {
        durations.push(seconds(text).map_err(|message| TraceError { line, message })?);
        check_count(durations.len(), line)?;
    }
    if durations.is_empty() {
        refuse(1, "there is no duration; write one a line, such as `1.5s`")
    } else {
        Ok(durations)
    }
}

/// Lines that say something, without comments (`#`), with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().zip(1..).map(|(line, number)| (number, line.split('#').next().unwrap_or_default().trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

fn check_count(count: usize, line: usize) -> Result<(), TraceError> {
    if count > MOST_EVENTS { refuse(line, format!("more than {MOST_EVENTS} events; write fewer")) } else { Ok(()) }
}

fn time(text: &str, line: usize) -> Result<u64, TraceError> {
    let seconds = seconds(text).map_err(|message| TraceError { line, message })?;
    let Some(time) = nanoseconds(Some(seconds)) else {
        return refuse(line, format!("`{text}` is later than any event"));
    };
    Ok(time)
}

/// A time; a bare number is in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let with_unit = if is_number(text) { format!("{text}s") } else { text.to_owned() };
    with_unit.parse().map(|Seconds(seconds)| seconds).map_err(|error| error.to_string())
}

fn is_number(text: &str) -> bool {
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    digit(text) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(points: &[Point]) -> Vec<(u64, &str)> {
        points.iter().map(|point| (point.at / 1_000_000, point.value.as_str())).collect()
    }

    #[test]
    fn distem_lines_and_json_say_the_same() {
        let expected = [(1500, "down"), (3000, "up")];
        for text in [
            "1.5 down\n3 up\n",
            "  1.5\tdown\r\n\n3.0 up",
            "{\"1.5\": \"down\", \"3\": \"up\"}",
            "[[1.5, \"down\"], [\"3\", \"up\"]]",
        ] {
            assert_eq!(values(&distem(text, "state").unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn distem_values_have_distems_units() {
        let read = |value: &str, key| distem(&format!("1 {value}"), key).map(|points| points[0].value.clone());
        assert_eq!(read("10", "rate").unwrap(), "80000000bit");
        assert_eq!(read("10mbps", "rate").unwrap(), "80000000bit");
        assert_eq!(read("1.5Gbit", "rate").unwrap(), "1500000000bit");
        assert_eq!(read("12.5", "delay").unwrap(), "12.5ms");
        assert_eq!(read("20ms", "delay").unwrap(), "20ms");
        assert_eq!(read("0.5", "cpu").unwrap(), "50%");
        assert_eq!(read("1", "cpu").unwrap(), "100%");
        assert_eq!(read("1200", "cpu").unwrap(), "1200 MHz");
        assert!(read("fast", "rate").unwrap_err().message.contains("no rate of tc(8)"));
    }

    #[test]
    fn wrong_lines_are_named() {
        let line = |wrong: Result<Vec<Point>, TraceError>| wrong.unwrap_err().line;
        assert_eq!(line(distem("1 up\n# a comment\n2\n", "state")), 3);
        assert_eq!(line(distem("1 up\nsoon down\n", "state")), 2);
        assert_eq!(line(distem("1 up now\n", "state")), 1);
        assert_eq!(line(distem("{\"1\":\n", "state")), 2);
        assert_eq!(line(distem("[[1]]", "state")), 1);
        assert_eq!(line(csv("", "rate")), 1);
        assert_eq!(line(csv("when,rate\n1,2", "rate")), 1);
        assert_eq!(line(csv("time,delay,loss\n1,2,3", "rate")), 1);
        assert_eq!(line(csv("time,rate\n1,2\n\n3\n", "rate")), 4);
        assert_eq!(line(csv("time,rate\n-1,2\n", "rate")), 2);
        let line = |text| mahimahi(text, Seconds(0.1)).unwrap_err().line;
        assert_eq!(line("1\n2\nx\n"), 3);
        assert_eq!(line("2\n1\n"), 2);
        assert_eq!(line("0\n0\n"), 2);
        assert_eq!(line(""), 1);
        assert_eq!(line("1.5"), 1);
        assert_eq!(durations("1\n2 days\n").unwrap_err().line, 2);
    }

    #[test]
    fn csv_columns_are_found_by_name() {
        let text = "delay, time ,loss\n20ms,0,1%\n,1500ms,2%\n";
        assert_eq!(values(&csv(text, "delay").unwrap()), [(0, "20ms")]);
        assert_eq!(values(&csv(text, "loss").unwrap()), [(0, "1%"), (1500, "2%")]);
        assert_eq!(values(&csv("date,whatever\n2,up", "state").unwrap()), [(2000, "up")]);
        assert_eq!(values(&csv("whatever,time\nup,2", "state").unwrap()), [(2000, "up")]);
    }

    /// `mm-link(1)`: a file of "1" is 12 Mbit/s, of packets of 1500 bytes; 12.112 with their Ethernet header.
    #[test]
    fn a_steady_link() {
        let (points, period) = mahimahi("1\n", Seconds(0.1)).unwrap();
        assert_eq!((values(&points), period), (vec![(0, "12112000bit")], 1_000_000));
    }

    #[test]
    fn silence_is_joined_with_what_follows() {
        let (points, period) = mahimahi("100\n100\n350\n", Seconds(0.1)).unwrap();
        assert_eq!(period, 350_000_000);
        assert_eq!(values(&points), [(0, "242240bit"), (100, "48448bit")]);
    }

    proptest! {
        /// Nothing is lost or won: rate times time is what was delivered, but for a bit a window that rounding takes.
        #[test]
        fn every_delivery_is_counted(times in prop::collection::vec(0u64..3000, 1..200), window in 1u32..500) {
            let mut times = times;
            times.push(3000);
            times.sort_unstable();
            let text = times.iter().map(u64::to_string).collect::<Vec<_>>().join("\n");
            let (points, period) = mahimahi(&text, Seconds(f64::from(window) / 1e3)).unwrap();
            let ends = points.iter().skip(1).map(|point| point.at).chain([period]);
            let bits: f64 = points.iter().zip(ends).map(|(point, end)| {
                point.value.trim_end_matches("bit").parse::<f64>().unwrap() * (end - point.at) as f64 / 1e9
            }).sum();
            let delivered = (times.len() as u64 * DELIVERY * 8) as f64;
            prop_assert!((bits - delivered).abs() <= 4.0, "{bits} of {delivered}");
            prop_assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
        }

        #[test]
        fn any_text_is_a_trace_or_an_error(text in "([0-9.,:{}\\[\\]\"#a-z \n-]{0,60}|.{0,60})") {
            for key in ["state", "rate", "delay", "cpu"] {
                let _ = (distem(&text, key), csv(&text, key));
            }
            let _ = (mahimahi(&text, Seconds(0.1)), durations(&text));
        }
    }
}

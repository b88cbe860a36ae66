//! ping(8): round trips of one small packet at a time.

use std::net::IpAddr;

use super::{Output, ReadError, Sample, Step, argv, only};

const PROGRAM: &str = "ping";

/// ICMP round trip times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// Echo requests (`-c`).
    pub count: u32,
    /// Milliseconds between requests (`-i`). Below 2 ms only root may.
    pub interval_ms: u32,
}

impl Default for Ping {
    /// A hundred, 10 ms apart: one second a round.
    fn default() -> Self {
        Self { count: 100, interval_ms: 10 }
    }
}

impl Ping {
    /// The kernel answers: there is no server to start.
    pub(super) fn steps(&self, server: IpAddr) -> Vec<Step> {
        let (count, server) = (self.count.to_string(), server.to_string());
        let interval = (f64::from(self.interval_ms) / 1000.0).to_string();
        vec![Step { server: None, client: argv(&[PROGRAM, "-n", "-q", "-c", &count, "-i", &interval, &server]) }]
    }

    #[allow(clippy::unused_self)] // one shape for all probes
    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(PROGRAM, outputs)?;
        let text = String::from_utf8_lossy(&output.succeeded(PROGRAM)?.stdout);
        let missing = |what: &str| ReadError::Missing { program: PROGRAM.into(), what: what.into() };
        let loss = text.lines().find_map(loss).ok_or_else(|| missing("a line like “0% packet loss”"))?;
        let times = text.lines().find_map(times).ok_or_else(|| missing("a line like “rtt min/avg/max/mdev = …”"))?;
        let sample = |figure: &str, unit: &str, headline: bool, value: f64| Sample {
            figure: figure.into(),
            unit: unit.into(),
            higher_is_better: false,
            headline,
            value,
            curve: Vec::new(),
        };
        let mut samples = vec![
            sample("ping round trip, average", "ms", true, times.average),
            sample("ping round trip, least", "ms", false, times.least),
            sample("ping round trip, greatest", "ms", false, times.greatest),
        ];
        samples.extend(times.deviation.map(|value| sample("ping round trip, deviation", "ms", false, value)));
        samples.push(sample("ping loss", "%", false, loss));
        Ok(samples)
    }
}

struct Times {
    least: f64,
    average: f64,
    greatest: f64,
    /// `BusyBox`'s ping does not say it.
    deviation: Option<f64>,
}

/// `rtt min/avg/max/mdev = 0.005/0.042/0.467/0.044 ms` (iputils; with `, pipe 3` where several were under way at once),
/// `round-trip min/avg/max = 0.1/0.2/0.3 ms` (`BusyBox`).
fn times(line: &str) -> Option<Times> {
    let (_, values) = line.split_once("min/avg/max").and_then(|(_, rest)| rest.split_once("= "))?;
    let (values, _) = values.split_once(" ms")?;
    let values: Option<Vec<f64>> = values.split('/').map(finite).collect();
    match values?[..] {
        [least, average, greatest] => Some(Times { least, average, greatest, deviation: None }),
        [least, average, greatest, deviation] => Some(Times { least, average, greatest, deviation: Some(deviation) }),
        _ => None,
    }
}

/// `100 packets transmitted, 100 received, 0% packet loss, time 1596ms`
fn loss(line: &str) -> Option<f64> {
    let (before, _) = line.split_once("% packet loss")?;
    finite(before.rsplit([' ', ',']).next()?)
}

fn finite(word: &str) -> Option<f64> {
    word.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const RUN: &[u8] = include_bytes!("../../tests/fixtures/ping.txt");
    const NO_REPLY: &[u8] = include_bytes!("../../tests/fixtures/ping-no-reply.txt");

    #[test]
    fn iputils_is_read() {
        let samples = Ping::default().read(&[output(RUN, b"", 0)]).unwrap();
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        assert_eq!(values, [0.042, 0.005, 0.467, 0.044, 0.0]);
        assert_eq!(samples.iter().filter(|sample| sample.headline).count(), 1);
    }

    #[test]
    fn a_long_way_with_several_under_way_is_read() {
        let text = b"5 packets transmitted, 5 received, 0% packet loss, time 40ms\nrtt min/avg/max/mdev = 20.1/20.2/20.3/0.1 ms, pipe 3\n";
        let values: Vec<f64> =
            Ping::default().read(&[output(text, b"", 0)]).unwrap().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [20.2, 20.1, 20.3, 0.1, 0.0]);
    }

    #[test]
    fn busybox_is_read() {
        let text =
            b"3 packets transmitted, 2 packets received, 33% packet loss\nround-trip min/avg/max = 0.1/0.2/0.3 ms\n";
        let values: Vec<f64> =
            Ping::default().read(&[output(text, b"", 0)]).unwrap().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [0.2, 0.1, 0.3, 33.0]);
    }

    #[test]
    fn no_reply_is_an_error_with_pings_words() {
        let error = Ping::default().read(&[output(NO_REPLY, b"", 1)]).unwrap_err().to_string();
        assert!(error.contains("100% packet loss"), "{error}");
    }

    #[test]
    fn cut_output_says_what_is_missing() {
        for cut in 0..RUN.len() - 4 {
            assert!(Ping::default().read(&[output(&RUN[..cut], b"", 0)]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn the_interval_is_written_in_seconds() {
        let steps = Ping::default().steps("10.0.0.2".parse().unwrap());
        assert_eq!(steps[0].client.join(" "), "ping -n -q -c 100 -i 0.01 10.0.0.2");
    }
}

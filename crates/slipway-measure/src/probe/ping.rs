//! ping(8): round trips of one small packet at a time.

use std::net::IpAddr;

use super::{Output, ReadError, Sample, Step, argv, only};

const PROGRAM: &str = "ping";

/// Seconds that answers may take. Without `-w`, ping waits for the last answer at most twice as long as for those
/// before it, or until its next request would be due (`__schedule_exit`, iputils). Where a machine is busy just then,
/// it counts that answer as lost.
const PATIENCE: u32 = 30;

/// ICMP round trip times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// Answers that are waited for (`-c`, with `-w`): as many requests as that takes.
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
        let deadline = self.count.saturating_mul(self.interval_ms).div_ceil(1000).saturating_add(PATIENCE).to_string();
        let client = argv(&[PROGRAM, "-n", "-c", &count, "-w", &deadline, "-i", &interval, &server]);
        vec![Step { server: None, client }]
    }

    #[allow(clippy::unused_self)] // one shape for all probes
    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(PROGRAM, outputs)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let times = text.lines().find_map(times);
        // With fewer answers than it was to wait for it ends with 1, and says what it measured all the same.
        let fewer = output.code == 1 && times.is_some();
        if !fewer {
            output.succeeded(PROGRAM)?;
        }
        let missing = |what: &str| ReadError::Missing { program: PROGRAM.into(), what: what.into() };
        let said = text.lines().find_map(loss).ok_or_else(|| missing("a line like “0% packet loss”"))?;
        let times = times.ok_or_else(|| missing("a line like “rtt min/avg/max/mdev = …”"))?;
        let loss = if fewer { said } else { lost(&text).unwrap_or(said) };
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

/// Percentage of requests lost, up to the last one with an answer. Those after it were under way when there were
/// answers enough, and ping counts them as lost. `None` where answers are not numbered as iputils numbers them, from 1.
fn lost(text: &str) -> Option<f64> {
    let answers: Vec<u32> = text.lines().filter_map(answer).collect();
    let (count, last) = (u32::try_from(answers.len()).ok()?, answers.into_iter().max()?);
    // Numbers have 16 bits.
    (count <= last).then(|| f64::from(last - count) / f64::from(last) * 100.0)
}

/// `64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=0.042 ms`
fn answer(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once(" icmp_seq=")?;
    let (number, rest) = rest.split_once(' ')?;
    let counts = rest.contains("time=") && !rest.contains("(DUP!)");
    number.parse().ok().filter(|number| counts && *number > 0)
}

fn finite(word: &str) -> Option<f64> {
    word.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const FEW: &[u8] = include_bytes!("../../tests/fixtures/ping-few.txt");
    const LATE: &[u8] = include_bytes!("../../tests/fixtures/ping-late.txt");
    const RUN: &[u8] = include_bytes!("../../tests/fixtures/ping.txt");
    const NO_REPLY: &[u8] = include_bytes!("../../tests/fixtures/ping-no-reply.txt");

    #[test]
    fn iputils_is_read() {
        let samples = Ping::default().read(&[output(RUN, b"", 0)]).unwrap();
        let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        assert_eq!(values, [0.055, 0.034, 0.205, 0.019, 0.0]);
        assert_eq!(samples.iter().filter(|sample| sample.headline).count(), 1);
    }

    #[test]
    fn a_long_way_with_several_under_way_is_read() {
        let text = b"5 packets transmitted, 5 received, 0% packet loss, time 40ms\nrtt min/avg/max/mdev = 20.1/20.2/20.3/0.1 ms, pipe 3\n";
        let values: Vec<f64> =
            Ping::default().read(&[output(text, b"", 0)]).unwrap().iter().map(|sample| sample.value).collect();
        assert_eq!(values, [20.2, 20.1, 20.3, 0.1, 0.0]);
    }

    fn loss_of(text: &[u8], code: i32) -> Vec<f64> {
        let samples = Ping::default().read(&[output(text, b"", code)]).unwrap();
        samples.iter().filter(|sample| sample.figure == "ping loss").map(|sample| sample.value).collect()
    }

    /// Fifty of 52 were answered, which took 45 ms; ping had sent 55 by then.
    #[test]
    fn what_is_under_way_at_the_end_is_not_lost() {
        assert_eq!(loss_of(LATE, 0), [2.0 / 52.0 * 100.0]);
        let doubled = String::from_utf8_lossy(LATE).replacen(
            " ms\n",
            " ms\n64 bytes from 10.64.0.2: icmp_seq=1 ttl=64 time=90.0 ms (DUP!)\n",
            1,
        );
        assert_eq!(loss_of(doubled.as_bytes(), 0), [2.0 / 52.0 * 100.0]);
    }

    /// Two of ten, when the time was over.
    #[test]
    fn fewer_answers_than_were_waited_for_are_read() {
        assert_eq!(loss_of(FEW, 1), [80.0]);
        assert!(Ping::default().read(&[output(FEW, b"", 2)]).is_err());
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
        assert_eq!(steps[0].client.join(" "), "ping -n -c 100 -w 31 -i 0.01 10.0.0.2");
    }
}

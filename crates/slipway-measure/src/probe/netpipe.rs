//! `NetPIPE`'s `NPtcp` (netpipe(1)): ping-pong over message sizes, from latency-bound to bandwidth-bound.

use std::net::IpAddr;

use super::{Output, Point, ReadError, Sample, Server, Step, argv, only};

const PROGRAM: &str = "NPtcp";
/// `NPtcp`'s own default port.
const PORT: u16 = 5002;

/// TCP latency and throughput over message sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netpipe {
    /// The largest message, bytes (`-u`).
    pub max_bytes: u32,
    /// Ping-pongs of each size (`-n`). `None`: as many as fill a quarter of a second, `NetPIPE`'s own choice.
    pub repeats: Option<u32>,
}

impl Default for Netpipe {
    /// Up to 256 KiB, 200 ping-pongs of each of about 36 sizes: a few seconds a round. `NetPIPE`'s own choice takes 15.
    /// Sizes up to 1 MiB took 150 s over the slowest network (Open vSwitch's userspace datapath), and 16 of 17 runs over
    /// all networks peaked by 256 KiB.
    fn default() -> Self {
        Self { max_bytes: 256 << 10, repeats: Some(200) }
    }
}

impl Netpipe {
    /// `-p 0` leaves out the sizes three bytes beside each power of two, which are about alignment and triple the
    /// time; `-o /dev/null`: without it a file `np.out` appears in the working directory.
    pub(super) fn steps(&self, server: IpAddr) -> Vec<Step> {
        let (server, port, max) = (server.to_string(), PORT.to_string(), self.max_bytes.to_string());
        let mut common = argv(&["-P", &port, "-p", "0", "-u", &max, "-o", "/dev/null"]);
        if let Some(repeats) = self.repeats {
            common.extend(["-n".into(), repeats.to_string()]);
        }
        let serving = Server { argv: [argv(&[PROGRAM]), common.clone()].concat(), port: PORT };
        vec![Step { server: Some(serving), client: [argv(&[PROGRAM, "-h", &server]), common].concat() }]
    }

    #[allow(clippy::unused_self)] // one shape for all probes
    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(PROGRAM, outputs)?;
        let curve = curve(&output.succeeded(PROGRAM)?.stderr);
        let missing = || ReadError::Missing {
            program: PROGRAM.into(),
            what: "lines like “0: 1 bytes 99 times --> 0.24 Mbps in 31.68 usec”".into(),
        };
        let smallest = curve.iter().min_by_key(|point| point.bytes).ok_or_else(missing)?;
        let latency = smallest.micros;
        let peak = curve.iter().map(Point::megabits).fold(0.0, f64::max) / 1000.0;
        let sample = |figure: &str, unit: &str, higher_is_better: bool, value: f64, curve: Vec<Point>| Sample {
            figure: figure.into(),
            unit: unit.into(),
            higher_is_better,
            headline: true,
            value,
            curve,
        };
        Ok(vec![
            sample("NetPIPE latency", "µs", false, latency, curve),
            sample("NetPIPE peak throughput", "Gb/s", true, peak, Vec::new()),
        ])
    }
}

/// The curve in what `NPtcp` writes to standard error. A line that is cut or strange is passed over.
///
/// Only sizes and times are read: `NetPIPE`'s "Mbps" are 2²⁰ bits a second, and have two digits for small messages.
fn curve(stderr: &[u8]) -> Vec<Point> {
    String::from_utf8_lossy(stderr).lines().filter_map(point).collect()
}

/// `  3:       4 bytes   1841 times -->      0.79 Mbps in      38.53 usec`
fn point(line: &str) -> Option<Point> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, bytes, "bytes", _, "times", "-->", _, "Mbps", "in", micros, "usec"] = words[..] else { return None };
    let point = Point { bytes: bytes.parse().ok()?, micros: micros.parse().ok()? };
    (point.bytes > 0 && point.micros > 0.0 && point.megabits().is_finite() && point.micros.is_finite()).then_some(point)
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const RUN: &[u8] = include_bytes!("../../tests/fixtures/netpipe.txt");
    const REFUSED: &[u8] = include_bytes!("../../tests/fixtures/netpipe-refused.txt");

    #[test]
    fn latency_peak_and_curve_are_read() {
        let samples = Netpipe::default().read(&[output(b"Sending output to /dev/null\n", RUN, 0)]).unwrap();
        let [latency, peak] = &samples[..] else { panic!("two samples") };
        assert_eq!((latency.value, latency.unit.as_str()), (31.68, "µs"));
        assert_eq!(latency.curve.len(), 106);
        assert_eq!(latency.curve[105], Point { bytes: 1_048_579, micros: 305.94 });
        // 786435 bytes in 106.54 µs
        assert!((peak.value - 59.05).abs() < 0.01, "{}", peak.value);
    }

    #[test]
    fn both_ends_get_the_same_options() {
        let [step] = &Netpipe::default().steps("10.0.0.2".parse().unwrap())[..] else { panic!("one step") };
        assert_eq!(step.client.join(" "), "NPtcp -h 10.0.0.2 -P 5002 -p 0 -u 262144 -o /dev/null -n 200");
        let server = step.server.as_ref().unwrap();
        assert_eq!(server.argv[1..], step.client[3..]);
    }

    #[test]
    fn a_refused_connection_is_told() {
        let error = Netpipe::default()
            .read(&[output(b"Sending output to /dev/null\nClient: Cannot Connect! errno=111", REFUSED, 246)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("Cannot Connect"), "{error}");
    }

    #[test]
    fn a_cut_line_is_passed_over() {
        let cut = &RUN[..RUN.len() - 9];
        assert_eq!(curve(cut).len(), 105);
        assert!(Netpipe::default().read(&[output(b"", b"Now starting the main loop\n", 0)]).is_err());
    }

    #[test]
    fn a_time_of_nothing_is_no_point() {
        assert_eq!(point("0: 1 bytes 9 times --> inf Mbps in 0.00 usec"), None);
        assert_eq!(point("0: 1 bytes 9 times --> 1 Mbps in NaN usec"), None);
    }
}

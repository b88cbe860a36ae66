//! iperf3(1): bulk TCP throughput, and what it cost.

use slipway_document::text::is_hidden;
use std::net::IpAddr;

use serde_json::Value;

use super::{Output, ReadError, Sample, Server, Step, argv, each};

const PROGRAM: &str = "iperf3";
/// iperf3's own default port.
const PORT: u16 = 5201;

/// TCP throughput for each number of streams, in each direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iperf3 {
    /// Parallel streams of each test (`-P`).
    pub streams: Vec<u16>,
    /// True: each test also runs from server to client (`--reverse`).
    pub both_ways: bool,
    /// Seconds of each test (`-t`).
    pub seconds: u16,
}

impl Default for Iperf3 {
    /// One stream and four, both ways, two seconds each: eight seconds a round.
    fn default() -> Self {
        Self { streams: vec![1, 4], both_ways: true, seconds: 2 }
    }
}

#[derive(Clone, Copy)]
struct Test {
    streams: u16,
    reverse: bool,
}

impl Test {
    /// `TCP throughput, 4 streams, reverse` for `TCP throughput`.
    fn figure(self, what: &str) -> String {
        let plural = if self.streams == 1 { "" } else { "s" };
        let reverse = if self.reverse { ", reverse" } else { "" };
        format!("{what}, {} stream{plural}{reverse}", self.streams)
    }
}

impl Iperf3 {
    fn tests(&self) -> impl Iterator<Item = Test> {
        let directions: &[bool] = if self.both_ways { &[false, true] } else { &[false] };
        self.streams.iter().flat_map(|&streams| directions.iter().map(move |&reverse| Test { streams, reverse }))
    }

    /// A server of its own for each test: one server for all answers "busy" to a client that comes before it has
    /// cleared away the one before.
    pub(super) fn steps(&self, server: IpAddr) -> Vec<Step> {
        let (server, port) = (server.to_string(), PORT.to_string());
        let step = |test: Test| {
            let (seconds, streams) = (self.seconds.to_string(), test.streams.to_string());
            let mut client = argv(&[PROGRAM, "--json", "-c", &server, "-p", &port, "-t", &seconds, "-P", &streams]);
            if test.reverse {
                client.push("--reverse".into());
            }
            let server = argv(&[PROGRAM, "--server", "--one-off", "-B", &server, "-p", &port]);
            Step { server: Some(Server { argv: server, port: PORT }), client }
        };
        self.tests().map(step).collect()
    }

    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let tests: Vec<Test> = self.tests().collect();
        let outputs = each(PROGRAM, tests.len(), outputs)?;
        let mut samples = Vec::new();
        for (test, output) in tests.iter().zip(outputs) {
            samples.extend(read_test(*test, output)?);
        }
        Ok(samples)
    }
}

/// `end` of iperf3's JSON: sums over all streams. The client is `host` there, the server `remote`, in both directions.
fn read_test(test: Test, output: &Output) -> Result<[Sample; 4], ReadError> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if let Some(said) = report["error"].as_str() {
        let said = said.chars().filter(|&c| !is_hidden(c)).take(super::SAID).collect();
        return Err(ReadError::Failed { program: PROGRAM.into(), code: output.code, said });
    }
    output.succeeded(PROGRAM)?;
    let number = |pointer: &str| {
        let found = report.pointer(pointer).and_then(Value::as_f64).filter(|n| n.is_finite());
        found.ok_or_else(|| ReadError::Missing { program: PROGRAM.into(), what: format!("the number {pointer}") })
    };
    let detail = |what: &str, unit: &str, value: f64| Sample {
        figure: test.figure(what),
        unit: unit.into(),
        higher_is_better: false,
        headline: false,
        value,
        curve: Vec::new(),
    };
    let throughput = number("/end/sum_received/bits_per_second")? / 1e9;
    Ok([
        Sample { higher_is_better: true, headline: true, ..detail("TCP throughput", "Gb/s", throughput) },
        detail("retransmits", "", number("/end/sum_sent/retransmits")?),
        detail("client CPU", "%", number("/end/cpu_utilization_percent/host_total")?),
        detail("server CPU", "%", number("/end/cpu_utilization_percent/remote_total")?),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const ONE: &[u8] = include_bytes!("../../tests/fixtures/iperf3-1-stream.json");
    const FOUR_REVERSE: &[u8] = include_bytes!("../../tests/fixtures/iperf3-4-streams-reverse.json");
    const REFUSED: &[u8] = include_bytes!("../../tests/fixtures/iperf3-refused.json");

    #[test]
    fn one_stream_is_read() {
        let probe = Iperf3 { streams: vec![1], both_ways: false, seconds: 2 };
        let samples = probe.read(&[output(ONE, b"", 0)]).unwrap();
        let read: Vec<String> = samples.iter().map(|s| format!("{}: {:.3} {}", s.figure, s.value, s.unit)).collect();
        assert_eq!(
            read,
            [
                "TCP throughput, 1 stream: 17.994 Gb/s",
                "retransmits, 1 stream: 58496.000 ",
                "client CPU, 1 stream: 94.104 %",
                "server CPU, 1 stream: 43.373 %",
            ]
        );
        assert!(samples[0].headline && samples[0].higher_is_better && samples[0].unit == "Gb/s");
    }

    #[test]
    fn the_sender_of_a_reverse_test_is_the_server() {
        let test = Test { streams: 4, reverse: true };
        let [throughput, _, client, server] = read_test(test, &output(FOUR_REVERSE, b"", 0)).unwrap();
        assert_eq!(throughput.figure, "TCP throughput, 4 streams, reverse");
        assert!((throughput.value - 39.25).abs() < 0.01);
        assert!(server.value > client.value);
    }

    #[test]
    fn steps_cover_streams_and_directions() {
        let steps = Iperf3::default().steps("fd00::1".parse().unwrap());
        let clients: Vec<String> = steps.iter().map(|step| step.client.join(" ")).collect();
        assert_eq!(clients[0], "iperf3 --json -c fd00::1 -p 5201 -t 2 -P 1");
        assert_eq!(clients[3], "iperf3 --json -c fd00::1 -p 5201 -t 2 -P 4 --reverse");
        assert_eq!(clients.len(), 4);
    }

    #[test]
    fn a_refused_connection_is_told_in_iperf3s_words() {
        let probe = Iperf3 { streams: vec![1], both_ways: false, seconds: 2 };
        let error = probe.read(&[output(REFUSED, b"", 1)]).unwrap_err().to_string();
        assert!(error.contains("unable to connect to server: Connection refused"), "{error}");
    }

    #[test]
    fn cut_output_says_what_is_missing() {
        let probe = Iperf3 { streams: vec![1], both_ways: false, seconds: 2 };
        let cut = output(&ONE[..ONE.len() / 2], b"", 0);
        assert!(matches!(probe.read(&[cut]), Err(ReadError::Missing { .. })));
    }
}

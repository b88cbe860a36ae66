//! iperf3(1) in one way of many: one test of TCP or UDP, whose figures have the same names however it is set.

use std::net::IpAddr;

use serde_json::Value;
use slipway_document::text::is_hidden;

use super::{Output, ReadError, SAID, Sample, Server, Step, argv, only};

const PROGRAM: &str = "iperf3";

/// One test between a client and a server. By itself iperf3 chooses what is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// UDP instead of TCP.
    pub udp: bool,
    /// Parallel streams (`-P`).
    pub streams: u16,
    /// Seconds (`-t`).
    pub seconds: u16,
    /// Bytes of both ends' socket buffers (`-w`).
    pub buffer: Option<u64>,
    /// Bytes of a write, or of a datagram (`-l`).
    pub length: Option<u64>,
    /// Bits a second of each stream; 0: as many as go (`-b`). iperf3 sends 1 Mbit/s of UDP without.
    pub rate: Option<u64>,
    /// Congestion control of TCP (`-C`).
    pub congestion: Option<String>,
    /// Pages go to the socket without a copy (`-Z`).
    pub zero_copy: bool,
    /// The server sends (`-R`).
    pub reverse: bool,
    /// The client's processor (`-A`).
    pub processor: Option<u32>,
    /// The server's, where the client has one.
    pub server_processor: Option<u32>,
    /// TCP port of the server.
    pub port: u16,
}

impl Default for Stream {
    /// One stream of TCP for two seconds.
    fn default() -> Self {
        Self {
            udp: false,
            streams: 1,
            seconds: 2,
            buffer: None,
            length: None,
            rate: None,
            congestion: None,
            zero_copy: false,
            reverse: false,
            processor: None,
            server_processor: None,
            port: 5201,
        }
    }
}

impl Stream {
    /// The job's name in records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.udp { "iperf3 UDP" } else { "iperf3 TCP" }
    }

    /// The client's argv.
    #[must_use]
    pub fn client(&self, server: IpAddr) -> Vec<String> {
        let number = |option: &str, value: u64| [option.to_owned(), value.to_string()];
        let mut client = argv(&[PROGRAM, "--json", "-c", &server.to_string()]);
        client.extend(number("-p", self.port.into()));
        client.extend(number("-t", self.seconds.into()));
        client.extend(number("-P", self.streams.into()));
        if self.udp {
            client.push("-u".into());
        }
        for (option, value) in [("-w", self.buffer), ("-l", self.length), ("-b", self.rate)] {
            client.extend(value.into_iter().flat_map(|value| number(option, value)));
        }
        if let Some(congestion) = &self.congestion {
            client.extend(["-C".to_owned(), congestion.clone()]);
        }
        if let Some(processor) = self.processor {
            let server = self.server_processor.map_or_else(String::new, |server| format!(",{server}"));
            client.extend(["-A".to_owned(), format!("{processor}{server}")]);
        }
        for (option, wanted) in [("-Z", self.zero_copy), ("--reverse", self.reverse)] {
            if wanted {
                client.push(option.into());
            }
        }
        client
    }

    pub(super) fn steps(&self, server: IpAddr) -> Vec<Step> {
        let (at, port) = (server.to_string(), self.port.to_string());
        let words = argv(&[PROGRAM, "--server", "--one-off", "-B", &at, "-p", &port]);
        vec![Step { server: Some(Server { argv: words, port: self.port }), client: self.client(server) }]
    }

    /// `end` of iperf3's JSON: sums over all streams. The client is `host` there, the server `remote`, in both directions.
    pub(super) fn read(&self, outputs: &[Output]) -> Result<Vec<Sample>, ReadError> {
        let output = only(PROGRAM, outputs)?;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let Some(said) = report["error"].as_str() {
            let said = said.chars().filter(|&c| !is_hidden(c)).take(SAID).collect();
            return Err(ReadError::Failed { program: PROGRAM.into(), code: output.code, said });
        }
        output.succeeded(PROGRAM)?;
        let number = |pointer: &str| {
            let found = report.pointer(pointer).and_then(Value::as_f64).filter(|n| n.is_finite());
            found.ok_or_else(|| ReadError::Missing { program: PROGRAM.into(), what: format!("the number {pointer}") })
        };
        let used = report.pointer("/end/sender_tcp_congestion").and_then(Value::as_str);
        if let (Some(asked), Some(used)) = (&self.congestion, used)
            && asked != used
        {
            let what = format!("congestion control {asked}, where the kernel used another,");
            return Err(ReadError::Missing { program: PROGRAM.into(), what });
        }
        let throughput = number("/end/sum_received/bits_per_second")? / 1e9;
        let client = Sample::detail("client CPU", "%", number("/end/cpu_utilization_percent/host_total")?);
        let server = Sample::detail("server CPU", "%", number("/end/cpu_utilization_percent/remote_total")?);
        Ok(if self.udp {
            vec![
                Sample::headline("UDP throughput", "Gb/s", throughput),
                Sample::detail("datagrams lost", "%", number("/end/sum_received/lost_percent")?),
                Sample::detail("sent", "Gb/s", number("/end/sum_sent/bits_per_second")? / 1e9),
                client,
                server,
            ]
        } else {
            let retransmits = Sample::detail("retransmits", "", number("/end/sum_sent/retransmits")?);
            vec![Sample::headline("TCP throughput", "Gb/s", throughput), retransmits, client, server]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::output;
    use super::*;

    const TCP: &[u8] = include_bytes!("../../tests/fixtures/iperf3-bbr-zero-copy.json");
    const UDP: &[u8] = include_bytes!("../../tests/fixtures/iperf3-udp.json");

    fn read(stream: &Stream, text: &[u8]) -> Vec<String> {
        let samples = stream.read(&[output(text, b"", 0)]).unwrap();
        samples.iter().map(|s| format!("{}: {:.2} {}", s.figure, s.value, s.unit)).collect()
    }

    #[test]
    fn options_become_words() {
        let stream = Stream {
            streams: 8,
            buffer: Some(1 << 20),
            congestion: Some("bbr".into()),
            zero_copy: true,
            reverse: true,
            processor: Some(3),
            ..Stream::default()
        };
        let client = stream.client("10.0.0.2".parse().unwrap()).join(" ");
        assert_eq!(client, "iperf3 --json -c 10.0.0.2 -p 5201 -t 2 -P 8 -w 1048576 -C bbr -A 3 -Z --reverse");
        let udp = Stream { udp: true, length: Some(8972), rate: Some(0), ..Stream::default() };
        let client = udp.client("10.0.0.2".parse().unwrap()).join(" ");
        assert_eq!(client, "iperf3 --json -c 10.0.0.2 -p 5201 -t 2 -P 1 -u -l 8972 -b 0");
    }

    #[test]
    fn figures_have_the_same_names_in_every_way() {
        let bbr = Stream { congestion: Some("bbr".into()), zero_copy: true, ..Stream::default() };
        let expected =
            ["TCP throughput: 15.98 Gb/s", "retransmits: 3.00 ", "client CPU: 96.03 %", "server CPU: 28.04 %"];
        assert_eq!(read(&bbr, TCP), expected);
        let udp = Stream { udp: true, ..Stream::default() };
        let expected = [
            "UDP throughput: 6.73 Gb/s",
            "datagrams lost: 13.04 %",
            "sent: 7.74 Gb/s",
            "client CPU: 97.20 %",
            "server CPU: 86.88 %",
        ];
        assert_eq!(read(&udp, UDP), expected);
    }

    #[test]
    fn another_congestion_control_than_asked_is_no_result() {
        let cubic = Stream { congestion: Some("cubic".into()), ..Stream::default() };
        let error = cubic.read(&[output(TCP, b"", 0)]).unwrap_err().to_string();
        assert!(error.contains("find congestion control cubic"), "{error}");
    }
}

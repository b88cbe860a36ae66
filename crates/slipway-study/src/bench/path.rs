//! Benchmarks of a path: TCP or UDP between two nodes of a lab, or to another machine, by iperf3.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use slipway_document::units::{Bytes, Rate};
use slipway_engine::exec::Launcher;
use slipway_engine::lab::Running;
use slipway_engine::probe::{Between, ProbeError};
use slipway_lab::id::NodeId;
use slipway_measure::bottleneck::{Counters, Sides};
use slipway_measure::probe::{Probe, Sample, Stream};
use slipway_sys::signals::Taken;

use super::hold::{Hold, Mtu};
use super::watch::{Data, Watch, Watched};
use super::{Bed, LIMIT, Plan, Ready, Task, Way, local};
use crate::StudyError;
use crate::rounds::Stop;

/// The greatest datagram over loopback, for the limit of UDP: bytes of its payload.
const LARGEST_DATAGRAM: u64 = 65_000;

/// Two ends, and the ways to measure between them. A list with several values compares them.
#[derive(Debug)]
pub struct Path {
    /// UDP instead of TCP.
    pub udp: bool,
    /// The ends.
    pub ends: Ends,
    /// Parallel streams.
    pub streams: Vec<u16>,
    /// Bytes of both ends' socket buffers; empty: the kernel's.
    pub buffers: Vec<Bytes>,
    /// Congestion controls; empty: the kernel's.
    pub congestions: Vec<String>,
    /// Whether pages go to the socket without a copy.
    pub zero_copy: Vec<bool>,
    /// Bytes of a write or datagram; empty: iperf3's.
    pub lengths: Vec<Bytes>,
    /// Bytes of the greatest packet at both ends; empty: as they are. Of nodes alone.
    pub mtus: Vec<u32>,
    /// Processors of client and server, each pair with its name; empty: the kernel's choice.
    pub processors: Vec<(String, u32, Option<u32>)>,
    /// Bits a second of each stream; `None`: as many as go.
    pub rate: Option<Rate>,
    /// The server sends.
    pub reverse: bool,
    /// Seconds of each test.
    pub seconds: u16,
    /// TCP port of the server.
    pub port: u16,
    /// The limit of the path; found out where `None`.
    pub limit: Option<Rate>,
}

/// The ends of a path.
#[derive(Debug)]
pub enum Ends {
    /// Nodes of a running lab.
    Nodes {
        /// The lab.
        lab: Box<Running>,
        /// The node that measures.
        client: NodeId,
        /// The node that serves.
        server: NodeId,
    },
    /// This machine, and one where `slipway bench serve` runs.
    Peer(IpAddr),
}

/// The limit of a path.
enum Limit {
    Known(Rate, String),
    Loopback,
}

/// A path that is ready.
pub(super) struct Course<'a> {
    path: &'a Path,
    launcher: Launcher,
    watched: Watched,
    timeout: Duration,
}

impl Path {
    /// One TCP stream from the client for two seconds, with nothing compared: all else is the kernel's choice.
    #[must_use]
    pub fn plain(ends: Ends) -> Self {
        Self {
            udp: false,
            ends,
            streams: vec![1],
            buffers: Vec::new(),
            congestions: Vec::new(),
            zero_copy: Vec::new(),
            lengths: Vec::new(),
            mtus: Vec::new(),
            processors: Vec::new(),
            rate: None,
            reverse: false,
            seconds: 2,
            port: 5201,
            limit: None,
        }
    }

    /// The ways of the benchmark and the origin of its limit.
    pub(super) fn describe(&self) -> Result<(Vec<Way>, String), StudyError> {
        Ok(self.ways(&self.find_limit()?))
    }

    pub(super) fn prepare(&self, plan: &Plan) -> Result<(Ready, Course<'_>), StudyError> {
        let (ways, limit) = self.describe()?;
        let launcher = Launcher::new().map_err(StudyError::io("prepare to start programs"))?;
        let (name, mut sides, watched) = match &self.ends {
            Ends::Nodes { lab, client, server } => {
                let name = |node: NodeId| lab.lab.nodes[node].name.clone();
                let (from, to) = (lab.init(*client)?.pid, lab.init(*server)?.pid);
                let sender = Some((if self.reverse { to } else { from }, Data::Port(self.port)));
                let nets = vec![(name(*client), from), (name(*server), to)];
                let sides = Sides { sender: name(*client), receiver: name(*server) };
                (lab.lab.name.clone(), sides, Watched { nets, sender: sender.filter(|_| !self.udp), disk: None })
            }
            Ends::Peer(address) => {
                if !local::is_there("iperf3") {
                    return Err(StudyError::Tool("iperf3"));
                }
                let own = rustix::process::getpid().as_raw_nonzero().get();
                let sender = Some((own, Data::Port(self.port))).filter(|_| !self.udp && !self.reverse);
                let sides = Sides { sender: "this machine".to_owned(), receiver: address.to_string() };
                let nets = vec![("this machine".to_owned(), own)];
                (address.to_string().replace(':', "-"), sides, Watched { nets, sender, disk: None })
            }
        };
        if self.reverse {
            std::mem::swap(&mut sides.sender, &mut sides.receiver);
        }
        let (kind, task) = if self.udp { ("udp", "iperf3 UDP") } else { ("tcp", "iperf3 TCP") };
        let ready = Ready { name, kind, limit, sides, tasks: vec![task], ways, left_out: Vec::new() };
        Ok((ready, Course { path: self, launcher, watched, timeout: plan.timeout }))
    }

    fn find_limit(&self) -> Result<Limit, StudyError> {
        if let Some(rate) = self.limit {
            return Ok(Limit::Known(rate, format!("{rate}, as given")));
        }
        match &self.ends {
            Ends::Nodes { lab, client, server } => {
                let (from, to) = if self.reverse { (*server, *client) } else { (*client, *server) };
                Ok(rate_between(lab, from, to)?
                    .map_or(Limit::Loopback, |rate| Limit::Known(rate, format!("{rate}, the rate of the link"))))
            }
            Ends::Peer(address) => Ok(link_speed(*address).map_or(Limit::Loopback, |(device, rate)| {
                Limit::Known(rate, format!("{rate}, the speed of {device}"))
            })),
        }
    }

    fn figure(&self) -> &'static str {
        if self.udp { "UDP throughput" } else { "TCP throughput" }
    }

    fn stream(&self) -> Stream {
        let rate =
            if self.udp { Some(self.rate.map_or(0, |Rate(bits)| bits)) } else { self.rate.map(|Rate(bits)| bits) };
        Stream {
            udp: self.udp,
            seconds: self.seconds,
            rate,
            reverse: self.reverse,
            port: self.port,
            ..Stream::default()
        }
    }

    fn ways(&self, limit: &Limit) -> (Vec<Way>, String) {
        let (task, words) = match limit {
            Limit::Known(Rate(bits), words) => {
                (Task::Known(Sample::headline(self.figure(), "Gb/s", *bits as f64 / 1e9)), words.clone())
            }
            Limit::Loopback => {
                let length = self.udp.then_some(LARGEST_DATAGRAM);
                // A peer's server has the port, where the peer is this machine.
                let port =
                    if matches!(self.ends, Ends::Peer(_)) { self.port.wrapping_add(1).max(1024) } else { self.port };
                let probe = Probe::Stream(Stream {
                    length,
                    rate: self.udp.then_some(0),
                    reverse: false,
                    port,
                    ..self.stream()
                });
                (
                    Task::Probe { probe, loopback: true },
                    "memory: one stream over loopback, measured in the same rounds".to_owned(),
                )
            }
        };
        let mut ways = vec![Way {
            name: LIMIT.to_owned(),
            mechanism: words.clone(),
            hold: Hold::Nothing,
            tasks: vec![Some(task)],
        }];
        let mut of = vec![(Vec::new(), self.stream(), Hold::Nothing)];
        of = vary(of, &self.mtus, |(words, stream, hold), &mtu| {
            words.push(format!("MTU {mtu}"));
            *hold = Hold::Mtu(mtu);
            // Datagrams as large as fit: without the headers of IPv4 and UDP.
            stream.length = self.udp.then(|| u64::from(mtu.saturating_sub(28)));
        });
        of = vary(of, &self.streams, |(words, stream, _), &streams| {
            words.push(if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") });
            stream.streams = streams;
        });
        of = vary(of, &self.buffers, |(words, stream, _), buffer| {
            words.push(format!("buffers {buffer}"));
            stream.buffer = Some(buffer.0);
        });
        of = vary(of, &self.congestions, |(words, stream, _), congestion| {
            words.push(congestion.clone());
            stream.congestion = Some(congestion.clone());
        });
        of = vary(of, &self.zero_copy, |(words, stream, _), &zero_copy| {
            words.extend(zero_copy.then(|| "zero copy".to_owned()));
            stream.zero_copy = zero_copy;
        });
        of = vary(of, &self.lengths, |(words, stream, _), length| {
            words.push(format!("{} of {length}", if self.udp { "datagrams" } else { "writes" }));
            stream.length = Some(length.0);
        });
        of = vary(of, &self.processors, |(words, stream, _), (name, client, server)| {
            words.push(format!("{name} processors"));
            (stream.processor, stream.server_processor) = (Some(*client), *server);
        });
        ways.extend(of.into_iter().map(|(words, stream, hold)| Way {
            name: if words.is_empty() { "1 stream".to_owned() } else { words.join(", ") },
            mechanism: "iperf3".to_owned(),
            hold,
            tasks: vec![Some(Task::Probe { probe: Probe::Stream(stream), loopback: false })],
        }));
        (ways, words)
    }
}

type Made = (Vec<String>, Stream, Hold);

/// Each of the ways with each of the values; as they are where there is no value.
fn vary<T>(ways: Vec<Made>, values: &[T], set: impl Fn(&mut Made, &T)) -> Vec<Made> {
    if values.is_empty() {
        return ways;
    }
    let each = |way: &Made, value: &T| {
        let mut way = way.clone();
        set(&mut way, value);
        way
    };
    ways.iter().flat_map(|way| values.iter().map(|value| each(way, value))).collect()
}

/// The least rate to which links between two nodes are set.
fn rate_between(lab: &Running, from: NodeId, to: NodeId) -> Result<Option<Rate>, StudyError> {
    let links = lab.links()?;
    let of =
        |node: NodeId| links.interfaces.iter().find(move |interface| (interface.node, interface.slot) == (node, 0));
    let leaving = of(from).map(|interface| (&interface.egress, to));
    let arriving = of(to).map(|interface| (&interface.ingress, from));
    let rates = leaving.into_iter().chain(arriving).flat_map(|(direction, other)| {
        let peer = direction.peers.iter().find(|peer| peer.node == other);
        [direction.now.rate, peer.and_then(|peer| peer.conditions.rate), peer.and_then(|peer| peer.own.rate)]
    });
    Ok(rates.flatten().min())
}

/// The interface by which packets to an address leave, and its speed; `None` where the kernel does not know it.
fn link_speed(to: IpAddr) -> Option<(String, Rate)> {
    // Connecting a datagram socket sends nothing, and has the kernel choose the way.
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    let name = slipway_sys::interfaces::with_address(own).ok()??;
    let speed = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: u64 = speed.trim().parse().ok().filter(|&speed| speed > 0)?;
    Some((name, Rate(megabits.checked_mul(1_000_000)?)))
}

impl Bed for Course<'_> {
    fn measure(
        &self,
        probe: &Probe,
        loopback: bool,
        hold: &Hold,
        interrupt: &Taken,
    ) -> Result<(Vec<Sample>, Counters), Stop> {
        let _held = match (hold, &self.path.ends) {
            (Hold::Mtu(bytes), Ends::Nodes { lab, client, server }) => {
                let of = |node: NodeId| {
                    Some((lab.init(node).ok()?.pid, lab.lab.nodes[node].interfaces.first()?.name.clone()))
                };
                let ends: Vec<_> = [*client, *server].into_iter().filter_map(of).collect();
                Some(Mtu::set(&ends, *bytes)?)
            }
            _ => None,
        };
        let mut watch = Watch::new(&self.watched);
        let look = &mut || watch.look();
        let samples = match &self.path.ends {
            Ends::Nodes { lab, client, server } => {
                let server = if loopback { *client } else { *server };
                let address = if loopback { Ipv4Addr::LOCALHOST.into() } else { Between::address_of(&lab.lab, server) };
                let between = Between { lab, server, client: *client, timeout: self.timeout, interrupt };
                between.watch(&self.launcher, probe, address, look).map_err(|error| match error {
                    ProbeError::Interrupted => Stop::came(interrupt),
                    error => Stop::failed(error),
                })?
            }
            Ends::Peer(_) if loopback => {
                local::measure(probe, Ipv4Addr::LOCALHOST.into(), (self.timeout, interrupt), look)?
            }
            Ends::Peer(address) => {
                let client = probe.steps(*address).swap_remove(0).client;
                let output = local::run(&client, (self.timeout, interrupt), look)?;
                look();
                probe.read(&[output]).map_err(Stop::failed)?
            }
        };
        let counters = watch.end(&samples);
        Ok((samples, counters))
    }

    fn commands(&self, probe: &Probe) -> Vec<String> {
        let address = match &self.path.ends {
            Ends::Nodes { lab, server, .. } => Between::address_of(&lab.lab, *server),
            Ends::Peer(address) => *address,
        };
        probe.steps(address).iter().map(|step| step.client.join(" ")).collect()
    }
}

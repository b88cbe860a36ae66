//! The kernel's counters while a program runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use slipway_measure::bottleneck::{Busiest, Counters};
use slipway_measure::probe::Sample;
use slipway_sys::block::Device;
use slipway_sys::counters::{Drops, Processor, Share, drops, processors, shares};
use slipway_sys::ns::with_net;
use slipway_sys::sock_diag::{TcpInfo, TcpSocket, tcp_sockets};

/// A connection that sent less carries control and no data, bytes.
const LEAST_DATA: u64 = 64 * 1024;

/// The things to watch.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Processes of the network namespaces in which packets may be dropped, each with the place's name.
    pub(super) nets: Vec<(String, i32)>,
    /// The process in whose network namespace the sender's connections are, and how to know them.
    pub(super) sender: Option<(i32, Data)>,
    /// The disk.
    pub(super) disk: Option<Device>,
}

/// The mark of the connections that carry data.
#[derive(Debug, Clone)]
pub(super) enum Data {
    /// The server's port.
    Port(u16),
    /// The receiver's addresses, at any port.
    To(Vec<IpAddr>),
}

impl Data {
    fn has(&self, socket: &TcpSocket) -> bool {
        match self {
            Self::Port(port) => socket.remote.port() == *port || socket.local.port() == *port,
            Self::To(addresses) => addresses.contains(&socket.remote.ip().to_canonical()),
        }
    }
}

/// Counters from a beginning to now.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    watched: &'a Watched,
    sender: Option<(OwnedFd, &'a Data)>,
    begun: Option<Begun>,
    /// The processors at the last look while data flowed.
    last: Vec<Processor>,
    connections: BTreeMap<u64, TcpInfo>,
    /// The congestion control of the connections that carry data.
    congestion: Option<String>,
    sent: u64,
    ended: Instant,
}

/// The counters at the beginning.
#[derive(Debug)]
struct Begun {
    at: Instant,
    processors: Vec<Processor>,
    drops: Vec<Drops>,
    disk: Option<Duration>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(watched: &'a Watched) -> Self {
        let open = |(pid, data): &'a (i32, Data)| Some((File::open(format!("/proc/{pid}/ns/net")).ok()?.into(), data));
        let sender = watched.sender.as_ref().and_then(open);
        let (last, connections) = (Vec::new(), BTreeMap::new());
        Self { watched, sender, begun: None, last, connections, congestion: None, sent: 0, ended: Instant::now() }
    }

    /// Reads the counters. The first time is the beginning; a path's begins when its first data are under way.
    pub(super) fn look(&mut self) {
        let sent = self.look_at_connections();
        let now = processors().unwrap_or_default();
        // Between greeting and data a test of a path waits for several round trips.
        let waits = self.sender.is_some() && sent <= LEAST_DATA;
        let flows = self.sender.is_none() || sent > self.sent;
        if self.begun.is_none() || waits {
            let drops = self.watched.nets.iter().map(|(_, pid)| drops(*pid).unwrap_or_default()).collect();
            let disk = self.watched.disk.and_then(Device::busy);
            self.begun = Some(Begun { at: Instant::now(), processors: now.clone(), drops, disk });
        }
        if flows || self.last.is_empty() {
            (self.last, self.sent, self.ended) = (now, sent, Instant::now());
        }
    }

    /// Bytes that the sender's connections have sent.
    fn look_at_connections(&mut self) -> u64 {
        let Some((net, data)) = &self.sender else { return 0 };
        let sockets = with_net(net.as_fd(), tcp_sockets).and_then(|sockets| sockets).unwrap_or_default();
        for socket in sockets.iter().filter(|socket| data.has(socket)) {
            let info = TcpInfo::parse(&socket.info);
            if info.sent > LEAST_DATA {
                self.congestion = Some(socket.congestion.clone()).filter(|name| !name.is_empty());
                self.connections.insert(socket.cookie, info);
            }
        }
        self.connections.values().map(|info| info.sent).sum()
    }

    /// The counters of the whole time, with those that the program's own `samples` have.
    pub(super) fn end(self, samples: &[Sample]) -> Counters {
        let sample =
            |name: &str| samples.iter().find(|sample| sample.figure == name).map(|sample| sample.value / 100.0);
        // iperf3 has one thread before version 3.16, and one for each stream from then on: more than one processor says nothing of each.
        let one_thread = |share: Option<f64>| share.filter(|&share| share <= 1.1);
        let lost = sample("datagrams lost");
        let mut counters = Counters {
            lost,
            sender_program: one_thread(sample("client CPU").or(sample("fio CPU"))),
            receiver_program: one_thread(sample("server CPU")),
            ..self.of_connections()
        };
        let Some(begun) = self.begun else { return counters };
        counters.processor = busiest(&shares(&begun.processors, &self.last));
        for ((place, pid), before) in self.watched.nets.iter().zip(&begun.drops) {
            for (what, count) in drops(*pid).unwrap_or_default() {
                let more = count.saturating_sub(before.get(&what).copied().unwrap_or(0));
                if more > 0 {
                    counters.drops.insert(format!("{what} at {place}"), more);
                }
            }
        }
        let disk = self.watched.disk.and_then(Device::busy).zip(begun.disk);
        // The time of the requests alone: fio takes a moment to begin.
        let lasted = self.ended.duration_since(begun.at).as_secs_f64();
        counters.disk = disk
            .filter(|_| lasted > 0.0)
            .map(|(after, before)| (after.saturating_sub(before).as_secs_f64() / lasted).clamp(0.0, 1.0));
        counters
    }

    fn of_connections(&self) -> Counters {
        let infos = self.connections.values();
        let sum = |field: fn(&TcpInfo) -> u64| infos.clone().map(field).fold(0, u64::saturating_add) as f64;
        let busy = sum(|info| info.busy);
        if busy <= 0.0 {
            return Counters::default();
        }
        let retransmits = infos.clone().map(|info| u64::from(info.retransmits)).sum();
        let segments = infos.clone().map(|info| info.sent as f64 / f64::from(info.segment.max(1))).sum::<f64>();
        let rtt = infos.clone().map(|info| info.rtt).max().unwrap_or(0);
        let paced: Vec<u64> =
            infos.clone().map(|info| info.pacing_rate).filter(|&rate| rate < u64::from(u32::MAX) * 1000).collect();
        Counters {
            receiver_limited: Some((sum(|info| info.receiver_limited) / busy).min(1.0)),
            buffer_limited: Some((sum(|info| info.buffer_limited) / busy).min(1.0)),
            resent: Some((retransmits as f64 / segments.max(1.0)).min(1.0)),
            retransmits: Some(retransmits),
            rtt_ms: Some(f64::from(rtt) / 1000.0),
            congestion: self.congestion.clone(),
            pacing_gbit: (!paced.is_empty()).then(|| paced.iter().sum::<u64>() as f64 * 8.0 / 1e9),
            ..Counters::default()
        }
    }
}

fn busiest(shares: &[Share]) -> Option<Busiest> {
    let most = shares.iter().max_by(|one, other| one.busy.total_cmp(&other.busy))?;
    let Share { number, busy, user, system, interrupts, stolen } = *most;
    Some(Busiest { number, busy, interrupts, user, system, stolen })
}

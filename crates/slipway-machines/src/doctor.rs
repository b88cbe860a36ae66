//! The doctor of several machines: whether a lab can be made on them, and the next step where it cannot.

use std::net::Ipv4Addr;

use serde::Serialize;
use slipway_engine::facts::{Check, Verdict};
use slipway_engine::network::{TUNNEL_PORT, VXLAN_OVERHEAD};
use slipway_engine::rsh::Rsh;
use slipway_lab::model::Machine;

use crate::ask::each;
use crate::channel::Channel;
use crate::error::MachineError;
use crate::message::{Answer, Order, Packet};
use crate::play::clock::{Offset, Trip, date};

const DOING: &str = "look at it";
/// Questions about a machine's clock: the quickest answer says most.
const TRIPS: usize = 8;
/// An offset of clocks beyond this is told, nanoseconds. Scenarios are exact without it; logs of machines are hard to compare.
const APART: u64 = 100_000_000;
/// Size of a packet that a lab's tunnels take by default, bytes.
const USUAL: u16 = 1500;

/// A machine, as the doctor finds it.
#[derive(Debug, Serialize)]
pub struct Patient {
    /// Its name.
    pub machine: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// All checks. The first is the way there.
    pub checks: Vec<Check>,
}

/// A way between two machines.
#[derive(Debug, Serialize)]
pub struct Way {
    /// The machine that sent.
    pub from: String,
    /// The machine that listened.
    pub to: String,
    /// Size of the largest packet that arrived at the port of tunnels, bytes. `None`: none did.
    pub mtu: Option<u16>,
    /// The finding.
    pub check: Check,
}

/// All findings.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The machines, in the order of the question.
    pub machines: Vec<Patient>,
    /// Each way between two machines that answer.
    pub ways: Vec<Way>,
}

impl Findings {
    /// All checks.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
        self.machines.iter().flat_map(|machine| &machine.checks).chain(self.ways.iter().map(|way| &way.check))
    }
}

/// Looks at machines, and at the network between them. Nothing is changed. `number` is one that no other probe has.
#[must_use]
pub fn look(rsh: &Rsh, machines: &[Machine], number: u64) -> Findings {
    let looked = each(machines.iter().collect(), |machine: &Machine| {
        let patient = |checks| Patient { machine: machine.name.clone(), address: machine.address, checks };
        match answers(rsh, machine) {
            Ok((channel, checks)) => (patient(checks), Some(channel)),
            Err(error) => (patient(vec![unreachable(&error)]), None),
        }
    });
    let (mut patients, mut open) = (Vec::new(), Vec::new());
    for ((patient, channel), machine) in looked.into_iter().zip(machines) {
        patients.push(patient);
        open.extend(channel.map(|channel| (machine, channel)));
    }
    let ways = ways(open, number).unwrap_or_else(|error| {
        // It answered a moment ago.
        if let Some(first) = patients.first_mut() {
            first.checks.push(unreachable(&error));
        }
        Vec::new()
    });
    Findings { machines: patients, ways }
}

fn answers(rsh: &Rsh, machine: &Machine) -> Result<(Channel, Vec<Check>), MachineError> {
    let mut channel = Channel::open_quietly(rsh, machine)?;
    let here = env!("CARGO_PKG_VERSION");
    let mut checks = vec![good("reached", format!("root, with Slipway {here} as here"))];
    checks.push(clock(&mut channel)?);
    match channel.ask(DOING, &Order::Look)? {
        Answer::Looked { checks: own } => checks.extend(own),
        other => return Err(channel.lost(format!("it answered {other:?}"))),
    }
    Ok((channel, checks))
}

fn clock(channel: &mut Channel) -> Result<Check, MachineError> {
    let mut best: Option<Offset> = None;
    for _ in 0..TRIPS {
        let sent = date();
        let Answer::Clock { now: there } = channel.ask(DOING, &Order::Date)? else {
            return Err(channel.lost("it has no clock".to_owned()));
        };
        let offset = Trip { sent, there, received: date() }.offset();
        best = [best, offset].into_iter().flatten().min_by_key(|offset| offset.uncertainty);
    }
    let Some(Offset { offset, uncertainty }) = best else { return Ok(good("clock", "not compared".to_owned())) };
    let found =
        format!("{:+.1} ms from this machine's, known to {:.1} ms", offset as f64 / 1e6, uncertainty as f64 / 1e6);
    if offset.unsigned_abs() <= APART.max(uncertainty) {
        return Ok(good("clock", found));
    }
    let hint = "let all machines have a time service, such as chrony: times in their logs differ";
    Ok(check("clock", Verdict::Partial, found, Some(hint.to_owned())))
}

/// Has each machine send to all others, one after the other, while all listen.
fn ways(mut open: Vec<(&Machine, Channel)>, number: u64) -> Result<Vec<Way>, MachineError> {
    for (_, channel) in &mut open {
        channel.have_done(DOING, &Order::Listen { number }, &mut |_| ())?;
    }
    let addresses: Vec<Ipv4Addr> = open.iter().map(|(machine, _)| machine.address).collect();
    for (machine, channel) in &mut open {
        let from = machine.address;
        let to = addresses.iter().copied().filter(|&address| address != from).collect();
        channel.have_done("send from its address", &Order::Probe { number, from, to }, &mut |_| ())?;
    }
    let names: Vec<(String, Ipv4Addr)> =
        open.iter().map(|(machine, _)| (machine.name.clone(), machine.address)).collect();
    let heard = each(open, |(machine, mut channel)| match channel.ask(DOING, &Order::Heard)? {
        Answer::Heard { packets } => Ok((machine, packets)),
        other => Err(channel.lost(format!("it answered {other:?}"))),
    });
    let mut ways = Vec::new();
    for outcome in heard {
        let (to, packets) = outcome?;
        for (from, address) in names.iter().filter(|(name, _)| *name != to.name) {
            let of_it = |packet: &&Packet| packet.from == *address;
            let mtu = packets.iter().filter(of_it).map(|packet| packet.bytes).max();
            ways.push(Way { from: from.clone(), to: to.name.clone(), mtu, check: way(from, to, mtu) });
        }
    }
    Ok(ways)
}

fn way(from: &str, to: &Machine, mtu: Option<u16>) -> Check {
    let subject = format!("{from} → {}", to.name);
    match mtu {
        None => check(
            &subject,
            Verdict::Missing,
            format!("nothing arrives at UDP port {TUNNEL_PORT}, which tunnels between machines take"),
            Some(format!(
                "a firewall drops it on {from}, on {} or between: open UDP port {TUNNEL_PORT} for the machines, such as `nft insert rule inet filter input udp dport {TUNNEL_PORT} accept`",
                to.name
            )),
        ),
        Some(mtu) if mtu < USUAL => check(
            &subject,
            Verdict::Partial,
            format!("UDP port {TUNNEL_PORT} is open, and packets of {mtu} bytes arrive, but none of {USUAL}"),
            Some(format!("write `underlay: {{mtu: {}}}` in lab files", u32::from(mtu) - VXLAN_OVERHEAD)),
        ),
        Some(mtu) => good(&subject, format!("UDP port {TUNNEL_PORT} is open, and packets of {mtu} bytes arrive")),
    }
}

fn unreachable(error: &MachineError) -> Check {
    let text = error.to_string();
    let (found, hint) = text.split_once("\nHint: ").map_or((text.as_str(), None), |(found, hint)| (found, Some(hint)));
    check("reached", Verdict::Missing, format!("no: failed to {found}"), hint.map(str::to_owned))
}

fn good(subject: &str, found: String) -> Check {
    check(subject, Verdict::Good, found, None)
}

fn check(subject: &str, verdict: Verdict, found: String, hint: Option<String>) -> Check {
    Check { subject: subject.to_owned(), verdict, found, hint }
}

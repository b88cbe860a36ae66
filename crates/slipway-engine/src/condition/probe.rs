//! What this machine has to make conditions of links with. Tried in a namespace that is thrown away.

use std::io;
use std::os::fd::AsFd as _;

use serde::{Deserialize, Serialize};
use slipway_sys::bpf::Program;
use slipway_sys::netlink::{
    BpfFilter, Direction, Handle, Netem, Netlink, NetlinkError, NewLink, Peer, Qdisc, Refused, ReplaceQdisc, Request,
    Tbf, Veth,
};
use slipway_sys::ns::{create_net, with_net};
use slipway_sys::tap::Tap;

use super::gate::return_program;
use crate::lack::Lack;

/// Each mechanism, or what it lacks here, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMeans {
    /// BPF programs at interfaces: cuts and partitions, and the way to the wire.
    pub gate: Result<(), Lack>,
    /// Slipway's own wire.
    pub wire: Result<(), Lack>,
    /// The kernel's netem.
    pub netem: Result<(), Lack>,
    /// The kernel's token bucket.
    pub tbf: Result<(), Lack>,
}

impl Default for LinkMeans {
    /// Nothing: as where nobody has looked.
    fn default() -> Self {
        let no = || Err(Lack::nobody_looked());
        Self { gate: no(), wire: no(), netem: no(), tbf: no() }
    }
}

const DEVICE: u32 = 100;

impl LinkMeans {
    /// Tries them all.
    #[must_use]
    pub fn probe() -> Self {
        match create_net().and_then(|net| with_net(net.as_fd(), || Ok(Self::here(&mut Netlink::open()?)))?) {
            Ok(means) => means,
            Err(error) => {
                let lack = Lack::new(format!("no network namespace can be made: {error}"));
                let no = || Err(lack.clone().with_hint("run slipway as root"));
                Self { gate: no(), wire: no(), netem: no(), tbf: no() }
            }
        }
    }

    fn here(netlink: &mut Netlink) -> Self {
        let link = NewLink { name: "veth".to_owned(), index: Some(DEVICE), ..NewLink::default() };
        let peer = Peer { name: "peer".to_owned(), ..Peer::default() };
        let made = netlink.run(&[Request::AddVeth(Veth { link, peer })]);
        // Each with a handle of its own: by the handle of one that is there, the kernel looks for no other kind.
        let mut qdisc = |handle: u16, qdisc: Qdisc| {
            let kind = qdisc.kind().to_owned();
            let replace = ReplaceQdisc { index: DEVICE, parent: Handle::ROOT, handle, qdisc };
            netlink.run(&[Request::ReplaceQdisc(replace)]).map_err(|error| missing(&error, &kind))
        };
        let tbf = qdisc(1, Qdisc::Tbf(Tbf { rate: 125_000, burst: 4096, limit: 65_536 }));
        let netem = qdisc(2, Qdisc::Netem(Netem::default()));
        let gate = made.map_err(|error| Lack::new(error.to_string())).and_then(|()| gate(netlink));
        let wire = gate.clone().and_then(|()| tap());
        Self { gate, wire, netem, tbf }
    }
}

fn gate(netlink: &mut Netlink) -> Result<(), Lack> {
    let program: Program = return_program(1, slipway_lab::scenario::Direction::Ingress).map_err(|error| {
        let text = error.to_string();
        Lack::new(text.lines().next().unwrap_or_default()).with_hint("it takes the machine's root")
    })?;
    let filter =
        BpfFilter { index: DEVICE, direction: Direction::Ingress, order: 1, program: program.as_fd(), name: "slipway" };
    let tried = netlink.run(&[Request::AddClsact(DEVICE), Request::AddBpfFilter(filter)]);
    tried.map_err(|error| {
        Lack::new(format!("a trial failed to {error}")).with_hint("boot a kernel with CONFIG_NET_CLS_BPF")
    })
}

fn tap() -> Result<(), Lack> {
    Tap::create("tap").map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Lack::new(error.to_string()).with_hint("it takes the machine's root"),
        _ => Lack::new(error.to_string()),
    })
}

/// A discipline that is not there is `ENOENT`.
fn missing(error: &NetlinkError, what: &str) -> Lack {
    let unknown = |refused: &Refused| refused.error.kind() == io::ErrorKind::NotFound;
    match error {
        NetlinkError::Refused(refused) if refused.iter().any(unknown) => Lack::new(format!("the kernel has no {what}"))
            .with_hint(format!("modprobe sch_{what}, or boot a kernel that has it")),
        error => Lack::new(format!("a trial failed to {error}")),
    }
}

//! Conditions of links, made real.
//!
//! Everything is done inside the node's own network namespace, the same for every driver that gives it an interface. Where a
//! node's programs may change what is there, all is at the host's end of the interface ([`inside::Seat`]). Three parts, of which an interface has what it needs and no more:
//!
//! - the **gate** ([`gate`]): BPF programs at the interface that drop (cuts, partitions) or send packets by way of the wire;
//! - the **wire** (`slipway_wire`): one process per lab that delays, drops and paces frames, reached through a TAP device for
//!   each direction;
//! - the kernel's own queueing disciplines (**netem**, **tbf**), where it has them and they do what is asked.
//!
//! [`live`] is what is asked for now, [`choose`] which part serves it, [`links`] what is kept, [`change`] takes changes and
//! [`make`] keeps the kernel in step. ADR 0009 says why.

mod account;
mod change;
mod choose;
mod devices;
mod error;
mod gate;
mod inside;
mod interface;
mod links;
mod live;
mod make;
mod matrices;
mod plan;
mod probe;
mod report;
mod seed;

pub use choose::{Mechanism, Unable};
pub use error::LinkError;
pub(crate) use inside::Seat;
pub use inside::Shape;
pub(crate) use links::{Around, Links};
pub use live::Place;
pub use matrices::{MatrixError, read_matrices};
pub use probe::LinkMeans;
pub use report::{DirectionReport, InterfaceReport, LinkReport, PeerReport, WireState};
pub use slipway_wire::PortStats;

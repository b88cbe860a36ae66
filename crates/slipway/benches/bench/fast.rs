//! The fast path, interleaved with the networks that it slips past and with the host's own.
//! `cargo bench -p slipway --bench bench -- fast`, or one of `fast-hosts`, `fast-host`, `fast-setup`, `fast-flows`, `fast-router`, `fast-apps`
//! and `fast-apps-hosts`.
//!
//! Every table is one run: all labs are up at once, and a round measures each thing on every one of them in turn.
//!
//! Promises: SPECIFICATION.md, "The fast path".

mod apps;
mod flows;
mod load;
mod memory;
mod path;
mod rate;
mod site;
mod table;
mod verbs;

pub(super) use apps::{apps_of_one_host, apps_of_two_hosts};
pub(super) use flows::run as flows;
pub(super) use load::{WORD as LOAD, run as load};
pub(super) use memory::run as router;
pub(super) use path::{host, hosts};
pub(super) use rate::run as setup;
pub(super) use verbs::{
    hosts as verbs_hosts, rates as verbs_rates, run as verbs, scale as verbs_scale, sizes as verbs_sizes,
};

//! The lab model: what a lab file says, what it means, and what is wrong with it. Pure: no I/O, the same on every machine.

pub mod change;
mod check;
pub mod condition;
pub mod defaults;
mod file;
pub mod graph;
pub mod id;
mod kind;
mod list;
pub mod matrix;
pub mod model;
mod names;
mod pair;
pub mod plan;
pub mod policy;
mod remark;
mod resolve;
pub mod scenario;
mod schema;
mod select;
mod short;
mod template;
mod written;

pub use kind::LAB_FILE;
pub use pair::PeerRule;
pub use remark::{Remark, locate};
pub use resolve::{Overrides, TuneChoice, parse, parse_policy, parse_scenario, parse_with};
pub use schema::json_schema;
pub use select::SelectError;
pub use short::short_limits;
pub use template::template;

//! The lab model: what a lab file says, what it means, and what is wrong with it. Pure: no I/O, the same on every machine.

pub mod change;
mod check;
pub mod condition;
mod de;
pub mod defaults;
pub mod errors;
mod file;
pub mod graph;
pub mod id;
pub mod matrix;
pub mod model;
mod names;
mod pair;
pub mod policy;
mod remark;
mod resolve;
pub mod scenario;
mod schema;
mod select;
mod shape;
mod short;
mod template;
pub mod text;
pub mod tree;
pub mod units;
mod written;

pub use errors::{LabError, LabErrors};
pub use names::{closest, suggest};
pub use pair::PeerRule;
pub use remark::{Remark, locate};
pub use resolve::{Overrides, parse, parse_policy, parse_scenario, parse_with};
pub use schema::json_schema;
pub use select::SelectError;
pub use short::short_limits;
pub use template::template;

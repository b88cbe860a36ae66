//! Results of campaigns as tables that answer SQL.
//!
//! The tables are derived: [`Tables`] makes them from the queue and the stored series, and makes them again where they
//! are missing or damaged. [`query`] asks them. All of it runs in a program of its own, `slipway-query`, because `DataFusion`
//! has threads and is large, and `slipway` forks and starts often (docs/adr/0041).

mod batch;
pub mod cli;
mod error;
mod list;
pub mod output;
mod part;
mod points;
pub mod query;
mod tables;

pub use error::QueryError;
pub use list::read as read_list;
pub use tables::{Fault, Table, Tables};

//! The campaign model: what a campaign file says, what it means, and what is wrong with it. Pure: no I/O.
//!
//! A *campaign* runs one program many times. Its *design* says how many *points* there are and which inputs each has.
//! Both follow from the file, its seed and a point's number alone, so any machine computes any point at any time.

pub mod condition;
pub mod design;
mod distribution;
pub mod edit;
mod file;
mod hash;
mod kind;
pub mod model;
mod normal;
mod resolve;
mod schema;
pub mod score;
pub mod search;
pub mod sensitivity;
pub mod template;
pub mod value;

pub use kind::CAMPAIGN_FILE;
pub use resolve::parse;
pub use schema::{example, json_schema};

//! Results of campaigns: extracted from files, stored by digest, asked with SQL.
//!
//! Results do not pass through the coordinator. A worker extracts values and series ([`extract`]), and packs files into
//! objects ([`objects`]). The coordinator gets a record of values and digests, and moves objects without reading them.

mod beneath;
mod digest;
pub mod extract;
pub mod objects;
pub mod series;

pub use digest::{Digest, NotADigest};

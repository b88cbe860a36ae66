//! Results of campaigns: extracted from files, stored by digest, asked with SQL.

mod beneath;
pub mod extract;

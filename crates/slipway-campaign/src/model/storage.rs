//! The place of state and results.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The place of state and results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The folder of the state, and of results without a bucket; `None`: the campaign's name below `slipway-campaigns`.
    pub folder: Option<PathBuf>,
    /// The bucket of the results.
    pub bucket: Option<Bucket>,
}

/// A part of a bucket on a server that speaks S3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Beginning of the names of all objects, without a `/` at its ends; empty for the whole bucket.
    pub prefix: String,
    /// URL of the server; `None`: that of AWS in the region.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// File with the key; `None`: environment variables have it.
    pub credentials: Option<PathBuf>,
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "s3://{}{slash}{}", self.name, self.prefix)
    }
}

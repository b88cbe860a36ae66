//! The use of a machine that advice is for.

use serde::{Deserialize, Serialize};

use crate::facts::{Fact, Facts};

/// A use of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Transfers of data over long paths.
    Dtn,
    /// Programs that compute together, with low latency between them.
    Hpc,
    /// Any server that moves much data.
    Server,
}

/// The use of a machine that advice is for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// The kind of use.
    pub profile: Profile,
    /// The round-trip time of the path, seconds.
    pub rtt: f64,
    /// The rate that transfers are to reach, bit/s.
    pub rate: f64,
}

impl Profile {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dtn => "dtn",
            Self::Hpc => "hpc",
            Self::Server => "server",
        }
    }

    /// The round-trip time that is usual for it, seconds: across a continent, within a room, within a country.
    #[must_use]
    pub fn usual_rtt(self) -> f64 {
        match self {
            Self::Dtn => 0.1,
            Self::Hpc => 0.001,
            Self::Server => 0.03,
        }
    }
}

impl Target {
    /// The rate of the fastest link of the machine, bit/s; 1 Gbit/s where no link tells its rate.
    #[must_use]
    pub fn usual_rate(facts: &Facts) -> f64 {
        let up = facts.nics.iter().filter(|nic| nic.is_up == Fact::Known(true));
        let fastest = up.filter_map(|nic| nic.speed.known().copied()).fold(0.0, f64::max);
        if fastest > 0.0 { fastest } else { 1e9 }
    }

    /// Bytes in flight on the path: the bandwidth-delay product.
    #[must_use]
    pub fn bdp(&self) -> f64 {
        (self.rate * self.rtt / 8.0).round()
    }
}

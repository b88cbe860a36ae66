//! How TCP is set for a path: congestion control by the round-trip time, and by what the kernel offers.

use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// From this round-trip time on a lost segment costs CUBIC more than BBR's probing costs.
const FAR: Duration = Duration::from_millis(2);
/// File with the congestion controls that the kernel offers to this process (`ip-sysctl.rst`).
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The congestion control for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// A name to set; `None` leaves the kernel's default.
    wanted: Option<&'static str>,
    /// The control in force, for the report.
    pub(crate) in_force: String,
}

/// Chooses for a path.
pub(crate) fn choose(rtt: Duration) -> Rules {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let available = read(AVAILABLE);
    if rtt >= FAR && available.split_whitespace().any(|name| name == "bbr") {
        return Rules { wanted: Some("bbr"), in_force: "bbr".to_owned() };
    }
    let default = read("/proc/sys/net/ipv4/tcp_congestion_control");
    Rules { wanted: None, in_force: default.trim().to_owned() }
}

impl Rules {
    /// Sets the options of a stream. Buffers are the kernel's to tune: it knows the path better after a round trip.
    pub(crate) fn apply(&self, socket: &TcpStream) {
        let Some(wanted) = self.wanted else { return };
        if let Err(error) = sockopt::set_tcp_congestion(socket, wanted) {
            tracing::warn!("failed to choose congestion control {wanted}: {error}");
        }
    }
}

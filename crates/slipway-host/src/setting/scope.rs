//! How far this process may reach: the whole machine, or one network namespace.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::Serialize;

use super::key::Key;
use super::machine::sysctl_path;

/// The kernel's fixed number of the first process namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PROCESS_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Parameters that each network namespace has for itself, by the beginning of their names. The kernel has the last word: in a
/// namespace it makes those read-only that belong to all (`net/core/sysctl_net_core.c`, `net/ipv4/sysctl_net_ipv4.c`).
const OF_A_NAMESPACE: &[&str] = &[
    "net.ipv4.",
    "net.ipv6.",
    "net.mptcp.",
    "net.netfilter.",
    "net.sctp.",
    "net.unix.",
    "net.core.optmem_max",
    "net.core.rps_default_mask",
    "net.core.somaxconn",
    "net.core.txrehash",
];

/// Parameters with such names that belong to the machine all the same.
const OF_THE_MACHINE: &[&str] = &[
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_max_orphans",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_expect_max",
];

/// The settings that belong to this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All of them.
    Machine,
    /// Those of its network namespace, for this reason.
    Namespace(String),
}

impl Scope {
    /// Finds it out: whether this process is in the machine's first process and user namespaces, and in the network namespace of
    /// process 1. In doubt, the machine is not this process's.
    #[must_use]
    pub fn find() -> Self {
        let number = |path: &str| fs::metadata(path).ok().map(|file| file.ino());
        if number("/proc/self/ns/pid") != Some(FIRST_PROCESS_NAMESPACE) {
            return Self::Namespace(
                "this is a container: it is not in the machine's first process namespace".to_owned(),
            );
        }
        if !slipway_sys::ns::in_first_user_namespace().unwrap_or(false) {
            return Self::Namespace("this is not the machine's first user namespace".to_owned());
        }
        match (number("/proc/thread-self/ns/net"), number("/proc/1/ns/net")) {
            (Some(own), Some(first)) if own == first => Self::Machine,
            (Some(_), Some(_)) => Self::Namespace("this is not the machine's first network namespace".to_owned()),
            _ => Self::Namespace("the network namespace of process 1 cannot be seen".to_owned()),
        }
    }

    /// Whether a setting belongs to this process.
    ///
    /// # Errors
    /// With the reason, for people.
    pub fn allows(&self, key: &Key) -> Result<(), String> {
        let Self::Namespace(why) = self else { return Ok(()) };
        let own = match key {
            Key::Sysctl(name) => is_of_a_namespace(name) && is_writable(&sysctl_path(Path::new("/proc"), name)),
            Key::Nic { .. } => true,
            _ => false,
        };
        if own { Ok(()) } else { Err(format!("it belongs to the whole machine, and {why}")) }
    }
}

/// Whether each network namespace has its own value of a kernel parameter.
fn is_of_a_namespace(name: &str) -> bool {
    OF_A_NAMESPACE.iter().any(|start| name.starts_with(start)) && !OF_THE_MACHINE.contains(&name)
}

/// Whether the kernel lets anybody write it. One that is not there is left to the read that follows.
fn is_writable(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |file| file.permissions().mode() & 0o222 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_settings_alone() {
        let scope = Scope::Namespace("this is a test".to_owned());
        let allows = |key: &str| scope.allows(&key.parse().expect("a key"));
        for own in ["sysctl net.ipv4.tcp_rmem", "nic eth0 mtu"] {
            assert_eq!(allows(own), Ok(()), "{own}");
        }
        let others = [
            "sysctl net.core.rmem_max",
            "sysctl net.ipv4.tcp_mem",
            "sysctl vm.swappiness",
            "irq 1",
            "block sda readahead",
            "cpu governor",
            "thp",
            "module tcp_bbr",
        ];
        for other in others {
            assert!(allows(other).expect_err(other).contains("this is a test"));
            assert_eq!(Scope::Machine.allows(&other.parse().expect("a key")), Ok(()));
        }
    }
}

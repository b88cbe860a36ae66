//! Linux, made safe: what the engine needs of the kernel, each part behind a small interface that cannot be misused.
//!
//! Nothing here knows what a lab is.

pub mod block;
pub mod bpf;
pub mod caps;
pub mod cgroup;
pub mod clone;
pub mod counters;
pub mod device;
pub mod exe;
pub mod helper;
pub mod init;
pub mod interfaces;
pub mod mount;
pub mod netlink;
pub mod notify;
pub mod ns;
pub mod process;
pub mod pty;
pub mod sched;
pub mod seccomp;
pub mod shared;
pub mod signals;
pub mod sock_diag;
pub mod sockopt;
pub mod tap;
pub mod usage;

//! Giving up capabilities, and asking for another thread's (`capabilities(7)`).

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::process::status;

/// Capabilities of a program in a node: a container's default set (moby, `oci/caps/defaults.go`) without `CAP_MKNOD`.
///
/// `CAP_MKNOD` is missing because a container engine pairs it with a device cgroup, which nodes lack: their device
/// files come by bind mount. Root in a node could otherwise make a device file and open this machine's disks.
/// `CAP_NET_RAW` stays for ping; MPI needs nothing here.
pub const DEFAULT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// The capabilities that a thread may use now, in its own user namespace (`CapEff`, `proc_pid_status(5)`).
///
/// # Errors
/// `NotFound` where there is no such thread.
pub fn effective(tid: i32) -> io::Result<CapabilitySet> {
    let bits = u64::from_str_radix(&status(tid, "CapEff")?, 16).map_err(io::Error::other)?;
    Ok(CapabilitySet::from_bits_retain(bits))
}

/// Takes everything outside `keep` out of this thread's bounding set, so that no exec can bring it back.
/// To be called before any change of user, while `CAP_SETPCAP` is there.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP`.
pub fn bound(keep: CapabilitySet) -> io::Result<()> {
    // Asked bit by bit rather than by name: a kernel may know capabilities that this program does not.
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) if !keep.contains(one) => remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reduces this thread's effective and permitted sets to what `keep` has of them and clears the inheritable and ambient
/// sets, as container engines do (an inheritable set that is not empty turned out a hole: CVE-2022-24769).
///
/// # Errors
/// As `capset(2)`.
pub fn limit(keep: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let permitted = capabilities(None)?.permitted & keep;
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() })?;
    Ok(())
}

//! Networks of driver `fast`: what they need of this machine beside the container network beneath them, which another
//! driver makes. The rest of them is in [`crate::fast`].

use slipway_fast::{filter, pairs};
use slipway_lab::model::DriverKind;
use slipway_sys::ns::in_first_user_namespace;

use super::driver::Probed;
use super::error::Unsupported;

/// The first kernel that lets who holds no `CAP_BPF` write what is kept on sockets. From 5.14 on it installs a descriptor and
/// answers a call in one step (`SECCOMP_ADDFD_FLAG_SEND`).
const OLDEST: (u32, u32) = (5, 19);

/// How this machine would run the fast path over a container network that it runs like that.
pub(super) fn over(beneath: Result<Probed, Unsupported>) -> Result<Probed, Unsupported> {
    let Probed { mechanism, mut notes, .. } =
        beneath.map_err(|lacks| Unsupported { driver: DriverKind::Fast, ..lacks })?;
    let lacks = |missing: &str, hint: &str| {
        Err(Unsupported { driver: DriverKind::Fast, missing: missing.to_owned(), hint: hint.to_owned() })
    };
    if kernel().is_none_or(|version| version < OLDEST) {
        return lacks(
            "its kernel is older than 5.19 and does not let a router keep notes on sockets",
            "boot a newer kernel, or take driver bridge or vxlan, which are what it is built on",
        );
    }
    if !in_first_user_namespace().unwrap_or(false) {
        return lacks(
            "in a user namespace the kernel lets nobody keep notes on sockets (BPF)",
            "run slipway as root outside of one, or take driver bridge or vxlan, which are what it is built on",
        );
    }
    notes.push("TCP alone takes the fast path; all else is carried by what is beneath".to_owned());
    if !pairs::are_supported() {
        notes.push(
            "its kernel is older than 6.16, so that connections within a host are ones of TCP over its loopback"
                .to_owned(),
        );
    }
    if let Err(why) = filter::count_interruptions() {
        notes.push(format!("a connection can be lost where a signal keeps a program from hearing of it: {why}"));
    }
    Ok(Probed { driver: DriverKind::Fast, mechanism: format!("a fast path for TCP over {mechanism}"), notes })
}

/// The first two numbers of the kernel that runs.
pub(super) fn kernel() -> Option<(u32, u32)> {
    let uname = rustix::system::uname();
    let mut numbers = uname.release().to_str().ok()?.split(['.', '-', '+']).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

//! The kernel that runs.

/// The first two numbers of its version. `None` where its release is written in another way.
pub(crate) fn version() -> Option<(u32, u32)> {
    let uname = rustix::system::uname();
    let mut numbers = uname.release().to_str().ok()?.split(['.', '-', '+']).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

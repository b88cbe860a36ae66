//! Calls before and after `fork(2)`, as `pthread_atfork(3)` has them.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::OnceLock;

use super::pages;

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> c_int;
}

extern "C" fn before() {
    pages::before_fork();
}

extern "C" fn in_parent() {
    pages::after_fork(false);
}

extern "C" fn in_child() {
    pages::after_fork(true);
}

/// Whether the process calls these from now on.
pub(super) fn are_watched() -> bool {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the functions live as long as the plug-in, which is never unloaded.
    *WATCHED.get_or_init(|| unsafe { pthread_atfork(before, in_parent, in_child) } == 0)
}

//! The plug-in's way into libibverbs, and calls of the C library that have no safe form.
//!
//! The library that loads the plug-in has the four functions of the private interface, and they are looked up there. So the
//! plug-in links with none, and a static program with this module needs none.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::OnceLock;

use super::memory::Piece;
use crate::abi::{ContextOps, Device, DeviceOps, INTERFACES, Interface, VerbsContext};

/// Functions of libibverbs' private interface.
pub(super) struct Library {
    pub(super) init_context: unsafe extern "C" fn(*mut Device, c_int, usize, *mut VerbsContext, u32) -> *mut c_void,
    pub(super) set_ops: unsafe extern "C" fn(*mut VerbsContext, *const ContextOps),
    pub(super) uninit_context: unsafe extern "C" fn(*mut VerbsContext),
    pub(super) register: unsafe extern "C" fn(*const DeviceOps),
    pub(super) interface: &'static Interface,
}

/// The library that has loaded the plug-in; `None` where its private interface is another one.
pub(super) fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(find).as_ref()
}

#[allow(clippy::missing_transmute_annotations)] // The fields say the types.
fn find() -> Option<Library> {
    // SAFETY: the name ends with a zero byte. The library is loaded already, and stays.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    INTERFACES.iter().find_map(|interface| {
        let find = |name: &CStr| {
            // SAFETY: the handle is open, and both names end with a zero byte.
            let symbol = unsafe { libc::dlvsym(handle, name.as_ptr(), interface.version.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        // SAFETY: all of these interfaces have these functions with these types (`libibverbs/driver.h`).
        unsafe {
            Some(Library {
                init_context: transmute::<*mut c_void, _>(find(c"_verbs_init_and_alloc_context")?),
                set_ops: transmute::<*mut c_void, _>(find(c"verbs_set_ops")?),
                uninit_context: transmute::<*mut c_void, _>(find(c"verbs_uninit_context")?),
                register: transmute::<*mut c_void, _>(find(interface.register)?),
                interface,
            })
        }
    })
}

/// Sets `errno(3)` of the calling thread.
pub(super) fn set_errno(errno: i32) {
    // SAFETY: the location is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Tells the program of a completion: libibverbs reads the completion queue's address from the channel. Only this program
/// writes there, so no peer chooses an address.
pub(super) fn write_event(channel: c_int, handle: u64) {
    let bytes = handle.to_ne_bytes();
    // SAFETY: the bytes live through the call. A descriptor that the program has closed is an error that changes nothing.
    let _ = unsafe { libc::write(channel, bytes.as_ptr().cast(), bytes.len()) };
}

/// Tells the program that a shared receive queue has fewer requests than it wants (`struct ib_uverbs_async_event_desc`).
pub(super) fn write_srq_event(channel: c_int, handle: u64) {
    const SRQ_LIMIT_REACHED: u64 = 15;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&handle.to_ne_bytes());
    bytes[8..].copy_from_slice(&SRQ_LIMIT_REACHED.to_ne_bytes());
    // SAFETY: as for `write_event`.
    let _ = unsafe { libc::write(channel, bytes.as_ptr().cast(), bytes.len()) };
}

/// Takes back events of a completion queue that has ended: the program must not follow its address any more. Gives how many.
pub(super) fn drop_events(channel: c_int, handle: u64) -> u64 {
    let (mut others, mut gone) = (Vec::new(), 0);
    let mut poll = libc::pollfd { fd: channel, events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure and the bytes live through the calls.
    unsafe {
        while libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 {
            let mut bytes = [0; 8];
            if libc::read(channel, bytes.as_mut_ptr().cast(), 8) != 8 {
                break;
            }
            let event = u64::from_ne_bytes(bytes);
            if event == handle {
                gone += 1;
            } else {
                others.push(event);
            }
        }
    }
    for event in others {
        write_event(channel, event);
    }
    gone
}

/// Makes a channel that one descriptor reads and writes: a pipe that is opened for both (`fifo(7)`).
pub(super) fn channel() -> c_int {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors. The path names one that is open.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return -1;
        }
        let path = format!("/proc/self/fd/{}\0", ends[0]);
        let both = libc::open(path.as_ptr().cast::<c_char>(), libc::O_RDWR | libc::O_CLOEXEC);
        libc::close(ends[0]);
        libc::close(ends[1]);
        both
    }
}

/// Signals that a thread had blocked.
pub(super) struct Signals(libc::sigset_t);

/// Blocks all signals of the calling thread, and of those that it starts.
pub(super) fn block_signals() -> Signals {
    let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: `sigfillset` initialises the first, and `pthread_sigmask` the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        Signals(old.assume_init())
    }
}

pub(super) fn restore_signals(old: &Signals) {
    // SAFETY: the set comes from `pthread_sigmask`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old.0, std::ptr::null_mut()) };
}

/// Whether `read(2)` of a descriptor waits for data.
pub(super) fn waits(file: c_int) -> bool {
    // SAFETY: a number. An error is -1, whose bits say that reads do not wait.
    unsafe { libc::fcntl(file, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

/// Whether calls go on after all of the program's handlers of signals (`SA_RESTART`, `signal(7)`).
pub(super) fn handlers_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call fills the structure, which is of numbers, or leaves it.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Whether some pages are of the calling thread's stack. Where the bounds are unknown, all are taken to be.
pub(super) fn is_own_stack(pages: Piece) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let (mut start, mut length) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call fills the attributes, which the second reads and the third gives back.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return true;
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut length);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    let start = start.addr();
    pages.at < start.saturating_add(length) && start < pages.at + pages.length
}

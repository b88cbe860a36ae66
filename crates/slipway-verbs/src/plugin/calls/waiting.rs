//! Reading a channel: libibverbs' own `read(2)`, in whose place this module waits ([`direct`](super::super::direct)).
//!
//! `ibv_get_cq_event(3)` is no operation of a provider: it reads the channel itself. So the plug-in puts a function of its own where
//! libibverbs keeps the address of `read`. Where that fails, programs read as ever, and the thread of service wakes them.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::io::Errno;

use super::super::device::Device;
use super::super::imports::replace;
use super::super::loader::{handlers_restart, set_errno, waits};
use super::super::waiters::Next;

/// Bytes of an event (`struct ib_uverbs_comp_event_desc`).
const EVENT: usize = 8;
/// Events that a thread takes at once.
const AT_ONCE: usize = 16;

/// `struct _pthread_cleanup_buffer` (`pthread.h`).
#[repr(C)]
struct Cleanup {
    words: [usize; 4],
}

/// Functions of the C library for what a thread does when it is cancelled. Programs cancel threads that wait for completions.
struct OnCancel {
    push: unsafe extern "C" fn(*mut Cleanup, extern "C" fn(*mut c_void), *mut c_void),
    pop: unsafe extern "C" fn(*mut Cleanup, c_int),
}

unsafe extern "C-unwind" {
    // Cancellation unwinds from these.
    fn epoll_wait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int;
    #[link_name = "read"]
    fn read_file(file: c_int, to: *mut c_void, length: usize) -> isize;
}

/// The devices of channels.
static CHANNELS: Mutex<Vec<(c_int, Weak<Device>)>> = Mutex::new(Vec::new());

fn on_cancel() -> Option<&'static OnCancel> {
    static FOUND: OnceLock<Option<OnCancel>> = OnceLock::new();
    let find = || {
        // SAFETY: the names end with a zero byte, and `pthread.h` has declared these functions with these types since glibc 2.0.
        unsafe {
            let push = libc::dlsym(libc::RTLD_DEFAULT, c"_pthread_cleanup_push".as_ptr());
            let pop = libc::dlsym(libc::RTLD_DEFAULT, c"_pthread_cleanup_pop".as_ptr());
            (!push.is_null() && !pop.is_null()).then(|| OnCancel {
                push: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut Cleanup, extern "C" fn(*mut c_void), *mut c_void),
                >(push),
                pop: transmute::<*mut c_void, unsafe extern "C" fn(*mut Cleanup, c_int)>(pop),
            })
        }
    };
    FOUND.get_or_init(find).as_ref()
}

/// A completion queue of the device has this channel.
pub(super) fn note(channel: c_int, device: &Arc<Device>) {
    static ONCE: OnceLock<bool> = OnceLock::new();
    if !*ONCE.get_or_init(|| on_cancel().is_some() && replace(c"read", read as *mut c_void)) {
        return;
    }
    let mut channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    channels.retain(|(other, device)| *other != channel && device.strong_count() > 0);
    channels.push((channel, Arc::downgrade(device)));
}

fn device_of(channel: c_int) -> Option<Arc<Device>> {
    let channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    channels.iter().find(|(other, _)| *other == channel)?.1.upgrade()
}

/// The place of libibverbs' `read(2)`.
///
/// # Safety
/// As for `read(2)`.
unsafe extern "C-unwind" fn read(file: c_int, to: *mut c_void, length: usize) -> isize {
    if length == EVENT
        && let Some((event, errno)) = wait(file)
    {
        if errno != 0 {
            set_errno(errno);
            return -1;
        }
        // SAFETY: the caller has room for that many bytes.
        unsafe { to.cast::<u64>().write_unaligned(event) };
        return EVENT.cast_signed();
    }
    // SAFETY: the caller's.
    let count = unsafe { read_file(file, to, length) };
    if count == EVENT.cast_signed()
        && length == EVENT
        && let Some(device) = device_of(file)
    {
        device.lock().took(file);
    }
    count
}

/// Waits for an event. Gives it with the number 0, or an error's number. `None` where the file is to be read.
fn wait(channel: c_int) -> Option<(u64, c_int)> {
    let on_cancel = on_cancel()?;
    let (held, epoll) = match begin(channel) {
        Begun::Sleeps(held, epoll) => (held, epoll),
        Begun::Has(event) => return Some((event, 0)),
        Begun::Reads => return None,
    };
    loop {
        // Cancellation drops nothing here, so nothing that has to be dropped lives here: `abandon` does it all.
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        let mut cleanup = Cleanup { words: [0; 4] };
        // SAFETY: both structures live through the calls. The pointer is that of `begin`, which `abandon` takes.
        let count = unsafe {
            (on_cancel.push)(&raw mut cleanup, abandon, held.cast_mut().cast());
            let count = epoll_wait(epoll, events.as_mut_ptr(), 16, -1);
            (on_cancel.pop)(&raw mut cleanup, 0);
            count
        };
        match woken(held, &events, count) {
            Next::Event(event) => return Some((event, 0)),
            Next::Sleep => {}
            Next::Read if count < 0 => return Some((0, Errno::INTR.raw_os_error())),
            Next::Read => return None,
        }
    }
}

enum Begun {
    /// The device, one count of which is held, and the descriptor that it waits on.
    Sleeps(*const Device, c_int),
    Has(u64),
    Reads,
}

fn begin(channel: c_int) -> Begun {
    use std::os::fd::AsRawFd as _;
    let Some(device) = device_of(channel) else { return Begun::Reads };
    let mut state = device.lock();
    let (next, epoll) = (state.begin_wait(channel, || waits(channel)), state.epoll.as_raw_fd());
    drop(state);
    match next {
        Next::Event(event) => Begun::Has(event),
        Next::Sleep => Begun::Sleeps(Arc::into_raw(device), epoll),
        Next::Read => Begun::Reads,
    }
}

/// The step after a sleep. The device's count is given back with all but another sleep.
fn woken(held: *const Device, events: &[libc::epoll_event], count: c_int) -> Next {
    // SAFETY: `begin` holds a count.
    let device = unsafe { Arc::from_raw(held) };
    let mut state = device.lock();
    let next = match usize::try_from(count) {
        Ok(count) => {
            let events: Vec<u64> = events.iter().take(count).map(|event| event.u64).collect();
            state.waited(&events)
        }
        // As `read(2)` does: it goes on where the handlers of signals want that.
        Err(_) if handlers_restart() => state.waited(&[]),
        Err(_) => {
            state.end_wait();
            Next::Read
        }
    };
    drop(state);
    if next == Next::Sleep {
        let _ = Arc::into_raw(device);
    }
    next
}

/// A thread is cancelled while it waits.
extern "C" fn abandon(held: *mut c_void) {
    // SAFETY: `begin` holds a count, which nobody else gives back now.
    let device = unsafe { Arc::from_raw(held.cast_const().cast::<Device>()) };
    device.lock().end_wait();
}

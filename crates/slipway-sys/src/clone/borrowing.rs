//! Processes that borrow their maker's memory until they execute a program (`vfork(2)`), so that the kernel copies none of it.

use std::arch::asm;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::sched::CloneFlags;
use rustix::process::Pid;

use super::{CloneArgs, INTO_CGROUP, SingleThread};

/// Bytes of [`Stack`]: an eighth of a process's own, and many times as much as the deepest that runs on one.
const STACK: usize = 1 << 20;

/// The parts of their own that processes with borrowed memory have, one process after the other.
#[derive(Debug)]
pub struct Stack(Vec<u128>);

impl Default for Stack {
    fn default() -> Self {
        Self(vec![0; STACK / size_of::<u128>()])
    }
}

struct Call<'a> {
    child: &'a mut dyn FnMut(Pid),
    /// The kernel writes it before the child runs.
    pid: i32,
}

/// The first function of a child.
#[allow(unsafe_code)]
extern "C" fn enter(call: *mut Call<'_>) -> ! {
    // SAFETY: the caller of `clone_borrowing` waits, so that its `Call` lives and nobody else has it.
    let call = unsafe { &mut *call };
    if let Some(pid) = Pid::from_raw(call.pid) {
        (call.child)(pid);
    }
    // SAFETY: nothing of the memory's owner is to run here, such as what it has for its own end.
    unsafe { libc::_exit(1) }
}

/// Runs `child` in a new process, in new namespaces as `flags` say (`CLONE_NEW*` only), born in `group` as with
/// [`super::clone_into`]. The process has this one's memory, and this one waits until it has executed a program or ended. It has
/// descriptors of its own, copies of the caller's. It is a sibling (`CLONE_PARENT`): its parent is the caller's. `child` is told
/// its number in the caller's PID namespace, and the caller gets it afterwards. A `child` that returns ends with code 1.
///
/// Memory that `child` takes, and does not give back before it executes a program, is lost. It must not hold a lock then.
///
/// # Errors
/// As `clone3(2)`.
#[allow(unsafe_code)]
pub fn clone_borrowing(
    _proof: SingleThread,
    flags: CloneFlags,
    group: Option<BorrowedFd<'_>>,
    stack: &mut Stack,
    child: &mut dyn FnMut(Pid),
) -> io::Result<Pid> {
    let (into, cgroup) = match group {
        Some(group) => (INTO_CGROUP, u64::from(group.as_raw_fd().unsigned_abs())),
        None => (0, 0),
    };
    let borrow = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID;
    let mut call = Call { child, pid: 0 };
    let args = CloneArgs {
        flags: into | u64::from((flags.bits() | borrow).cast_unsigned()),
        parent_tid: (&raw mut call.pid).addr() as u64,
        stack: stack.0.as_mut_ptr().addr() as u64,
        stack_size: STACK as u64,
        cgroup,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is a valid clone_args of the size given. The child begins on `stack`, which is aligned, and nobody else uses. There it
    // calls `enter`, which does not return. This thread is the only one of the process, and stands still until the child has
    // left the memory: so the child may do with `call` and all other memory what this thread may. The kernel keeps all
    // registers but those named (`syscall(2)`).
    let result = unsafe { call_clone3(&raw const args, &raw mut call) };
    match i32::try_from(result) {
        Ok(pid) if pid > 0 => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
unsafe fn call_clone3(args: *const CloneArgs, call: *mut Call<'_>) -> i64 {
    let result: i64;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            // The outermost frame of its stack.
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            in("r12") call,
            in("r13") enter as extern "C" fn(*mut Call<'_>) -> !,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
unsafe fn call_clone3(args: *const CloneArgs, call: *mut Call<'_>) -> i64 {
    let result: i64;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            // The outermost frame of its stack.
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone3,
            inout("x0") args => result,
            in("x1") size_of::<CloneArgs>(),
            in("x20") call,
            in("x21") enter as extern "C" fn(*mut Call<'_>) -> !,
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use rustix::process::{WaitOptions, getpid, getppid, waitpid};

    use super::*;

    #[test]
    fn the_maker_sees_what_its_child_wrote_and_keeps_its_descriptors() {
        // In a process of its own, since this one has threads.
        // SAFETY: none of the harness's locks is taken by what runs there.
        #[allow(unsafe_code)]
        let maker = unsafe { libc::fork() };
        if maker == 0 {
            let code = i32::from(!borrows().unwrap_or(false));
            // SAFETY: the harness's own end is not this process's.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(code);
            }
        }
        let (_, status) = waitpid(Pid::from_raw(maker), WaitOptions::empty()).expect("a child").expect("it ends");
        assert_eq!(status.exit_status(), Some(0));
    }

    fn borrows() -> io::Result<bool> {
        let file: OwnedFd = File::open("/dev/null")?.into();
        let copy = file.try_clone()?;
        let (mut told, mut is_first, mut closed) = (None, false, Some(copy));
        let number = closed.as_ref().map(OwnedFd::as_raw_fd);
        let proof = SingleThread::check()?;
        let made = clone_borrowing(proof, CloneFlags::CLONE_NEWPID, None, &mut Stack::default(), &mut |pid| {
            told = Some(pid);
            is_first = getpid().is_init() && getppid().is_none();
            closed = None;
        })?;
        let here = std::path::Path::new("/proc/self/fd").join(number.unwrap_or(-1).to_string()).exists();
        let parents = crate::process::status(made.as_raw_nonzero().get(), "PPid")?
            == crate::process::status(getpid().as_raw_nonzero().get(), "PPid")?;
        Ok(told == Some(made) && is_first && closed.is_none() && here && parents)
    }
}

//! The calls that a process allows itself, and the verdict on any other.

use std::ffi::c_long;
use std::fmt::{self, Write as _};
use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::When;
use super::bpf::{Case, Verdict};

/// Calls that a process allows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// E.g. `SYS_read`.
    pub call: c_long,
    /// With which arguments.
    pub when: When,
}

impl Permit {
    /// Calls with any arguments.
    #[must_use]
    pub fn every(call: c_long) -> Self {
        Self { call, when: When::Always }
    }

    /// Calls whose argument `index` (the first is 0), bits outside `mask` left out, is one of `values`.
    #[must_use]
    pub fn only(call: c_long, index: u8, mask: u32, values: &[u32]) -> Self {
        Self { call, when: When::Argument { index, mask, values: values.to_vec() } }
    }
}

/// The whole table: one entry for each call.
pub(super) fn calls(permits: &[Permit], missing: &[c_long]) -> Vec<(u32, Verdict)> {
    let mut calls: Vec<(u32, Vec<Case>)> = Vec::new();
    for permit in permits {
        // Every call's number is positive and small.
        let Ok(number) = u32::try_from(permit.call) else { continue };
        let case = Case { tests: permit.when.tests(), verdict: Verdict::Allow };
        match calls.iter_mut().find(|(call, _)| *call == number) {
            Some((_, cases)) => cases.push(case),
            None => calls.push((number, vec![case])),
        }
    }
    let permitted = calls.into_iter().map(|(number, mut cases)| {
        // The kernel remembers a verdict that hangs on no argument (`seccomp_cache_prepare_bitmap`).
        if cases.iter().any(|case| case.tests.is_empty()) {
            return (number, Verdict::Allow);
        }
        cases.push(Case { tests: Vec::new(), verdict: Verdict::Signal });
        (number, Verdict::Cases(cases))
    });
    let missing = missing.iter().filter_map(|&call| u32::try_from(call).ok());
    permitted.chain(missing.map(|number| (number, Verdict::Errno(libc::ENOSYS)))).collect()
}

/// Names a call that a filter answers with `SIGSYS` on standard error, and then ends the process with `SIGABRT`. A
/// process that was made to call something new must not go on, and a developer who forgot a call must learn which.
///
/// # Errors
/// As `sigaction(2)`.
#[allow(unsafe_code)]
pub(super) fn tell() -> io::Result<()> {
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(told), flags, SigSet::empty());
    // SAFETY: the handler neither allocates nor locks, and does not return.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

/// `struct siginfo` of `SIGSYS` (`include/uapi/asm-generic/siginfo.h`).
#[repr(C)]
struct Forbidden {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    at: *mut libc::c_void,
    number: libc::c_int,
    architecture: libc::c_uint,
}

#[allow(unsafe_code)]
extern "C" fn told(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO both, whole and for as long as it runs; of SIGSYS the first has this form.
    let (number, [one, two, three]) = unsafe { ((*info.cast::<Forbidden>()).number, arguments(&*context.cast())) };
    let mut line = Line { bytes: [0; 160], length: 0 };
    // It fits.
    let _ = writeln!(
        line,
        "system call {number} ({one:#x}, {two:#x}, {three:#x}, ...) is none that this process allows itself"
    );
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.length]);
    std::process::abort()
}

#[cfg(target_arch = "x86_64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 3] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(|at| {
        usize::try_from(at).ok().and_then(|at| context.uc_mcontext.gregs.get(at)).map_or(0, |it| it.cast_unsigned())
    })
}

#[cfg(target_arch = "aarch64")]
fn arguments(context: &libc::ucontext_t) -> [u64; 3] {
    let [one, two, three, ..] = context.uc_mcontext.regs;
    [one, two, three]
}

/// Text in memory of its own: a signal's handler must not ask for any.
struct Line {
    bytes: [u8; 160],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

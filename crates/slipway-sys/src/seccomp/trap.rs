//! The trapped calls, and the verdict on each.

use std::ffi::c_long;

use super::bpf::{self, Case, Test};

/// Calls that are caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// E.g. `SYS_connect`.
    pub call: c_long,
    /// With which arguments.
    pub when: When,
    /// The verdict on them.
    pub verdict: Verdict,
}

/// A test of a call's argument, of its low half alone. The kernel takes no more of a C `int`, so a test of more would
/// let a call in disguise through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// Nothing.
    Always,
    /// That the argument `index` (the first is 0, the last 5), bits outside `mask` left out, is one of `values`.
    Argument {
        /// The index of the argument.
        index: u8,
        /// The bits to compare.
        mask: u32,
        /// The values that fit.
        values: Vec<u32>,
    },
    /// That the first argument is `family` and the third one of `protocols`, as `socket(2)` has them.
    Socket {
        /// E.g. `AF_NETLINK`.
        family: i32,
        /// E.g. `NETLINK_ROUTE`.
        protocols: Vec<i32>,
    },
    /// That the second argument is `level` and the third one of `names`, as `getsockopt(2)` has them.
    Pair {
        /// E.g. `SOL_SOCKET`.
        level: i32,
        /// E.g. `SO_DOMAIN`.
        names: Vec<i32>,
    },
}

/// The verdict on a trapped call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It waits for the [`Listener`](crate::notify::Listener)'s answer.
    Notify,
    /// It fails with this error number.
    Errno(i32),
    /// It is made, whatever traps that come later say.
    Allow,
}

impl Trap {
    /// Calls with any arguments, which wait for the listener's answer.
    #[must_use]
    pub fn every(call: c_long) -> Self {
        Self { call, when: When::Always, verdict: Verdict::Notify }
    }

    fn case(&self) -> Case {
        let verdict = match self.verdict {
            Verdict::Notify => bpf::Verdict::Notify,
            Verdict::Errno(errno) => bpf::Verdict::Errno(errno),
            Verdict::Allow => bpf::Verdict::Allow,
        };
        Case { tests: self.when.tests(), verdict }
    }
}

impl When {
    pub(super) fn tests(&self) -> Vec<Test> {
        match self {
            Self::Always => Vec::new(),
            Self::Argument { index, mask, values } => {
                vec![Test { argument: (*index).into(), mask: *mask, values: values.clone() }]
            }
            Self::Socket { family, protocols } => both((0, *family), (2, protocols)),
            Self::Pair { level, names } => both((1, *level), (2, names)),
        }
    }
}

/// Tests of two arguments, the second against several values.
fn both((first, value): (u32, i32), (second, values): (u32, &[i32])) -> Vec<Test> {
    let values = values.iter().map(|value| value.cast_unsigned()).collect();
    vec![
        Test { argument: first, mask: u32::MAX, values: vec![value.cast_unsigned()] },
        Test { argument: second, mask: u32::MAX, values },
    ]
}

/// The whole table: one entry for each call.
pub(super) fn calls(traps: &[Trap]) -> Vec<(u32, bpf::Verdict)> {
    let mut calls: Vec<(u32, Vec<Case>)> = Vec::new();
    for trap in traps {
        // Every call's number is positive and small.
        let Ok(number) = u32::try_from(trap.call) else { continue };
        match calls.iter_mut().find(|(call, _)| *call == number) {
            Some((_, cases)) => cases.push(trap.case()),
            None => calls.push((number, vec![trap.case()])),
        }
    }
    let calls = calls.into_iter().map(|(number, cases)| match &cases[..] {
        // The kernel remembers a verdict that hangs on no argument (`seccomp_cache_prepare_bitmap`).
        [first, ..] if first.tests.is_empty() => (number, first.verdict.clone()),
        _ => (number, bpf::Verdict::Cases(cases)),
    });
    calls.chain([(LAST, bpf::Verdict::Allow)]).collect()
}

/// From the next number on x86 has its x32 calls (`__X32_SYSCALL_BIT`, `arch/x86/include/uapi/asm/unistd.h`), which go by the
/// same architecture. No processor has numbers of its own up there.
const LAST: u32 = 0x3fff_ffff;

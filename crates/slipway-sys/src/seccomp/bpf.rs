//! From a table of call numbers to classic BPF.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, EPERM,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP, SECCOMP_RET_USER_NOTIF, sock_filter,
};

#[cfg(target_arch = "x86_64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Offsets into `struct seccomp_data` (`linux/seccomp.h`). Arguments are 64 bits wide. On both supported little-endian
/// processors the low half comes first, and the kernel itself takes only that half of the arguments tested here.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENT_0: u32 = 16;

/// The action on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// Fails with this error.
    Errno(i32),
    /// Allowed where the first argument is one of these values (sorted), `EPERM` otherwise.
    FirstIn(Vec<u32>),
    /// Allowed where the first argument has none of these bits, `EPERM` otherwise.
    FirstWithout(u32),
    /// Waits for whoever listens.
    Notify,
    /// Is not made; the thread gets `SIGSYS`.
    Signal,
    /// The verdict of the first case that fits; without one, the call is allowed.
    Cases(Vec<Case>),
}

/// Something that is done with a call where all tests are met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) tests: Vec<Test>,
    /// Not itself [`Verdict::Cases`].
    pub(super) verdict: Verdict,
}

/// Met where an argument, the bits outside `mask` left out, is one of these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) argument: u32,
    pub(super) mask: u32,
    pub(super) values: Vec<u32>,
}

/// Every value from `start` up to the next run's start gets `verdict`.
#[derive(Debug, Clone)]
struct Run {
    start: u32,
    verdict: Verdict,
}

/// Compiles the calls, in any order. Calls that are not named get the verdict `between`, those with a number above all named
/// ones `above`.
pub(super) fn compile(arch: u32, calls: &[(u32, Verdict)], between: &Verdict, above: &Verdict) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCH),
        // A call through another ABI (32-bit) has other numbers, so nothing here applies to it.
        jump(BPF_JEQ, arch, 1, 0),
        verdict(u32::try_from(libc::ENOSYS).unwrap_or(0)),
        load(NUMBER),
    ];
    program.extend(search(&runs(calls, between, above)));
    program
}

/// Joins the values into as few runs as say the same; `between` fills the gaps, `above` what follows the last.
fn runs(values: &[(u32, Verdict)], between: &Verdict, above: &Verdict) -> Vec<Run> {
    let mut values = values.to_vec();
    values.sort_by_key(|(value, _)| *value);
    let mut runs: Vec<Run> = vec![Run { start: 0, verdict: between.clone() }];
    let mut next = 0;
    let mut push = |start: u32, verdict: &Verdict| match runs.last_mut() {
        Some(last) if last.start == start => last.verdict = verdict.clone(),
        Some(last) if last.verdict == *verdict => {}
        _ => runs.push(Run { start, verdict: verdict.clone() }),
    };
    for (value, verdict) in &values {
        if *value > next {
            push(next, between);
        }
        push(*value, verdict);
        next = value.saturating_add(1);
    }
    if next != u32::MAX {
        push(next, above);
    }
    runs
}

/// A binary search for the run that the loaded value falls in.
fn search(runs: &[Run]) -> Vec<sock_filter> {
    if let [only] = runs {
        return leaf(&only.verdict);
    }
    let (low, high) = runs.split_at(runs.len() / 2);
    let (below, from) = (search(low), search(high));
    let mut program = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(BPF_JGE, high[0].start, length, 0)],
        // A conditional jump reaches 255 instructions; an unconditional one any number.
        Err(_) => vec![jump(BPF_JGE, high[0].start, 0, 1), leap(u32::try_from(below.len()).unwrap_or(u32::MAX))],
    };
    program.extend(below);
    program.extend(from);
    program
}

fn leaf(what: &Verdict) -> Vec<sock_filter> {
    match what {
        Verdict::Allow => vec![statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)],
        Verdict::Errno(errno) => vec![verdict(errno.unsigned_abs())],
        Verdict::FirstIn(values) => {
            let values: Vec<_> = values.iter().map(|&value| (value, Verdict::Allow)).collect();
            let denied = Verdict::Errno(EPERM);
            let mut program = vec![load(ARGUMENT_0)];
            program.extend(search(&runs(&values, &denied, &denied)));
            program
        }
        Verdict::FirstWithout(bits) => vec![
            load(ARGUMENT_0),
            jump(BPF_JSET, *bits, 0, 1),
            verdict(EPERM.unsigned_abs()),
            statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        ],
        Verdict::Notify => vec![statement(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)],
        Verdict::Signal => vec![statement(BPF_RET | BPF_K, SECCOMP_RET_TRAP)],
        Verdict::Cases(cases) => {
            let mut program: Vec<_> = cases.iter().flat_map(case).collect();
            program.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
            program
        }
    }
}

/// Runs on into what follows where a test is not met.
fn case(case: &Case) -> Vec<sock_filter> {
    let mut program = leaf(&case.verdict);
    // From the last test to the first: each leaps over all that comes after it.
    for test in case.tests.iter().rev() {
        let mut before = vec![load(ARGUMENT_0 + 8 * test.argument)];
        if test.mask != u32::MAX {
            before.push(statement(BPF_ALU | BPF_AND | BPF_K, test.mask));
        }
        let values = u32::try_from(test.values.len()).unwrap_or(u32::MAX);
        for (value, following) in test.values.iter().zip((0..values).rev()) {
            // A conditional jump reaches 255 instructions; an unconditional one any number.
            before.push(jump(BPF_JEQ, *value, 0, 1));
            before.push(leap(2 * following + 1));
        }
        before.push(leap(u32::try_from(program.len()).unwrap_or(u32::MAX)));
        before.extend(program);
        program = before;
    }
    program
}

fn verdict(errno: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno)
}

fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn statement(code: u32, k: u32) -> sock_filter {
    instruction(code, k, 0, 0)
}

fn leap(over: u32) -> sock_filter {
    statement(BPF_JMP | BPF_JA, over)
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    instruction(BPF_JMP | BPF_K | test, k, jt, jf)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // Every BPF operation code fits 16 bits (`linux/bpf_common.h`).
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OTHER_ARCH: u32 = 0x4000_0003;

    /// The kernel's interpretation of the instructions used here.
    fn run(program: &[sock_filter], arch: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let class = u32::from(step.code);
            if class == (BPF_LD | BPF_W | BPF_ABS) {
                loaded = match step.k {
                    NUMBER => number,
                    ARCH => arch,
                    16 => arguments[0],
                    24 => arguments[1],
                    32 => arguments[2],
                    other => panic!("no such field: {other}"),
                };
            } else if class == (BPF_ALU | BPF_AND | BPF_K) {
                loaded &= step.k;
            } else if class == (BPF_RET | BPF_K) {
                return step.k;
            } else if class == (BPF_JMP | BPF_JA) {
                at += step.k as usize;
            } else {
                let met = match class & 0xf0 {
                    BPF_JEQ => loaded == step.k,
                    BPF_JGE => loaded >= step.k,
                    BPF_JSET => loaded & step.k != 0,
                    other => panic!("no such test: {other}"),
                };
                at += usize::from(if met { step.jt } else { step.jf });
            }
        }
    }

    fn expected(calls: &[(u32, Verdict)], number: u32, arguments: [u32; 3]) -> u32 {
        let denied = SECCOMP_RET_ERRNO | EPERM.unsigned_abs();
        let argument = arguments[0];
        let met = |test: &Test| test.values.contains(&(arguments[test.argument as usize] & test.mask));
        match calls.iter().find(|(call, _)| *call == number).map(|(_, verdict)| verdict) {
            Some(Verdict::Allow) => SECCOMP_RET_ALLOW,
            Some(Verdict::Errno(errno)) => SECCOMP_RET_ERRNO | errno.unsigned_abs(),
            Some(Verdict::FirstIn(values)) if values.contains(&argument) => SECCOMP_RET_ALLOW,
            Some(Verdict::FirstWithout(bits)) if argument & bits == 0 => SECCOMP_RET_ALLOW,
            Some(Verdict::Notify) => SECCOMP_RET_USER_NOTIF,
            Some(Verdict::Signal) => SECCOMP_RET_TRAP,
            Some(Verdict::Cases(cases)) => match cases.iter().find(|case| case.tests.iter().all(met)) {
                Some(case) => expected(&[(number, case.verdict.clone())], number, arguments),
                None => SECCOMP_RET_ALLOW,
            },
            None if calls.iter().all(|(call, _)| *call < number) => SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
            _ => denied,
        }
    }

    fn any_verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            4 => Just(Verdict::Allow),
            1 => (1..100).prop_map(Verdict::Errno),
            1 => prop::collection::btree_set(0u32..50, 0..20).prop_map(|set| Verdict::FirstIn(set.into_iter().collect())),
            1 => any::<u32>().prop_map(Verdict::FirstWithout),
            1 => prop::collection::vec(any_case(), 0..4).prop_map(Verdict::Cases),
        ]
    }

    fn any_case() -> impl Strategy<Value = Case> {
        let mask = prop_oneof![Just(u32::MAX), Just(0x1f), any::<u32>()];
        let test = (0u32..3, mask, prop::collection::vec(0u32..60, 0..300)).prop_map(|(argument, mask, values)| Test {
            argument,
            mask,
            values,
        });
        let verdict = prop_oneof![Just(Verdict::Notify), Just(Verdict::Signal), (1..100).prop_map(Verdict::Errno)];
        (prop::collection::vec(test, 0..3), verdict).prop_map(|(tests, verdict)| Case { tests, verdict })
    }

    proptest! {
        #[test]
        fn the_program_says_what_the_table_says(
            table in prop::collection::btree_map(0u32..600, any_verdict(), 1..400),
            number in 0u32..700,
            arguments in prop::array::uniform3(prop_oneof![0u32..60, any::<u32>()]),
        ) {
            let calls: Vec<_> = table.into_iter().collect();
            let program = compile(AUDIT_ARCH, &calls, &Verdict::Errno(EPERM), &Verdict::Errno(libc::ENOSYS));
            prop_assert_eq!(run(&program, AUDIT_ARCH, number, arguments), expected(&calls, number, arguments));
            prop_assert_eq!(run(&program, OTHER_ARCH, number, arguments), SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
        }
    }
}

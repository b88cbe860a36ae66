//! The time of each processor (`proc_stat(5)`).

use std::fs;
use std::io;

/// Time of one processor since the start, in clock ticks of hundredths of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Processor {
    /// Its number.
    pub number: u32,
    /// Programs' own, also of guests and of low priority.
    pub user: u64,
    /// The kernel's, for programs.
    pub system: u64,
    /// The kernel's, for devices: interrupts and what they leave for later (`softirq`).
    pub interrupts: u64,
    /// Idle, also while it waits for a disk.
    pub idle: u64,
    /// Taken by another guest of the same machine.
    pub stolen: u64,
}

/// The use of one processor between two readings, each 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// Its number.
    pub number: u32,
    /// Not idle, taken by another guest included.
    pub busy: f64,
    /// In programs.
    pub user: f64,
    /// In the kernel, for programs.
    pub system: f64,
    /// In interrupts, and in what they leave for later.
    pub interrupts: f64,
    /// Taken by another guest.
    pub stolen: f64,
}

/// Reads all processors.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn processors() -> io::Result<Vec<Processor>> {
    Ok(parse(&fs::read_to_string("/proc/stat")?))
}

fn parse(text: &str) -> Vec<Processor> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, waiting, irq, softirq, ref more @ ..] = ticks[..] else { return None };
        Some(Processor {
            number,
            user: user.saturating_add(nice),
            system,
            interrupts: irq.saturating_add(softirq),
            idle: idle.saturating_add(waiting),
            stolen: more.first().copied().unwrap_or(0),
        })
    };
    text.lines().filter_map(line).collect()
}

/// The use of each processor that is in both readings, in the order of `after`. A count that went back counts as none.
#[must_use]
pub fn shares(before: &[Processor], after: &[Processor]) -> Vec<Share> {
    let share = |now: &Processor| {
        let then = before.iter().find(|then| then.number == now.number)?;
        let of = |field: fn(&Processor) -> u64| field(now).saturating_sub(field(then)) as f64;
        let (user, system, interrupts) = (of(|p| p.user), of(|p| p.system), of(|p| p.interrupts));
        let (idle, stolen) = (of(|p| p.idle), of(|p| p.stolen));
        let busy = user + system + interrupts + stolen;
        let all = busy + idle;
        (all > 0.0).then(|| Share {
            number: now.number,
            busy: busy / all,
            user: user / all,
            system: system / all,
            interrupts: interrupts / all,
            stolen: stolen / all,
        })
    };
    after.iter().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn processors_are_read_and_their_use_is_a_share() {
        let before = parse("cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 0 5 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n");
        let after = parse("cpu0 20 0 35 110 0 10 40 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(before.len(), 2);
        let shares = shares(&before, &after);
        assert_eq!(shares.len(), 1, "no time went by on processor 1");
        let Share { number, busy, user, system, interrupts, stolen } = shares[0];
        assert_eq!((number, busy, user, system, interrupts, stolen), (0, 0.9, 0.1, 0.3, 0.5, 0.0));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(!processors().expect("/proc is there").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read(before in "(cpu[0-9]{1,2}( [0-9]{1,20}){0,10}\n){0,4}", after in "(cpu[0-9]( [0-9]{1,20}){0,10}\n){0,4}", other: String) {
            parse(&other);
            for share in shares(&parse(&before), &parse(&after)) {
                prop_assert!((0.0..=1.0).contains(&share.busy), "{share:?}");
            }
        }
    }
}

//! How busy the machine is (`proc_stat(5)`): a second without idle time is one in which conditions may be the machine's
//! and not the scenario's.

use std::fs;

/// Processor time since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    /// Of all processors together; `None` where the kernel does not say.
    pub(super) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user already.
        let ticks: Vec<u64> = fields.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        Some(Self { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }

    /// The share of time since `before` that was not idle; `None` where none has passed.
    pub(super) fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|&all| all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some(1.0 - idle as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stolen_by_other_machines_is_not_idle() {
        let text = "cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let before = Ticks::read(text).expect("as the kernel writes it");
        assert_eq!(before, Ticks { all: 100, idle: 70 });
        let after = Ticks { all: 200, idle: 95 };
        assert_eq!(after.busy_since(before), Some(0.75));
        assert_eq!(before.busy_since(before), None);
    }
}

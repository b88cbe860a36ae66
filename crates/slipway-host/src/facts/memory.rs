//! Memory.

use serde::Serialize;

use super::fact::Fact;
use super::source::Source;

/// Memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All of it, bytes.
    pub total: Fact<u64>,
    /// Huge pages that are set aside.
    pub huge_pages: Fact<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Fact<String>,
}

pub(super) fn gather(source: &Source) -> Memory {
    let all = source.read("/proc/meminfo");
    let line = |name: &str| {
        all.clone().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            number.map_or_else(|| Fact::unknown(format!("/proc/meminfo has no {name}")), Fact::Known)
        })
    };
    Memory {
        total: line("MemTotal").map(|kib| kib.saturating_mul(1024)),
        huge_pages: line("HugePages_Total"),
        transparent_huge_pages: source.chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
    }
}

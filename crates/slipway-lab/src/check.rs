//! Rules for conditions and limits, the same for those of a file and those of a running lab.

use slipway_document::units::{Bytes, Cores, Fraction, Rate, Seconds};

use crate::condition::{Cpu, Limits, LinkConditions, Loss};

/// Nothing that an experiment waits for takes longer on its way.
pub(crate) const LONGEST_DELAY: Seconds = Seconds(3600.0);
/// The kernel counts bytes per second in 64 bits and nanoseconds per byte; links end well before.
const HIGHEST_RATE: Rate = Rate(1_000_000_000_000);
/// No root file system runs a program in less.
const LEAST_MEMORY: Bytes = Bytes(4 << 20);
/// The kernel's least quota is 1 ms in 100 ms (`min_cfs_quota_period`, kernel/sched/core.c).
const LEAST_CPU: Cores = Cores(0.01);
/// `CONFIG_NR_CPUS` goes no further.
const MOST_CPU: Cores = Cores(8192.0);
/// That many processors at some 10 GHz.
const MOST_MEGAHERTZ: f64 = 1e8;
/// The kernel's range, in seconds: `min_cfs_quota_period` and `max_cfs_quota_period`, kernel/sched/core.c.
const PERIODS: std::ops::RangeInclusive<f64> = 1e-3..=1.0;
/// Smaller ones have no room for a journal.
const LEAST_DISK: Bytes = Bytes(16 << 20);

/// Something that cannot hold, in conditions that may have come together from several places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct Problem {
    /// The key to blame.
    pub key: &'static str,
    /// The fault.
    pub message: String,
    /// The next step.
    pub help: String,
    /// The key that is missing, where another value elsewhere would put it right.
    pub needs: Option<&'static str>,
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, key: &'static str, message: impl Into<String>, help: impl Into<String>) {
        self.0.push(Problem { key, message: message.into(), help: help.into(), needs: None });
    }

    /// `key` says something about `other`, which is not there.
    fn needs(&mut self, key: &'static str, other: &'static str, example: &str) {
        let message = format!("`{key}` without `{other}`");
        let help = format!("add `{other}`, such as {example}, or leave `{key}` out");
        self.0.push(Problem { key, message, help, needs: Some(other) });
    }
}

pub(crate) fn link(conditions: &LinkConditions) -> Vec<Problem> {
    let c = conditions;
    let mut problems = Problems::default();
    for (key, time) in [("delay", c.delay), ("jitter", c.jitter)] {
        if let Some(time) = time.filter(|time| *time > LONGEST_DELAY) {
            problems.add(key, format!("a {key} of {time} is longer than any link's"), "write at most `1h`");
        }
    }
    if let Some(rate) = c.rate.filter(|rate| !(Rate(1)..=HIGHEST_RATE).contains(rate)) {
        let help = format!("write `1bit` to `{HIGHEST_RATE}`; to stop everything, `slipway cut`");
        problems.add("rate", format!("no link sends at {rate}"), help);
    }
    for (key, room) in [("limit", c.limit), ("queue", c.queue)] {
        if room == Some(0) {
            let help = format!("write 1 or more, or leave `{key}` out");
            problems.add(key, "a queue without room lets no packet through", help);
        }
    }
    if c.gap == Some(0) {
        problems.add("gap", "every 0 packets is no gap", "write 1 or more, or leave `gap` out");
    }
    if let Some(loss) = &c.loss {
        self::loss(loss, c.loss_correlation.is_some(), &mut problems);
    }
    let needs = [
        ("jitter", c.jitter.is_some(), "delay", c.delay.is_some(), "`20ms`"),
        ("distribution", c.distribution.is_some(), "jitter", c.jitter.is_some(), "`5ms`"),
        ("delay_correlation", c.delay_correlation.is_some(), "jitter", c.jitter.is_some(), "`5ms`"),
        ("loss_correlation", c.loss_correlation.is_some(), "loss", c.loss.is_some(), "`0.5%`"),
        ("reorder", c.reorder.is_some(), "delay", c.delay.is_some(), "`20ms`"),
        ("reorder_correlation", c.reorder_correlation.is_some(), "reorder", c.reorder.is_some(), "`1%`"),
        ("gap", c.gap.is_some(), "reorder", c.reorder.is_some(), "`1%`"),
        ("queue", c.queue.is_some(), "rate", c.rate.is_some(), "`10mbit`"),
    ];
    for (key, _, other, _, example) in needs.into_iter().filter(|(_, has, _, has_other, _)| *has && !has_other) {
        problems.needs(key, other, example);
    }
    problems.0
}

fn loss(loss: &Loss, correlated: bool, problems: &mut Problems) {
    // Shares that were written in percent and add up to 100 % may not do so in binary.
    let exceeds = |a: &Fraction, b: &Fraction| a.0 + b.0 > 1.0 + 1e-9;
    match loss {
        Loss::Random(_) => {}
        _ if correlated => {
            let help = "leave `loss_correlation` out, or write `loss` as one percentage";
            problems.add("loss_correlation", "a loss model with states has a memory of its own", help);
        }
        Loss::FourState { p13, p14, .. } if exceeds(p13, p14) => {
            problems.add(
                "loss",
                format!("p13 and p14 together are more than 100 %: {p13}, {p14}"),
                "write smaller ones",
            );
        }
        Loss::FourState { p31, p32, .. } if exceeds(p31, p32) => {
            problems.add(
                "loss",
                format!("p31 and p32 together are more than 100 %: {p31}, {p32}"),
                "write smaller ones",
            );
        }
        _ => {}
    }
}

pub(crate) fn limits(limits: &Limits) -> Vec<Problem> {
    let mut problems = Problems::default();
    processor(limits, &mut problems);
    memory(limits, &mut problems);
    disk(limits, &mut problems);
    if let Some(pids) = limits.pids.filter(|pids| *pids < 8) {
        problems.add("pids", format!("{pids} processes are too few for init and a program"), "write 8 or more");
    }
    problems.0
}

fn processor(limits: &Limits, problems: &mut Problems) {
    let help = match limits.cpu {
        Some(Cpu::Cores(cores)) if !(LEAST_CPU..=MOST_CPU).contains(&cores) => format!("write `1%` to `{MOST_CPU}`"),
        Some(Cpu::Megahertz(mhz)) if !(1.0..=MOST_MEGAHERTZ).contains(&mhz) => "write `1 MHz` or more".to_owned(),
        _ => String::new(),
    };
    if !help.is_empty() {
        problems.add("cpu", "this is too little or too much processor time", help);
    }
    if let Some(period) = limits.cpu_period {
        if !PERIODS.contains(&period.0) {
            problems.add(
                "cpu_period",
                format!("processor time cannot be counted over {period}"),
                "write `1ms` to `1s`",
            );
        }
        if limits.cpu.is_none() {
            problems.needs("cpu_period", "cpu", "`50%`");
        }
    }
}

fn memory(limits: &Limits, problems: &mut Problems) {
    for (key, memory) in [("memory", limits.memory), ("memory_soft", limits.memory_soft)] {
        if let Some(memory) = memory.filter(|memory| *memory < LEAST_MEMORY) {
            problems.add(
                key,
                format!("{memory} is too little for any program"),
                format!("write {LEAST_MEMORY} or more"),
            );
        }
    }
    if let (Some(soft), Some(hard)) = (limits.memory_soft, limits.memory)
        && soft > hard
    {
        let message = format!("the soft limit {soft} is above the hard one, {hard}");
        problems.add("memory_soft", message, "write a smaller `memory_soft`, or a greater `memory`");
    }
    if limits.swap.is_some() && limits.memory.is_none() {
        problems.needs("swap", "memory", "`512MiB`");
    }
}

fn disk(limits: &Limits, problems: &mut Problems) {
    let disk = &limits.disk;
    if let Some(size) = disk.size.filter(|size| *size < LEAST_DISK) {
        let message = format!("{size} is too little for a file system");
        problems.add("disk.size", message, format!("write {LEAST_DISK} or more"));
    }
    let speeds = [
        ("disk.read", disk.read.is_some_and(|rate| rate.0 == 0)),
        ("disk.write", disk.write.is_some_and(|rate| rate.0 == 0)),
        ("disk.read_iops", disk.read_iops == Some(0)),
        ("disk.write_iops", disk.write_iops == Some(0)),
    ];
    for (key, _) in speeds.into_iter().filter(|(_, none)| *none) {
        problems.add(key, "a disk that does nothing stops every program that uses it", "write 1 or more");
    }
}

//! The text of the files: sysctl.d(5), udev(7), tmpfiles.d(5) and modules-load.d(5).

use std::fmt::Write as _;
use std::time::SystemTime;

use crate::setting::journal::Entry;
use crate::setting::key::{BlockKnob, Key, NicKnob};
use crate::setting::persisted::TUNED;

/// The beginning of every file that Slipway writes.
const MARK: &str = "# Slipway wrote this file";
/// Lines of the header.
const HEADER_LINES: usize = 3;

/// Whether a file's text is Slipway's, by its first line.
pub(in crate::setting) fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The reason why no file can set it, where none can.
pub(super) fn obstacle(key: &Key) -> Option<&'static str> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    match key {
        Key::Irq { .. } => Some("interrupts have other numbers after a reboot"),
        Key::Nic { name, .. } | Key::Block { name, .. } if !plain(name) => Some("udev takes its name for a pattern"),
        _ => None,
    }
}

/// The lines of one file. Empty where no entry belongs into it.
pub(super) fn body(path: &str, entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries.iter().filter(|entry| entry.persisted) {
        let Some((file, lines)) = entry.wrote.as_ref().and_then(|value| lines(&entry.key, value)) else { continue };
        if path.starts_with(file) {
            let _ = writeln!(text, "{lines}");
        }
    }
    text
}

/// The text with its header.
pub(super) fn whole(entries: &[Entry], path: &str, body: &str) -> String {
    let belongs = |entry: &&Entry| {
        let lines = entry.wrote.as_ref().and_then(|value| lines(&entry.key, value));
        entry.persisted && (path == TUNED || lines.is_some_and(|(file, _)| path.starts_with(file)))
    };
    let mut rules: Vec<&str> = entries.iter().filter(belongs).map(|entry| entry.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: String = rules.join(", ").chars().filter(|char| !char.is_control()).collect();
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    format!(
        "{MARK} at {now}, for: {rules}\n\
         # `slipway tune rollback` removes it, and restores the values of before.\n\
         # Slipway leaves it alone once somebody has edited it.\n{body}"
    )
}

/// The lines after the header.
pub(super) fn body_of(text: &str) -> String {
    text.split_inclusive('\n').skip(HEADER_LINES).collect()
}

/// The folder of the file that a setting belongs into, and its lines there.
fn lines(key: &Key, value: &str) -> Option<(&'static str, String)> {
    if obstacle(key).is_some() {
        return None;
    }
    Some(match key {
        Key::Sysctl(name) => ("etc/sysctl.d/", format!("{name} = {value}")),
        Key::Nic { name, what } => ("etc/udev/rules.d/", nic(name, what, value)),
        Key::Block { name, what } => {
            let file = match what {
                BlockKnob::Scheduler => "scheduler",
                BlockKnob::ReadAheadKib => "read_ahead_kb",
                BlockKnob::NrRequests => "nr_requests",
            };
            let rule = format!(
                r#"ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="{name}", ATTR{{queue/{file}}}="{value}""#
            );
            ("etc/udev/rules.d/", rule)
        }
        Key::CpuGovernor => {
            let file = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
            ("etc/tmpfiles.d/", format!("w {file} - - - - {value}"))
        }
        Key::TransparentHugePages => {
            ("etc/tmpfiles.d/", format!("w /sys/kernel/mm/transparent_hugepage/enabled - - - - {value}"))
        }
        Key::Module(name) if value == "loaded" => ("etc/modules-load.d/", name.clone()),
        Key::Module(_) | Key::Irq { .. } => return None,
    })
}

/// Two rules: an interface may have its name already, or get it by an earlier rule of the same event.
fn nic(name: &str, what: &NicKnob, value: &str) -> String {
    let value = value.split(' ').next().unwrap_or_default();
    let ethtool = |option: &str, knob: &str| format!(r#"RUN+="/usr/sbin/ethtool {option} {name} {knob} {value}""#);
    let deed = match what {
        NicKnob::RingRx => ethtool("-G", "rx"),
        NicKnob::RingTx => ethtool("-G", "tx"),
        NicKnob::CoalesceRxUsecs => ethtool("-C", "rx-usecs"),
        NicKnob::CoalesceTxUsecs => ethtool("-C", "tx-usecs"),
        NicKnob::CoalesceAdaptiveRx => ethtool("-C", "adaptive-rx"),
        NicKnob::CoalesceAdaptiveTx => ethtool("-C", "adaptive-tx"),
        NicKnob::Feature(feature) => ethtool("-K", feature),
        NicKnob::ChannelsCombined => ethtool("-L", "combined"),
        NicKnob::TxQueueLen => format!(r#"ATTR{{tx_queue_len}}="{value}""#),
        NicKnob::Mtu => format!(r#"ATTR{{mtu}}="{value}""#),
        NicKnob::Qdisc => format!(r#"RUN+="/usr/sbin/tc qdisc replace dev {name} root {value}""#),
        NicKnob::Rps(queue) => format!(r#"ATTR{{queues/rx-{queue}/rps_cpus}}="{value}""#),
        NicKnob::RpsFlows(queue) => format!(r#"ATTR{{queues/rx-{queue}/rps_flow_cnt}}="{value}""#),
        NicKnob::Xps(queue) => format!(r#"ATTR{{queues/tx-{queue}/xps_cpus}}="{value}""#),
    };
    ["KERNEL", "NAME"]
        .map(|word| format!(r#"ACTION=="add|move", SUBSYSTEM=="net", {word}=="{name}", {deed}"#))
        .join("\n")
}

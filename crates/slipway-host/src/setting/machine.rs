//! The machine that this process runs on, seen from its thread's network namespace.

mod nic;
mod qdisc;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::kernel::{Kernel, SettingError, is_sound, tidy};
use super::key::{BlockKnob, Key};

/// Largest file of the kernel's that is read, bytes.
const LARGEST: usize = 64 << 10;

/// The real kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Kernel for Machine {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        let value = match key {
            Key::Sysctl(name) => read_sysctl(name),
            Key::Nic { name, what } => nic::read(name, what),
            Key::Irq { irq } => read(&PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list"))),
            Key::Block { name, what } => read(&block_path(name, *what)).map(|text| match what {
                BlockKnob::Scheduler => chosen(&text),
                BlockKnob::ReadAheadKib | BlockKnob::NrRequests => text,
            }),
            Key::CpuGovernor => read_governors(),
            Key::TransparentHugePages => read(Path::new(HUGE_PAGES)).map(|text| chosen(&text)),
            Key::Module(name) => Ok(read_module(name)),
        };
        let value = value.map_err(SettingError::reading(key))?;
        if is_sound(&value) {
            return Ok(value);
        }
        Err(SettingError::Unread { key: key.clone(), source: io::Error::other("the value is no short line of text") })
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        if !is_sound(value) {
            return Err(SettingError::value(key, value, "it is not one short line"));
        }
        let done = match key {
            Key::Sysctl(name) => write_sysctl(name, value),
            Key::Nic { name, what } => nic::write(name, what, value),
            Key::Irq { irq } => write(&PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list")), value),
            Key::Block { name, what } => write(&block_path(name, *what), value),
            Key::CpuGovernor => write_governors(value),
            Key::TransparentHugePages => write(Path::new(HUGE_PAGES), value),
            Key::Module(name) => write_module(name, value),
        };
        done.map_err(SettingError::writing(key, value))
    }
}

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The file of a kernel parameter below `proc`. In its name, dots divide, and a `/` is a dot (sysctl(8)).
pub(super) fn sysctl_path(proc: &Path, name: &str) -> PathBuf {
    let parts = name.split('.').map(|part| part.replace('/', "."));
    parts.fold(proc.join("sys"), |path, part| path.join(part))
}

/// Parameters that are two forms of one: a write to either sets the other to 0, and 0 cannot be written
/// (Documentation/admin-guide/sysctl/vm.rst).
const TWINS: &[(&str, &str)] =
    &[("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

/// The other form of a parameter.
fn twin(name: &str) -> Option<&'static str> {
    TWINS.iter().find_map(|&(bytes, ratio)| match name {
        _ if name == bytes => Some(ratio),
        _ if name == ratio => Some(bytes),
        _ => None,
    })
}

/// The value; where another form of the parameter holds, `0 by NAME VALUE` says which.
fn read_sysctl(name: &str) -> io::Result<String> {
    let path = |name| sysctl_path(Path::new("/proc"), name);
    let value = read(&path(name))?;
    match twin(name) {
        Some(twin) if value == "0" => Ok(format!("0 by {twin} {}", read(&path(twin))?)),
        _ => Ok(value),
    }
}

fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    let other = twin(name).and_then(|twin| Some((twin, value.strip_prefix("0 by ")?.strip_prefix(twin)?.trim())));
    let (name, value) = other.unwrap_or((name, value));
    write(&sysctl_path(Path::new("/proc"), name), value)
}

/// The content of one of the kernel's files, with single spaces.
pub(super) fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LARGEST as u64).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map(|text| tidy(&text)).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Writes one line in one write, as the kernel's files want it.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write as _;
    fs::OpenOptions::new().write(true).open(path)?.write_all(format!("{value}\n").as_bytes())
}

/// The word in brackets among those that can be chosen.
fn chosen(text: &str) -> String {
    let bracketed = text.split(' ').find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    bracketed.unwrap_or(text).to_owned()
}

fn block_path(name: &str, what: BlockKnob) -> PathBuf {
    let file = match what {
        BlockKnob::Scheduler => "scheduler",
        BlockKnob::ReadAheadKib => "read_ahead_kb",
        BlockKnob::NrRequests => "nr_requests",
    };
    Path::new("/sys/block").join(name).join("queue").join(file)
}

/// Numbers and files of the groups of processors that have a frequency together.
fn governors() -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu/cpufreq")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix("policy")?.parse().ok());
        found.extend(number.map(|number| (number, entry.path().join("scaling_governor"))));
    }
    found.sort_unstable();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// One word where all have the same, else `0=powersave 4=performance`.
fn read_governors() -> io::Result<String> {
    let all = governors()?.into_iter().map(|(number, path)| Ok((number, read(&path)?)));
    let all: Vec<(u32, String)> = all.collect::<io::Result<_>>()?;
    if all.iter().all(|(_, governor)| *governor == all[0].1) {
        return Ok(all[0].1.clone());
    }
    Ok(all.iter().map(|(number, governor)| format!("{number}={governor}")).collect::<Vec<_>>().join(" "))
}

fn write_governors(value: &str) -> io::Result<()> {
    for (number, path) in governors()? {
        let own = value.split(' ').find_map(|part| part.strip_prefix(&format!("{number}=")));
        let Some(governor) = own.or_else(|| (!value.contains('=')).then_some(value)) else {
            return Err(io::Error::other(format!("no governor is given for processors of group {number}")));
        };
        write(&path, governor)?;
    }
    Ok(())
}

/// A module that is part of the kernel counts as loaded.
fn read_module(name: &str) -> String {
    let loadable = fs::read_to_string("/proc/modules").unwrap_or_default();
    let listed = loadable.lines().any(|line| line.split(' ').next() == Some(name));
    let controls =
        read(&sysctl_path(Path::new("/proc"), "net.ipv4.tcp_available_congestion_control")).unwrap_or_default();
    let control = name.strip_prefix("tcp_").is_some_and(|name| controls.split(' ').any(|known| known == name));
    let there = listed || control || Path::new("/sys/module").join(name).exists();
    if there { "loaded" } else { "absent" }.to_owned()
}

/// By modprobe(8), which knows where modules are and what they depend on.
fn write_module(name: &str, value: &str) -> io::Result<()> {
    let mut command = Command::new("modprobe");
    match value {
        "loaded" => command.args(["--", name]),
        "absent" => command.args(["-r", "--", name]),
        _ => return Err(io::Error::other("a module is `loaded` or `absent`")),
    };
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(tidy(&String::from_utf8_lossy(&output.stderr))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_in_a_parameter_is_a_dot() {
        let path = |name| sysctl_path(Path::new("/proc"), name);
        assert_eq!(path("net.ipv4.tcp_rmem"), Path::new("/proc/sys/net/ipv4/tcp_rmem"));
        assert_eq!(path("net.ipv4.conf.eth0/100.arp_ignore"), Path::new("/proc/sys/net/ipv4/conf/eth0.100/arp_ignore"));
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("mq-deadline kyber [none]"), "none");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn ratios_and_bytes_are_two_forms_of_one() {
        let ratio = Machine.read(&"sysctl vm.dirty_ratio".parse().expect("a key")).expect("every kernel has it");
        let bytes = Machine.read(&"sysctl vm.dirty_bytes".parse().expect("a key")).expect("every kernel has it");
        let by = |one: &str, other: &str, name: &str| *one == format!("0 by {name} {other}");
        assert!(by(&bytes, &ratio, "vm.dirty_ratio") || by(&ratio, &bytes, "vm.dirty_bytes"), "{ratio}, {bytes}");
    }
}

//! Whatever happens between changes and their end, rolling back ends where it began. The kernel is a table in memory, which can
//! fail, round, or stop the world before or after a write.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use proptest::prelude::*;
use slipway_host::setting::{
    ApplyError, Fate, Journal, JournalError, Kernel, Key, Life, Owners, Scope, SettingError, Standing, State, Wish,
    apply, drift, is_journal, persist, plan, rollback, unpersist,
};

/// Settings of the kernel in memory. Rings are rounded up to a power of two.
const KEYS: [&str; 4] =
    ["sysctl net.core.rmem_max", "nic eth0 ring-rx", "block sda readahead", "sysctl net.ipv4.tcp_congestion_control"];

/// A kernel in memory.
#[derive(Debug, Clone)]
struct Memory {
    values: BTreeMap<Key, String>,
    /// Reads and writes until something happens.
    left: Cell<u32>,
    then: Then,
}

/// The event that ends the calm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Nothing.
    Nothing,
    /// The process is killed before the call takes effect.
    CrashBefore,
    /// The process is killed after it.
    CrashAfter,
    /// The kernel refuses one write.
    Refuse,
}

/// The payload of a panic that stands for SIGKILL.
struct Killed;

impl Memory {
    fn new() -> Self {
        let values = KEYS.iter().zip(["212992", "512", "128", "cubic"]);
        let values = values.map(|(key, value)| (key.parse().expect("a key"), value.to_owned())).collect();
        Self { values, left: Cell::new(0), then: Then::Nothing }
    }

    /// Whether the event happens at this call.
    fn happens(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        left == 0
    }
}

impl Kernel for Memory {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        if self.happens() && matches!(self.then, Then::CrashBefore | Then::CrashAfter) {
            std::panic::resume_unwind(Box::new(Killed));
        }
        self.values.get(key).cloned().ok_or_else(|| SettingError::Missing(key.clone()))
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        let happens = self.happens();
        let killed = |then| {
            if happens && self.then == then {
                std::panic::resume_unwind(Box::new(Killed));
            }
        };
        killed(Then::CrashBefore);
        if happens && self.then == Then::Refuse {
            let source = std::io::Error::from_raw_os_error(22);
            return Err(SettingError::Refused { key: key.clone(), value: value.to_owned(), source });
        }
        let rounded = match value.parse::<u32>() {
            Ok(number) if key.to_string().contains("ring") => number.next_power_of_two().to_string(),
            _ => value.to_owned(),
        };
        self.values.insert(key.clone(), rounded);
        killed(Then::CrashAfter);
        Ok(())
    }
}

fn life() -> Life {
    Life { boot: "one".to_owned(), net: 1 }
}

fn journal(folder: &Path) -> Journal {
    Journal::open(State::open(folder).expect("the folder is free"), life()).expect("a sound journal")
}

fn wish(key: &str, want: &str) -> Wish {
    let key = key.parse().expect("a key");
    Wish { key, want: want.to_owned(), rule: "test".to_owned(), why: "a test wants it".to_owned() }
}

/// Plans and applies, as the command does.
fn tune(kernel: &mut Memory, folder: &Path, wishes: Vec<Wish>) -> Result<(), ApplyError> {
    let mut journal = journal(folder);
    let plan = plan(kernel, &Scope::Machine, &Owners::nobody(), journal.entries(), wishes);
    assert!(plan.refused.is_empty(), "{plan:?}");
    apply(kernel, &mut journal, &plan).map(drop)
}

/// Runs `command`; whether it was killed.
fn lives(command: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(()) => true,
        Err(payload) if payload.is::<Killed>() => false,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

#[derive(Debug, Clone)]
enum Command {
    Apply(Vec<(usize, u32)>),
    Rollback,
}

fn command() -> impl Strategy<Value = (Command, u32, Then)> {
    let command = prop_oneof![
        3 => prop::collection::vec((0..3_usize, 1..6_u32), 1..4).prop_map(Command::Apply),
        1 => Just(Command::Rollback),
    ];
    let then = prop_oneof![Just(Then::Nothing), Just(Then::CrashBefore), Just(Then::CrashAfter), Just(Then::Refuse)];
    (command, 0..24_u32, then)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_of_commands_and_crashes_rolls_back_to_the_start(commands in prop::collection::vec(command(), 1..6)) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kernel = Memory::new();
        let start = kernel.values.clone();
        for (command, left, then) in commands {
            (kernel.left, kernel.then) = (Cell::new(left), then);
            let before = kernel.values.clone();
            let mut failed = false;
            let lived = lives(|| match &command {
                Command::Apply(values) => {
                    let wishes: BTreeMap<usize, u32> = values.iter().copied().collect();
                    let wishes = wishes.iter().map(|(key, value)| wish(KEYS[*key], &(value * 1000).to_string()));
                    failed = tune(&mut kernel, folder.path(), wishes.collect()).is_err();
                }
                Command::Rollback => {
                    let mut journal = journal(folder.path());
                    rollback(&mut kernel, &mut journal, false, |_| true).expect("the disk works");
                }
            });
            if lived && failed {
                prop_assert_eq!(&kernel.values, &before, "all or nothing");
            }
        }
        kernel.then = Then::Nothing;
        let mut journal = journal(folder.path());
        let outcomes = rollback(&mut kernel, &mut journal, false, |_| true).expect("the disk works");
        prop_assert!(outcomes.iter().all(slipway_host::setting::Outcome::is_done), "{:?}", outcomes);
        prop_assert_eq!(&kernel.values, &start);
        prop_assert!(journal.entries().is_empty());
        prop_assert!(!folder.path().join("journal.json").exists());
    }

    #[test]
    fn any_bytes_are_refused_or_a_journal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!is_journal(&bytes), "two hundred bytes hold no journal");
    }

    #[test]
    fn a_key_reads_as_it_is_written(text in "(sysctl|nic|block|irq|cpu|thp|module)( [a-z0-9./_-]{1,12}){0,3}") {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert_eq!(key.to_string().parse::<Key>(), Ok(key));
        }
    }
}

#[test]
fn a_change_by_somebody_else_is_told_and_stays_unless_forced() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut kernel = Memory::new();
    tune(&mut kernel, folder.path(), vec![wish(KEYS[0], "1000"), wish(KEYS[1], "600")]).expect("applied");
    let key: Key = KEYS[0].parse().expect("a key");
    kernel.values.insert(key.clone(), "7".to_owned());
    let mut journal = journal(folder.path());
    let standings: Vec<Standing> = drift(&kernel, &journal).into_iter().map(|drift| drift.standing).collect();
    assert_eq!(standings, [Standing::Drifted, Standing::Kept]);
    let outcomes = rollback(&mut kernel, &mut journal, false, |_| true).expect("the disk works");
    assert_eq!(outcomes.iter().map(|outcome| &outcome.fate).collect::<Vec<_>>(), [&Fate::Restored, &Fate::Drifted]);
    assert_eq!((kernel.values[&key].as_str(), journal.entries().len()), ("7", 1));
    rollback(&mut kernel, &mut journal, true, |_| true).expect("the disk works");
    assert_eq!((kernel.values[&key].as_str(), journal.entries().len()), ("212992", 0));
}

#[test]
fn after_a_reboot_only_what_files_set_again_is_restored() {
    let (folder, root) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut kernel = Memory::new();
    tune(&mut kernel, folder.path(), vec![wish(KEYS[0], "1000"), wish(KEYS[2], "4096")]).expect("applied");
    let kept: Key = KEYS[0].parse().expect("a key");
    persist(&mut journal(folder.path()), root.path(), std::slice::from_ref(&kept), false).expect("written");
    let file = root.path().join("etc/sysctl.d/90-slipway.conf");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.contains("\nnet.core.rmem_max = 1000\n") && text.contains("slipway tune rollback"), "{text}");
    assert!(!root.path().join("etc/udev").exists(), "the other was not to be kept");

    // The boot: the file sets its value, the other is the kernel's own again.
    kernel.values.insert(KEYS[2].parse().expect("a key"), "256".to_owned());
    let later = Life { boot: "two".to_owned(), net: 9 };
    let mut journal = Journal::open(State::open(folder.path()).expect("free"), later).expect("a journal");
    let plan = plan(&kernel, &Scope::Machine, &Owners::nobody(), journal.entries(), vec![wish(KEYS[1], "600")]);
    assert!(matches!(apply(&mut kernel, &mut journal, &plan), Err(ApplyError::EarlierBoot)));
    let outcomes = rollback(&mut kernel, &mut journal, false, |_| true).expect("the disk works");
    assert_eq!(outcomes.iter().map(|outcome| &outcome.fate).collect::<Vec<_>>(), [&Fate::Rebooted, &Fate::Restored]);
    unpersist(&mut journal, root.path(), false).expect("removed");
    assert_eq!((kernel.values[&kept].as_str(), file.exists()), ("212992", false));
    assert!(!folder.path().join("journal.json").exists());
}

#[test]
fn hostile_journals_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("journal.json");
    let entry = |key: &str, former: &str| {
        format!(
            r#"{{"key":"{key}","former":"{former}","wrote":null,"pending":"1","rule":"r","why":"w","at":0,"persisted":false}}"#
        )
    };
    let whole = |entries: &str, files: &str| {
        format!(r#"{{"version":1,"life":{{"boot":"one","net":1}},"entries":[{entries}],"files":[{files}]}}"#)
    };
    let sound = entry("sysctl net.core.rmem_max", "1");
    assert!(is_journal(whole(&sound, "").as_bytes()));
    let hostile = [
        whole(&entry("sysctl ../../etc/passwd", "1"), ""),
        whole(&entry("sysctl net...x", "1"), ""),
        whole(&entry("sysctl net./.x", "1"), ""),
        whole(&entry("sysctl kernel.core_pattern", "|/tmp/x"), ""),
        whole(&entry("nic ../x mtu", "1"), ""),
        whole(&entry("block ../../x scheduler", "1"), ""),
        whole(&entry("module -r", "1"), ""),
        whole(&entry("sysctl net.core.rmem_max", r"1\n2"), ""),
        whole(&format!("{sound},{sound}"), ""),
        whole(&sound, r#"{"path":"etc/shadow","text":"x","before":null,"former":null}"#),
        whole(&sound, "").replace(r#""version":1"#, r#""version":2"#),
        whole(&sound, "")[..60].to_owned(),
        String::new(),
    ];
    for text in hostile {
        std::fs::write(&file, &text).expect("written");
        let opened = Journal::open(State::open(folder.path()).expect("free"), life());
        let error = opened.expect_err(&text);
        assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("still there"), text, "evidence stays");
    }
    std::fs::write(&file, whole(&sound, "").replace(r#""net":1"#, r#""net":2"#)).expect("written");
    let error = Journal::open(State::open(folder.path()).expect("free"), life()).expect_err("another network's");
    assert!(matches!(error, JournalError::Elsewhere(_)), "{error}");
}

#[test]
fn one_command_at_a_time_and_no_folder_of_somebody_elses() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let held = State::open(folder.path()).expect("free");
    assert!(matches!(State::open(folder.path()), Err(JournalError::Held(_))));
    drop(held);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("changed");
    assert!(matches!(State::open(folder.path()), Err(JournalError::Untrusted(_))));
}

#[test]
fn other_peoples_files_stay_and_come_back() {
    let (folder, root) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut kernel = Memory::new();
    tune(&mut kernel, folder.path(), vec![wish(KEYS[0], "1000")]).expect("applied");
    let keys: [Key; 1] = [KEYS[0].parse().expect("a key")];
    let file = root.path().join("etc/sysctl.d/90-slipway.conf");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(&file, "vm.swappiness = 1\n").expect("written");
    let mut journal = journal(folder.path());
    persist(&mut journal, root.path(), &keys, false).expect_err("it is somebody's");
    assert!(journal.files().is_empty() && !journal.entries()[0].persisted);
    persist(&mut journal, root.path(), &keys, true).expect("forced");
    rollback(&mut kernel, &mut journal, false, |_| true).expect("the disk works");
    std::fs::write(&file, "# Slipway wrote this file, and somebody edited it\n").expect("written");
    unpersist(&mut journal, root.path(), false).expect_err("edited");
    unpersist(&mut journal, root.path(), true).expect("forced");
    assert_eq!(std::fs::read_to_string(&file).expect("it is back"), "vm.swappiness = 1\n");
}

//! The recorded machines: advice for each is a snapshot, and no two rules are in conflict on any of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use slipway_host::check::{Checked, Target, Verdict, check};
use slipway_host::facts::{Facts, Source};
use slipway_host::rules::{Apply, BUILT_IN, Profile, Rules};
use slipway_host::setting::Key;

const MACHINES: [&str; 4] = ["dtn-100g", "server-10g", "laptop", "vm"];
const PROFILES: [Profile; 3] = [Profile::Dtn, Profile::Hpc, Profile::Server];

fn path(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{machine}.txt"))
}

fn facts(machine: &str) -> Facts {
    Facts::gather(&Source::open(&path(machine)).expect("a recording"))
}

fn rules() -> Rules {
    Rules::built_in().unwrap_or_else(|error| panic!("{error}"))
}

fn checked(facts: &Facts, profile: Profile, rtt: f64, rate: f64) -> Checked {
    check(facts, &rules(), &Target { profile, rtt, rate })
}

fn text(checked: &Checked) -> String {
    let mut text = String::new();
    for advice in &checked.advices {
        let verdict = serde_json::to_string(&advice.verdict).expect("a word");
        let values = match (&advice.is, &advice.want, &advice.reason) {
            (Some(is), Some(want), _) if advice.verdict == Verdict::Advised => format!("{is} -> {want}"),
            (Some(is), ..) => is.clone(),
            (.., reason) => reason.clone().unwrap_or_default(),
        };
        let _ = writeln!(text, "{:16} {} [{}]: {values}", verdict.trim_matches('"'), advice.rule, advice.subject);
    }
    text
}

#[test]
fn advice_for_each_machine() {
    for (machine, profile, rtt, rate) in [
        ("dtn-100g", Profile::Dtn, 0.08, 1e11),
        ("server-10g", Profile::Server, 0.03, 1e10),
        ("laptop", Profile::Server, 0.03, 1e9),
        ("vm", Profile::Hpc, 0.001, 1e10),
    ] {
        insta::assert_snapshot!(machine, text(&checked(&facts(machine), profile, rtt, rate)));
    }
}

#[test]
fn facts_of_a_machine() {
    insta::assert_json_snapshot!("facts-vm", facts("vm"));
}

#[test]
fn no_two_rules_are_in_conflict() {
    for machine in MACHINES {
        for profile in PROFILES {
            for rtt in [0.0001, 0.02, 0.3] {
                let checked = checked(&facts(machine), profile, rtt, 1e10);
                assert_eq!(checked.conflicts, [], "{machine}, {profile:?}, {rtt}");
            }
        }
    }
}

#[test]
fn what_is_advised_is_good_once_it_is_done() {
    for machine in MACHINES {
        for profile in PROFILES {
            let source = Source::open(&path(machine)).expect("a recording");
            let checked = checked(&Facts::gather(&source), profile, 0.05, 1e10);
            let mut recording = source.recording();
            let mut done = BTreeSet::new();
            for wish in checked.wishes() {
                if let Key::Sysctl(name) = &wish.key {
                    let file = format!("/proc/sys/{}", name.replace('.', "/"));
                    recording.0.insert(file, wish.want.clone().into_bytes());
                    done.insert(wish.rule);
                }
            }
            assert!(!done.is_empty(), "{machine}");
            let after = self::checked(&Facts::gather(&Source::recorded(recording)), profile, 0.05, 1e10);
            let still =
                after.advices.iter().filter(|advice| advice.verdict != Verdict::Good && done.contains(&advice.rule));
            let still: Vec<&str> = still.map(|advice| advice.rule.as_str()).collect();
            assert!(still.is_empty(), "{machine}, {profile:?}: {still:?}");
        }
    }
}

#[test]
fn conflicts_are_found_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, rule) = BUILT_IN.iter().find(|(name, _)| *name == "rules/swapping.yaml").expect("it is there");
    let mine = rule
        .replace("id: swapping", "id: swap-much")
        .replace("want: 10", "want: 90")
        .replace("good: is <= 10", "good: is >= 60");
    std::fs::write(folder.path().join("mine.yaml"), mine).expect("written");
    let rules = rules().with_folder(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    let target = Target { profile: Profile::Dtn, rtt: 0.01, rate: 1e9 };
    let conflicts = check(&facts("laptop"), &rules, &target).conflicts;
    let shown: Vec<String> =
        conflicts.iter().map(|one| format!("{} {} {} {}", one.key, one.rule, one.want, one.against)).collect();
    assert_eq!(shown, ["sysctl vm.swappiness swapping 10 swap-much"]);
}

#[test]
fn each_rule_of_the_folder_is_built_in_and_named_as_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the rules")
        .map(|entry| format!("rules/{}", entry.expect("listed").file_name().display()))
        .collect();
    let built_in: BTreeSet<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, built_in);
    for rule in rules().0 {
        assert!(built_in.contains(&format!("rules/{}.yaml", rule.id)), "{}", rule.id);
        assert!(!rule.source.date.is_empty() && !rule.profiles.is_empty(), "{}", rule.id);
        assert!(matches!(&rule.apply, Apply::Key(_)) || !rule.verify.is_empty(), "{}", rule.id);
    }
}

#[test]
fn faults_of_a_rule_come_all_at_once_with_their_lines() {
    let (_, rule) = BUILT_IN.iter().find(|(name, _)| *name == "rules/tcp-receive-buffer.yaml").expect("it is there");
    let wrong = rule
        .replace("2 * bdp", "2 * bpd")
        .replace("word(is, 3) >= need", "word(is, 3 >= need")
        .replace("key: sysctl net.ipv4.tcp_rmem", "key: sysctl ../../etc/passwd");
    let errors = slipway_host::rules::parse("mine.yaml", &wrong).expect_err("three faults");
    insta::assert_snapshot!("faults-of-a-rule", errors.plain());
}

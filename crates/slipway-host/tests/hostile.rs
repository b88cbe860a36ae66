//! Whatever stands in the files of a machine, its facts are gathered and held against the rules: the files of the recorded
//! machines, with some of them changed.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use slipway_host::check::{Target, check};
use slipway_host::facts::{Facts, Recording, Source};
use slipway_host::rules::{Profile, Rules};

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::built_in().expect("they are right"));
static MACHINES: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    ["dtn-100g", "server-10g", "laptop", "vm"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.txt")))
        .map(|path| Recording::read(&std::fs::read(path).expect("it is there")).expect("a recording"))
        .to_vec()
});

/// A change of one file.
#[derive(Debug, Clone)]
enum Change {
    /// The file is gone.
    Gone,
    /// It ends early, at this place.
    Cut(Index),
    /// Each of its numbers is this one.
    Number(&'static str),
    /// It has these bytes at this place.
    Bytes(Index, Vec<u8>),
    /// Its lines come again, this many times.
    Again(usize),
    /// It has the text of that other file.
    Other(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = ["0", "-1", "1", "4294967295", "18446744073709551615", "99999999999999999999", "1e308", "NaN", ""];
    prop_oneof![
        Just(Change::Gone),
        any::<Index>().prop_map(Change::Cut),
        select(numbers.to_vec()).prop_map(Change::Number),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Change::Bytes(at, bytes)),
        (2..50_usize).prop_map(Change::Again),
        any::<Index>().prop_map(Change::Other),
    ]
}

fn changed(machine: &Recording, changes: Vec<(Index, Change)>) -> Recording {
    let mut files = machine.0.clone();
    let paths: Vec<&String> = machine.0.keys().filter(|path| !path.ends_with('/')).collect();
    for (which, change) in changes {
        let path = paths[which.index(paths.len())];
        let Some(old) = files.remove(path) else { continue };
        let new = match change {
            Change::Gone => continue,
            Change::Cut(at) => old[..at.index(old.len() + 1)].to_vec(),
            Change::Number(number) => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                let runs = old.chunk_by(|one, other| digits(one) == digits(other));
                runs.flat_map(|run| if digits(&run[0]) { number.as_bytes() } else { run }).copied().collect()
            }
            Change::Bytes(at, bytes) => {
                let at = at.index(old.len() + 1);
                [&old[..at], &bytes, &old[at..]].concat()
            }
            Change::Again(times) => old.repeat(times),
            Change::Other(other) => machine.0[paths[other.index(paths.len())]].clone(),
        };
        files.insert(path.clone(), new);
    }
    Recording(files)
}

proptest! {
    #[test]
    fn no_content_of_a_file_is_too_much(
        machine in 0..4_usize,
        changes in prop::collection::vec((any::<Index>(), change()), 1..40),
        (rtt, rate) in (select(vec![0.0, 1e-6, 0.08, 1e9]), select(vec![0.0, 1.0, 1e10, 1e18])),
    ) {
        let source = Source::recorded(changed(&MACHINES[machine], changes));
        let facts = Facts::gather(&source);
        prop_assert!(serde_json::to_string(&facts).is_ok());
        for profile in [Profile::Dtn, Profile::Hpc, Profile::Server] {
            let checked = check(&facts, &RULES, &Target { profile, rtt, rate });
            prop_assert!(serde_json::to_string(&checked).is_ok());
            // A wish is the name of a setting and a value: what the kernel would get is one line.
            for wish in checked.wishes() {
                prop_assert!(!wish.want.contains('\n'), "{wish:?}");
            }
        }
    }
}

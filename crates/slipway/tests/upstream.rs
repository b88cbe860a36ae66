//! The tests that languages bring for their own sockets come out on the fast path as they do on a bridge. Most of them talk to
//! themselves, which the fast path must leave alone. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;

use common::{Lab, Place, told};

/// Tests, and what became of each.
type Outcomes = BTreeMap<String, String>;

/// Not compared, because they come out by chance.
const BY_CHANCE: [&str; 7] = [
    // Its first thread may close the client's socket while the other still asks it for its name, which takes longer on a
    // fast network: `EBADF`.
    "NetworkConnectionAttributesTest.testSourceAddress",
    // Judge how late the machine is: half a second for a few calls, two for a second's wait.
    "SelectorTestCase.test_timeout",
    // A read of what was sent beforehand fails if it begins later than 100 ms after its deadline was set.
    "TestUDPZeroByteBuffer",
    "TestUnixgramLinuxAbstractLongName",
    "TestReadUnixgramWithUnnamedSocket",
    "TestUnixgramZeroBytePayload",
    "TestUnixgramZeroByteBuffer",
];

/// A lab with a node on a fast network and one on a bridge; both find `prepare`'s files in `/opt/test`.
fn lab(place: &Place, prepare: impl FnOnce(&Path)) -> Lab<'_> {
    std::fs::create_dir(place.path().join("opt")).expect("made");
    prepare(&place.path().join("opt"));
    let mounts = "mounts: [\"./opt:/opt/test:ro\"]";
    let text = format!(
        "networks: {{quick: fast, plain: bridge}}\nnodes:\n  fast: {{networks: [quick], {mounts}}}\n  slow: {{networks: [plain], {mounts}}}\n"
    );
    place.up("upstream", &text)
}

/// Runs the same on both nodes at once; `read` finds the tests in the lines that were printed.
#[track_caller]
fn come_out_alike(lab: &Lab<'_>, program: &[&str], read: impl Fn(&str) -> Option<(String, String)>) {
    let run = |node| lab.program(node, ["timeout", "1800"].iter().chain(program).copied()).output();
    let [fast, slow] = thread::scope(|scope| {
        // Both are read at once: a program that waits to print may be late for what it tests.
        let runs = ["fast", "slow"].map(|node| scope.spawn(move || run(node).expect("slipway can be started")));
        runs.map(|run| run.join().expect("it was read"))
    });
    let outcomes = |text: &[u8]| -> Outcomes {
        let all = String::from_utf8_lossy(text);
        all.lines().filter_map(&read).filter(|(test, _)| !BY_CHANCE.iter().any(|other| test.ends_with(other))).collect()
    };
    let [on_fast, on_slow] = [&fast, &slow].map(|output| outcomes(&output.stdout));
    assert!(on_slow.values().any(|outcome| outcome == "ok"), "{}", told(&slow));
    let differ: Vec<_> = on_slow
        .keys()
        .chain(on_fast.keys())
        .filter(|test| on_slow.get(*test) != on_fast.get(*test))
        .map(|test| format!("{test}: {:?}, on the bridge {:?}", on_fast.get(test), on_slow.get(test)))
        .collect();
    assert!(differ.is_empty(), "{}\n{}", differ.join("\n"), told(&fast));
    let count = |wanted: &str| on_fast.values().filter(|outcome| *outcome == wanted).count();
    println!("{} tests: {} ok, {} skipped", on_fast.len(), count("ok"), count("skipped"));
}

/// Says of every test what became of it. Nothing outside is asked for.
const PYTHON: &str = r#"
import sys, unittest
from test import support

def tell(outcome):
    return lambda self, test, *_: print("test", test.id(), outcome, file=sys.__stdout__, flush=True)

class Outcomes(unittest.TestResult):
    addSuccess, addFailure, addError, addSkip = tell("ok"), tell("failed"), tell("failed"), tell("skipped")
    addExpectedFailure, addUnexpectedSuccess = tell("failed-as-expected"), tell("unexpected-success")
    def addSubTest(self, test, part, error):
        if error: tell("failed")(self, test)

support.use_resources = []
outcomes = Outcomes()
outcomes.buffer = True
for name in sys.argv[1:]:
    unittest.defaultTestLoader.loadTestsFromName("test." + name).run(outcomes)
"#;

fn python(modules: &[&str]) {
    let place = Place::new();
    let lab = lab(&place, |folder| std::fs::write(folder.join("run.py"), PYTHON).expect("written"));
    let program = [&["/usr/bin/python3", "/opt/test/run.py"], modules].concat();
    come_out_alike(&lab, &program, |line| {
        let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(' ')?;
        Some((test.to_owned(), outcome.to_owned()))
    });
}

#[test]
fn pythons_sockets() {
    python(&["test_socket", "test_selectors", "test_socketserver"]);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn what_python_builds_on_sockets() {
    python(&[
        "test_asyncio",
        "test_ssl",
        "test_ftplib",
        "test_httplib",
        "test_smtplib",
        "test_xmlrpc",
        "test_asyncore",
    ]);
}

/// Static, and from many threads.
#[test]
fn gos_net_package() {
    let place = Place::new();
    let lab = lab(&place, |folder| {
        let mut go = Command::new("go");
        go.args(["test", "-c", "-o", "net.test", "net"]).current_dir(folder).env("CGO_ENABLED", "0");
        go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
        let output = go.env("GOTOOLCHAIN", "local").env("GO111MODULE", "off").output();
        let output = output.unwrap_or_else(|error| panic!("go: {error}: install golang-go"));
        assert!(output.status.success(), "{}", told(&output));
    });
    // Their files are beside their source.
    let script = "cd $(echo /usr/share/go-*/src/net) && exec /opt/test/net.test -test.short -test.v";
    come_out_alike(&lab, &["sh", "-c", script], |line| {
        let (outcome, test) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        let outcome = match outcome {
            "PASS" => "ok",
            "SKIP" => "skipped",
            _ => "failed",
        };
        Some((test.split(' ').next()?.to_owned(), outcome.to_owned()))
    });
}

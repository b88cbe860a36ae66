//! Scripts that run engines, without the engines: they read whatever EnergyPlus left.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Gives the script files that nobody wrote: real lines, damaged, repeated and in any order.
const DRIVER: &str = r#"
import random, sys, types
script = types.ModuleType("energyplus")
exec(compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec"), script.__dict__)

LINES = [
    "Program Version,EnergyPlus, Version 25.2.0, YMD=2026.11.25 02:10,",
    "   ** Warning ** Weather file location will be used rather than entered (IDF) Location object.",
    "   **   ~~~   ** ..Location object=CHICAGO",
    "   ** Severe  ** <root>[Material][Wall][thickness] - \"-1.0\" - Expected number greater than 0.0",
    "   **   ~~~   ** in the wall",
    "   **  Fatal  ** Errors occurred on processing input file.",
    "   ************* EnergyPlus Terminated--Fatal Error Detected. 1 Warning; 2 Severe Errors",
    "** Severe", "**~~~**", "\x00\x85\u2028", "",
]
dice = random.Random(7)
for number in range(3000):
    text = "\n".join(dice.choice(LINES) for _ in range(dice.randrange(30))).encode()
    data = bytearray(text)
    for _ in range(dice.randrange(6)):
        if data:
            data[dice.randrange(len(data))] = dice.randrange(256)
    if number % 7 == 0:
        data *= 1 + dice.randrange(40)
    open("eplusout.err", "wb").write(data)
    found = script.errors()
    assert len(found) <= (script.ENTRIES + 1) * script.LINES, found
    assert all(isinstance(line, str) and len(line) <= script.LINE + 20 for line in found), found
    severe = any(line.lstrip().startswith("** Severe  **") for line in data.decode("utf-8", "replace").split("\n"))
    assert not severe or any(line.startswith("Severe: ") for line in found), (bytes(data), found)
print("read all")
"#;

#[test]
fn any_list_of_errors_is_read_and_its_first_errors_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/campaign/engine/energyplus.py");
    let mut python = Command::new("python3");
    python.args(["-IB", "-", script]).current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.stderr(Stdio::piped()).spawn().expect("python3 can be started");
    child.stdin.take().expect("a pipe").write_all(DRIVER.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it can be awaited");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"read all\n", "{words}");
}

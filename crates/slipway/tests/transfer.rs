//! Transfers through the command itself: over what stands for ssh, and with ends that are killed.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Place, await_that};
use rand::{Rng as _, RngExt as _, SeedableRng as _};

/// Every file below a folder, with its content.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("listed") {
            let path = entry.expect("listed").path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).expect("below").to_owned(), fs::read(&path).expect("read"));
            }
        }
    }
    found
}

fn furnish(place: &Place, megabytes: usize) {
    let from = place.path().join("from");
    fs::create_dir_all(from.join("small")).expect("made");
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let mut bytes = vec![0; megabytes << 20];
    for number in 0..3 {
        random.fill_bytes(&mut bytes);
        fs::write(from.join(format!("large{number}")), &bytes).expect("written");
    }
    for number in 0..200 {
        fs::write(from.join(format!("small/{number}")), &bytes[number * 100..][..4096]).expect("written");
    }
}

/// The direction of a transfer from `from` to `root/to`, or by fetching from there to `to`.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Sends,
    Fetches,
}

impl Way {
    /// The folder that the data set goes to.
    fn destination(self, place: &Place) -> PathBuf {
        place.path().join(if self == Self::Sends { "root/to" } else { "to" })
    }

    /// A server, and the port at which it says that it listens.
    fn serve(self, place: &Place) -> (Child, String) {
        fs::create_dir_all(place.path().join("root")).expect("made");
        let root = if self == Self::Sends { "root" } else { "from" };
        let words = ["transfer", "serve", "--json", "--listen", "127.0.0.1:0", "--token-file", "token", "--root", root];
        let sends = (self == Self::Fetches).then_some("--send");
        let mut server = place.slipway(words.into_iter().chain(sends));
        let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
        let port = lines.find_map(|line| {
            let line = line.expect("text");
            let (_, port) =
                line.trim().strip_prefix("\"address\": \"127.0.0.1")?.trim_end_matches('"').split_once(':')?;
            Some(port.to_owned())
        });
        (server, port.expect("an address"))
    }

    fn client(self, port: &str) -> [&str; 7] {
        let [from, to] = if self == Self::Sends { ["from/", "127.0.0.1:to"] } else { ["127.0.0.1:/", "to"] };
        ["transfer", "--token-file", "token", "--port", port, from, to]
    }

    /// Each file that has its name at the destination is as it is at the source.
    #[track_caller]
    fn has_no_wrong_byte(self, place: &Place, when: &str) {
        let to = self.destination(place);
        if !to.exists() {
            return;
        }
        for (path, content) in tree(&to) {
            if !path.starts_with(".slipway-part") {
                let here = fs::read(place.path().join("from").join(&path)).expect("it is of the source");
                assert!(here == content, "{} has a wrong byte {when}", path.display());
            }
        }
    }
}

fn end(mut server: Child) {
    server.kill().expect("killed");
    server.wait().expect("ended");
}

/// Ends are killed at `kills` random moments; then the same command goes on, and both trees are equal.
fn with_kills(way: Way, kills: u32, megabytes: usize) {
    let place = Place::new();
    furnish(&place, megabytes);
    let mut random = rand::rngs::StdRng::seed_from_u64(kills.into());
    let (mut server, mut port) = way.serve(&place);
    for kill in 0..kills {
        let client = place.slipway(way.client(&port)).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut client = client.expect("started");
        // The moment is the test's input: there is nothing to wait for.
        std::thread::sleep(Duration::from_millis(random.random_range(5..800)));
        if kill % 2 == 0 {
            drop(client.kill());
        } else {
            end(server);
            (server, port) = way.serve(&place);
        }
        client.wait().expect("ended");
        way.has_no_wrong_byte(&place, &format!("after kill {kill}"));
        let root = fs::read_dir(place.path().join("root")).expect("listed");
        assert!(root.flatten().all(|entry| entry.file_name() == "to"), "nothing is outside the destination");
    }
    place.run(way.client(&port));
    end(server);
    assert!(tree(&place.path().join("from")) == tree(&way.destination(&place)));
}

#[test]
fn a_killed_end_leaves_no_wrong_byte() {
    with_kills(Way::Sends, 4, 4);
}

#[test]
fn a_killed_end_of_a_fetch_leaves_no_wrong_byte() {
    with_kills(Way::Fetches, 4, 4);
}

#[test]
#[ignore = "minutes; `make test-long`"]
fn fifty_killed_ends_leave_no_wrong_byte() {
    with_kills(Way::Sends, 50, 40);
}

#[test]
#[ignore = "minutes; `make test-long`"]
fn fifty_killed_ends_of_a_fetch_leave_no_wrong_byte() {
    with_kills(Way::Fetches, 50, 40);
}

/// The disk here is full in the middle of a fetch. With room, the same command goes on.
#[test]
fn a_full_disk_ends_a_fetch_that_goes_on_with_room() {
    let place = Place::new();
    furnish(&place, 2);
    let (server, port) = Way::Fetches.serve(&place);
    let script = r#"
        mkdir to && mount -t tmpfs -o size=3m none to || exit 9
        "$SLIPWAY" --quiet transfer --token-file token --port $PORT 127.0.0.1:/ to && exit 8
        mount -o remount,size=64m to
        find to -type f ! -path '*.slipway-part*' | while read -r file; do cmp "$file" "from/${file#to/}" || exit 7; done
        "$SLIPWAY" --json transfer --token-file token --port $PORT 127.0.0.1:/ to && diff -r from to"#;
    let mut shell = std::process::Command::new("unshare");
    place.furnish(&mut shell);
    let shell =
        shell.args(["--mount", "sh", "-c", script]).env("SLIPWAY", env!("CARGO_BIN_EXE_slipway")).env("PORT", port);
    let output = shell.output().expect("unshare is installed");
    end(server);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("No space left on device") && said.contains("Hint: make room"), "{said}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(answer["kept"].as_u64().expect("a number") > 0, "it goes on where it was: {answer}");
}

/// A file of the server's changes while it goes: it is named, and all others are there.
#[test]
fn a_file_that_changes_while_it_is_fetched_is_named() {
    let place = Place::new();
    furnish(&place, 2);
    let (server, port) = Way::Fetches.serve(&place);
    let slow = Way::Fetches.client(&port).into_iter().chain(["--limit", "16mbit", "--json", "--no-sync"]);
    let client = place.slipway(slow).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    // Its data come in several parts, and the last of them is not there when the first is.
    let parts = place.path().join("to/.slipway-part");
    await_that("data of a large file arrive", || {
        fs::read_dir(&parts)
            .into_iter()
            .flatten()
            .flatten()
            .any(|part| part.metadata().is_ok_and(|about| about.len() >= 2 << 20))
    });
    for number in 0..3 {
        let file = fs::File::options().append(true).open(place.path().join(format!("from/large{number}")));
        std::io::Write::write_all(&mut file.expect("there"), b"more").expect("written");
    }
    let output = client.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let changed = answer["changed"].as_array().expect("a list");
    assert!(
        !changed.is_empty()
            && changed.iter().all(|named| named["path"].as_str().is_some_and(|path| path.starts_with("large"))),
        "{answer}"
    );
    for named in changed {
        let path = Path::new("to").join(named["path"].as_str().expect("a path"));
        assert!(!place.path().join(&path).exists(), "no half of it has its name: {}", path.display());
    }
    place.run(Way::Fetches.client(&port));
    end(server);
    assert!(tree(&place.path().join("from")) == tree(&place.path().join("to")));
}

#[test]
fn ssh_starts_the_other_end() {
    let place = Place::new();
    furnish(&place, 1);
    // This script stands for ssh. It runs the words behind `-- HOST`. Asked for its configuration, it has none.
    let ssh = "#!/bin/sh\n[ \"$1\" = -G ] && exit 0\nshift 2\nexec \"$@\"\n";
    fs::write(place.path().join("fake-ssh"), ssh).expect("written");
    let slipway = env!("CARGO_BIN_EXE_slipway");
    let words = ["transfer", "--ssh", "sh ./fake-ssh", "--remote", slipway, "from", "127.0.0.1:to"];
    let answer = place.json(words);
    assert_eq!((&answer["files"], &answer["tls"]), (&203.into(), &true.into()));
    assert!(tree(&place.path().join("from")) == tree(&place.path().join("to/from")));
    let verify = ["transfer", "--verify-only"].into_iter().chain(words.into_iter().skip(1));
    place.run(verify.clone());
    fs::write(place.path().join("to/from/large0"), "damaged").expect("written");
    place.fails(5, verify);
    let back = ["transfer", "--ssh", "sh ./fake-ssh", "--remote", slipway, "127.0.0.1:from/", "back"];
    place.run(back);
    assert!(tree(&place.path().join("from")) == tree(&place.path().join("back")));
    let verify = ["transfer", "--verify-only"].into_iter().chain(back.into_iter().skip(1));
    place.run(verify.clone());
    fs::write(place.path().join("back/large0"), "damaged").expect("written");
    place.fails(5, verify);
    let fails = place.fails(2, ["transfer", "a:x", "b:y", "here"]);
    assert!(fails.contains("one host"), "{fails}");
    let fails = place.fails(1, ["transfer", "--ssh", "false", "from", "127.0.0.1:to"]);
    assert!(fails.contains("Hint: "), "{fails}");
}

/// 20 Mbit/s, far below any machine's speed, over three seconds. The transfer's own records say so, and the kernel's count of
/// bytes on the loopback device, in a network namespace without other traffic.
#[test]
fn a_limit_is_kept() {
    let place = Place::new();
    furnish(&place, 3);
    let script = r#"
        ip link set lo up mtu 65000
        "$SLIPWAY" --quiet transfer serve --listen 127.0.0.1:7411 --root . --token-file token --once > listening &
        until [ -s token ] && ss -Htln | grep -q :7411; do sleep 0.02; done
        passed() { sed -n 's/^ *lo: *\([0-9]*\) .*/\1/p' /proc/net/dev; }
        before=$(passed)
        "$SLIPWAY" --json transfer --no-sync --limit 20mbit --token-file token from/ 127.0.0.1:to > answer || exit
        wait
        echo $(($(passed) - before))"#;
    let mut shell = std::process::Command::new("unshare");
    place.furnish(&mut shell);
    let shell = shell.args(["--net", "sh", "-c", script]).env("SLIPWAY", env!("CARGO_BIN_EXE_slipway"));
    let output = shell.output().expect("unshare is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let passed: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    let answer = fs::read_to_string(place.path().join("answer")).expect("an answer");
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let get = |name: &str| answer[name].as_f64().expect("a number");
    assert_eq!(answer["limited_by"], "limit", "{answer}");
    let choices = answer["choices"].as_array().expect("a list");
    let is_paced = |choice: &serde_json::Value| {
        choice["setting"] == "pacing" && choice["value"] == "22.0 Mbit/s a stream" && choice["why"].is_string()
    };
    assert!(choices.iter().any(is_paced), "{answer}");
    let rate = |bytes: f64, seconds: f64| bytes * 8.0 / seconds / 20e6;
    let own = rate(get("sent"), get("data_seconds"));
    // A busy machine may be slower than the limit; none is faster.
    assert!(own < 1.02, "{own} of the limit, by its own records: {answer}");
    // The kernel counts headers, acknowledgements, orders and handshakes too.
    let kernel = passed / get("sent");
    assert!((1.0..1.02).contains(&kernel), "{kernel} of what it says that it sent passed the device: {answer}");
    let whole = rate(passed, get("seconds"));
    assert!(whole < 1.02, "{whole} of the limit, by the kernel's count: {answer}");
}

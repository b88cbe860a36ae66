//! A dry run finds what `up` would: the same errors, with the same lines and exit code, and nothing is made by either.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Inventory, Place, as_before, told};

/// A place with an archive, a folder that is an image, and things that are none.
fn place() -> Place {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("noise.tar"), vec![7; 4096]).expect("written");
    std::fs::write(at("file"), "no program").expect("written");
    std::fs::create_dir_all(at("root/usr/bin")).expect("made");
    std::fs::write(at("root/usr/bin/tool"), "#!/nothing\n").expect("written");
    std::fs::set_permissions(at("root/usr/bin/tool"), PermissionsExt::from_mode(0o755)).expect("set");
    std::fs::create_dir(at("root/srv")).expect("made");
    for folder in ["state", "images", "scratch"] {
        std::fs::create_dir(at(folder)).expect("made");
        std::fs::set_permissions(at(folder), PermissionsExt::from_mode(0o700)).expect("closed");
    }
    place
}

/// The errors of a command that must fail with code 2: each one's line and message.
#[track_caller]
fn errors(place: &Place, words: &[&str]) -> Vec<(u64, String)> {
    let said = place.fails(2, ["--json"].iter().chain(words));
    // Warnings come before.
    let last = said.lines().last().expect("an error is told");
    let error: serde_json::Value = serde_json::from_str(last).expect("JSON");
    let all = error["error"]["all"].as_array().unwrap_or_else(|| panic!("errors have lines: {said}"));
    all.iter()
        .map(|one| (one["line"].as_u64().expect("a line"), one["message"].as_str().expect("a message").to_owned()))
        .collect()
}

#[test]
fn what_up_would_refuse_is_found_with_its_line() {
    let place = place();
    let before = Inventory::of(&place);
    // The first line is the lab's name.
    for (text, line, says) in [
        ("images:\n  gone: ./gone.tar\nnodes: {n: {image: gone}}\n", 3, "No such file"),
        ("images:\n  noise: ./noise.tar\nnodes: {n: {image: noise}}\n", 3, "noise.tar"),
        ("images:\n  odd: /dev/null\nnodes: {n: {image: odd}}\n", 3, "neither a directory nor an archive"),
        ("images:\n  root: {path: ./root, reference: latest}\nnodes: {n: {image: root}}\n", 3, "one root file system"),
        ("nodes:\n  n:\n    mounts: ['./root:/a', './gone:/b']\n", 4, "gone"),
        ("nodes:\n  n:\n    mounts:\n      - source: ./file\n        target: /usr\n", 6, "a folder in the image"),
        ("nodes:\n  n:\n    mounts: ['./root:/etc/passwd']\n", 4, "a file in the image"),
        ("nodes:\n  n: {count: 3}\n  n3x:\n    cpuset: '4000'\n", 5, "of 4000 not all are there"),
        ("hosts:\n  h:\n    cpus: '4000'\nnodes: {n: {count: 3}}\n", 4, "of 4000 not all are there"),
        ("nodes:\n  n:\n    count: 3\n    command: no-such-program -v\n", 5, "in no folder of the node's PATH"),
        ("nodes:\n  n:\n    command: /no/such/program\n", 4, "no such file"),
        ("nodes:\n  n:\n    command: /tmp/program\n", 4, "no such file"),
        ("nodes:\n  n:\n    command: /srv/file\n    mounts: ['./file:/srv/file']\n", 4, "cannot be executed"),
        ("nodes:\n  n:\n    command: /etc\n", 4, "a folder"),
        ("images: {root: ./root}\nnodes:\n  n:\n    image: root\n    command: sleep 1000\n", 6, "PATH"),
        ("nodes:\n  n:\n    env: {PATH: /srv}\n    command: sleep 1000\n", 5, "PATH"),
        ("nodes:\n  n:\n    sysctls:\n      net.ipv4.no_such: 1\n", 5, "no such setting"),
        ("nodes:\n  n:\n    sysctls:\n      net.ipv4.conf.eth0.rp_filter: 1\n", 5, "no such setting"),
        ("nodes:\n  n:\n    sysctls:\n      net.ipv4.ip_default_ttl: 999\n", 5, "Invalid argument"),
    ] {
        let file = place.file("lab", text);
        let file = file.to_str().expect("UTF-8");
        for words in [&["up", "--dry-run", file][..], &["up", file]] {
            let found = errors(&place, words);
            let [(at, message)] = found.as_slice() else { panic!("one error: {found:?} for {text}") };
            assert_eq!(*at, line, "{message} for {text}");
            assert!(message.contains(says), "{says} in: {message} for {text}");
            as_before(&place, &before, text);
        }
    }
}

#[test]
fn all_of_it_is_told_at_once_and_by_every_command_that_would_bring_the_lab_up() {
    let place = place();
    let text = "images: {gone: ./gone.tar}\nnodes:\n  a: {image: gone}\n  b: {command: /no/program}\n  c: {command: /no/program}\n  d:\n    mounts: ['./gone:/x']\n    sysctls: {net.no.such: 1}\njob: {command: 'true'}\nscenario: {length: 1s, events: []}\n";
    let file = place.file("lab", text);
    let before = Inventory::of(&place);
    let file = file.to_str().expect("UTF-8");
    for words in [
        &["up", "--dry-run", file][..],
        &["up", file],
        &["run", "--dry-run", file],
        &["run", file],
        &["play", "--dry-run", file],
        &["play", file],
        &["compare", "--dry-run", "--jobs", "job", file],
        &["compare", "--jobs", "job", file],
    ] {
        let lines: Vec<u64> = errors(&place, words).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 5, 6, 8, 9], "{words:?}");
        as_before(&place, &before, &format!("{words:?}"));
        assert!(!place.path().join("slipway-results").exists(), "{words:?} leaves no results");
    }
}

#[test]
fn what_is_right_is_found_so() {
    let place = place();
    std::os::unix::fs::symlink("usr/bin", place.path().join("root/bin")).expect("linked");
    std::fs::copy("/bin/true", place.path().join("root/usr/bin/copy")).expect("copied");
    let tools = place.path().join("root/usr/bin");
    let text = format!(
        "images: {{root: ./root}}\nnodes:\n  a: {{command: sleep 1000, sysctls: {{net.ipv4.ip_default_ttl: 70, net.ipv4.conf.default.rp_filter: 1}}}}\n  b: {{image: root, command: /bin/tool}}\n  c: {{command: /opt/tools/tool, mounts: ['{}:/opt/tools:ro', './file:/etc/new/file']}}\n  d: {{command: tool, env: {{PATH: /opt}}, mounts: ['{}:/opt/tool']}}\n",
        tools.display(),
        tools.join("tool").display(),
    );
    let file = place.file("lab", &text);
    place.run(["up".as_ref(), Path::new("--dry-run").as_os_str(), file.as_os_str()]);
    assert_eq!(
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl").expect("read").trim(),
        "64",
        "a dry run tries settings where nobody lives"
    );
}

#[test]
fn limits_below_what_is_under_way_are_warned_of() {
    let place = place();
    let net = "networks:\n  net:\n    conditions:\n      delay: 20ms\n      rate: 12mbit\n      limit: 19\n";
    let file =
        place.file("lab", &format!("{net}nodes: {{n: {{count: 2}}}}\nscenario: {{events: [{{at: 1ms, cut: n1}}]}}\n"));
    let file = file.to_str().expect("plain");
    let said = |words: &[&str]| {
        let output = place.slipway(words).output().expect("started");
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
    };
    let line =
        "lab.yaml:7: a limit of 19 drops packets that are under way: for 20ms at 12mbit, 20 packets of 1500 bytes";
    for words in [
        &["up", "--dry-run", file][..],
        &["run", "--dry-run", file, "--", "true"],
        &["play", "--dry-run", file],
        &["up", file],
    ] {
        let said = said(words);
        assert_eq!(said.matches(line).count(), 1, "{words:?}: {said}");
    }
    let name = place.name("lab");
    let short = "n1:eth0: a limit of 20 drops packets that are under way: for 40ms at 12mbit, 40 packets of 1500 bytes";
    assert!(!said(&["set", &name, "n1", "limit=20"]).contains("note"), "that is enough");
    assert!(said(&["set", &name, "n1", "delay=40ms", "--dry-run"]).contains(short));
    assert!(said(&["set", &name, "n1", "delay=40ms"]).contains(short));
    assert!(!said(&["set", &name, "n1", "loss=1%"]).contains("note"), "it was short before");
    let pair = said(&["set", &name, "n1->n2", "limit=7"]);
    assert!(!pair.contains("note"), "{pair}");
    place.run(["restore", &name]);
    place.run(["set", &name, "n1", "n2", "limit=40"]);
    let pair = said(&["set", &name, "n1->n2", "limit=7"]);
    assert!(pair.contains("n1:eth0: a limit of 7"), "{pair}");
    place.run(["down", &name]);
    let scene = "networks: {net: {conditions: {delay: 20ms, rate: 12mbit, limit: 20}}}\nnodes: {n: {count: 2}}\nscenario:\n  events: [{at: 1ms, set: {delay: 40ms}, interfaces: n1}]\n";
    let scene = place.file("scene", scene);
    let scene = said(&["play", "--dry-run", scene.to_str().expect("plain")]);
    assert!(scene.contains(short), "{scene}");
}

#[test]
fn limits_beyond_the_machine_are_warned_of() {
    let place = place();
    let file = place.file("lab", "nodes: {n: {count: 2, memory: 900TiB, cpu: 5000 cores}, m: }\n");
    for dry_run in [true, false] {
        let mut command = place.slipway(["up".as_ref(), file.as_os_str()]);
        if dry_run {
            command.arg("--dry-run");
        }
        let output = command.output().expect("started");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.success(), "{said}");
        for words in ["node n may use 900TiB of memory", "node n may use 5000 cores"] {
            assert_eq!(said.matches(words).count(), 1, "{words} in: {said}");
        }
    }
}

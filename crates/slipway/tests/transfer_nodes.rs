//! Transfers between nodes of a lab: over the network that both are on, with its conditions, its fast path and its cuts.

mod common;

use std::fs::File;
use std::process::{Child, Stdio};

use common::{Lab, Place, await_that, copy_program};
use serde_json::Value;

/// The image of `near` has busybox, and nothing else.
const TWO: &str = "hosts: 2\nimages: {box: ./root}\nnetworks: {plain: vxlan, quick: fast}\n\
                   nodes:\n  n1: {host: host1, networks: [plain, quick]}\n  n2: {host: host2, networks: [plain, quick]}\n  \
                   near: {host: host1, networks: [plain, quick], image: box}\n  bare: {host: host1, networks: [quick]}\n";

/// Makes a data set of some megabytes in a node.
fn furnish(lab: &Lab<'_>, node: &str, megabytes: u32) {
    let script = format!(
        "mkdir -p /tmp/set/sub && cd /tmp/set && head -c {megabytes}M /dev/urandom > large && seq 9999 > sub/numbers && ln sub/numbers hard && ln -s sub link"
    );
    lab.exec(node, ["sh", "-c", &script]);
}

/// Names, kinds, modes, times and content of a tree.
fn tree(lab: &Lab<'_>, node: &str, folder: &str) -> String {
    let script = format!(
        "cd {folder} && find . -mindepth 1 -printf '%p %y %m %l %Ts\\n' | sort && find . -type f | sort | xargs sha256sum"
    );
    lab.exec(node, ["sh", "-c", &script])
}

/// Words of a transfer from `n1` to a node, with options.
fn words(lab: &Lab<'_>, to: &str, options: &[&str]) -> Vec<String> {
    let ends = [format!("{}:n1:/tmp/set", lab.name), format!("{}:{to}:/tmp/in", lab.name)];
    ["transfer"].into_iter().chain(options.iter().copied()).map(str::to_owned).chain(ends).collect()
}

#[track_caller]
fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or_else(|| panic!("{name}: {answer}"))
}

/// Bytes that left a node by its interface on a network.
fn left(lab: &Lab<'_>, node: &str, interface: &str) -> f64 {
    let file = format!("/sys/class/net/{interface}/statistics/tx_bytes");
    lab.exec(node, ["cat", &file]).trim().parse().expect("a number")
}

#[test]
fn data_takes_the_network_that_was_chosen() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join("root/bin")).expect("made");
    copy_program("/bin/busybox", &place.path().join("root/bin/busybox"));
    let lab = place.up("between", TWO);
    furnish(&lab, "n1", 1);

    // The first network that both are on, at its rate.
    place.run(["set", &lab.name, "n1:eth0", "rate=40mbit"]);
    let (before, fast) = (left(&lab, "n1", "eth0"), lab.connections());
    let answer = place.json(words(&lab, "n2", &[]));
    assert_eq!((&answer["network"], &answer["files"], &answer["links"]), (&"plain".into(), &2.into(), &2.into()));
    let sent = number(&answer, "sent");
    assert!(sent > 1e6 && left(&lab, "n1", "eth0") - before > sent, "it went by eth0: {answer}");
    let rate = sent * 8.0 / number(&answer, "seconds");
    // A bucket's worth may go at once.
    assert!(rate < 50e6, "{rate} bit/s over a link of 40 Mbit/s: {answer}");
    assert_eq!(lab.connections(), fast, "the fast path has nothing to do with it");
    let original = tree(&lab, "n1", "/tmp/set");
    assert_eq!(original, tree(&lab, "n2", "/tmp/in/set"));
    place.run(words(&lab, "n2", &["--verify-only"]));
    place.run(["restore", &lab.name]);

    // Over the fast path, within a host and between two.
    for (to, path) in [("near", "pair"), ("n2", "tcp")] {
        lab.exec(to, ["/bin/busybox", "rm", "-rf", "/tmp/in"]);
        let count = || {
            let of = |router: &Value| router["status"]["connections"][path].as_u64().expect("a number");
            lab.routers().iter().map(of).sum::<u64>()
        };
        let (before, fast) = (left(&lab, "n1", "eth1"), count());
        let answer = place.json(words(&lab, to, &["--network", "quick"]));
        assert_eq!(answer["network"], "quick");
        // Orders, answers, and a stream of data at least.
        assert!(count() >= fast + 3, "{path}: {fast} before, {} now", count());
        assert!(
            left(&lab, "n1", "eth1") - before < number(&answer, "sent"),
            "data passed the base network by: {answer}"
        );
        place.run(words(&lab, to, &["--network", "quick", "--verify-only"]));
    }
    assert_eq!(original, tree(&lab, "n2", "/tmp/in/set"));
    let again = place.json(words(&lab, "n2", &["--network", "quick", "--clear"]));
    assert!(number(&again, "sent") < 1e5 && again["tls"] == false, "nothing is sent twice: {again}");
    lab.exec("n2", ["sh", "-c", "echo other > /tmp/in/set/large"]);
    place.fails(5, words(&lab, "n2", &["--verify-only"]));

    for (code, hint, words) in [
        (2, "they share quick", words(&lab, "bare", &["--network", "plain"])),
        (2, "to itself", words(&lab, "n1", &[])),
        (2, "slipway copy", vec!["transfer".into(), ".".into(), format!("{}:n1:/tmp", lab.name)]),
        (2, "from /", vec!["transfer".into(), format!("{}:n1:set", lab.name), format!("{}:n2:/tmp", lab.name)]),
        (2, "between nodes", ["transfer", "--network", "plain", ".", "host:x"].map(str::to_owned).into()),
        (4, "none:n1", vec!["transfer".into(), "none:n1:/a".into(), "none:n2:/b".into()]),
        (1, "/tmp/none", vec!["transfer".into(), format!("{}:n1:/tmp/none", lab.name), format!("{}:n2:/b", lab.name)]),
    ] {
        let said = place.fails(code, words);
        assert!(said.contains(hint) || code == 4, "{said}");
    }
    // The ends in the nodes end with the command.
    for node in ["n1", "n2", "near"] {
        let running = || lab.exec(node, ["/bin/busybox", "sh", "-c", "/bin/busybox cat /proc/[0-9]*/cmdline"]);
        await_that("no end is left", || !running().contains("--transfer\0"));
    }
}

/// A node sends to a server that its network reaches, and fetches from it.
#[test]
fn a_node_reaches_a_server() {
    let place = Place::new();
    let lab = place.up("served", "nodes: {n: {count: 2}}\n");
    furnish(&lab, "n1", 1);
    let address = lab.interface("n2", 0)["ipv4"].as_str().expect("an address").to_owned();
    place.run(["copy", env!("CARGO_BIN_EXE_slipway"), &format!("{}:n2:/tmp/slipway", lab.name)]);
    let script = "mkdir -p /tmp/root && exec /tmp/slipway transfer serve --listen 0.0.0.0:7411 --root /tmp/root --token-file /tmp/token --send";
    let mut server = lab.program("n2", ["sh", "-c", script]).stdout(Stdio::null()).spawn().expect("started");
    lab.listens("n2", 7411);
    place.run(["copy", &format!("{}:n2:/tmp/token", lab.name), "token"]);
    let node = format!("{}:n1:", lab.name);
    let common = ["transfer", "--token-file", "token"];
    place.run(common.into_iter().chain([format!("{node}/tmp/set").as_str(), &format!("{address}:in")]));
    assert_eq!(tree(&lab, "n1", "/tmp/set"), tree(&lab, "n2", "/tmp/root/in/set"));
    place.run(common.into_iter().chain([format!("{address}:in/set/").as_str(), &format!("{node}/tmp/back")]));
    assert_eq!(tree(&lab, "n1", "/tmp/set"), tree(&lab, "n1", "/tmp/back"));
    server.kill().expect("killed");
    server.wait().expect("ended");
}

/// Nodes with the machine's own network, here one without anything else, are reached from the machine itself.
#[test]
fn a_local_path_reaches_a_node_of_this_machines_network() {
    let place = Place::new();
    let file = place.file("own", "hosts: machine\nnetworks: {net: host}\nnodes: {n: {count: 1}}\n");
    let script = r#"
        ip link set lo up && "$SLIPWAY" --quiet up "$FILE" && mkdir set && seq 9999 > set/numbers &&
        "$SLIPWAY" --quiet transfer set $LAB:n:/tmp/in &&
        "$SLIPWAY" exec $LAB n -- cat /tmp/in/set/numbers | cmp - set/numbers &&
        "$SLIPWAY" --quiet transfer $LAB:n:/tmp/in/set back && diff -r set back/set
        code=$?
        "$SLIPWAY" --quiet down $LAB && exit $code"#;
    let mut shell = std::process::Command::new("unshare");
    place.furnish(&mut shell);
    let shell = shell.args(["--net", "sh", "-c", script]).env("SLIPWAY", env!("CARGO_BIN_EXE_slipway"));
    let output = shell.env("FILE", file).env("LAB", place.name("own")).output().expect("unshare is installed");
    assert!(output.status.success(), "{}", common::told(&output));
}

/// Starts a transfer that is slow by its limit, and waits until several blocks have arrived.
fn under_way(place: &Place, lab: &Lab<'_>, network: &str) -> Child {
    let said = File::create(place.path().join("said")).expect("made");
    let words = words(lab, "n2", &["--network", network, "--limit", "8mbit", "--no-sync"]);
    let child = place.slipway(words).stdout(Stdio::null()).stderr(said).spawn().expect("started");
    // Sectors that hold data (`%b` in `find(1)`): the file has its full size from the beginning.
    let script = "find /tmp/in/.slipway-part -type f -printf '%b\\n' 2>/dev/null | sort -n | tail -n 1";
    await_that("data arrive", || {
        let sectors = lab.exec("n2", ["sh", "-c", script]);
        sectors.trim().parse().is_ok_and(|sectors: u64| sectors >= 256)
    });
    child
}

#[test]
fn a_cut_link_ends_nothing_that_it_need_not() {
    let place = Place::new();
    let lab = place
        .up("cutting", "networks: {plain: bridge, quick: fast}\nnodes: {n: {count: 2, networks: [plain, quick]}}\n");
    furnish(&lab, "n1", 2);
    let original = tree(&lab, "n1", "/tmp/set");

    // TCP waits for the link, and the transfer goes on.
    let mut child = under_way(&place, &lab, "plain");
    place.run(["cut", &lab.name, "n2"]);
    assert!(child.try_wait().expect("asked").is_none(), "it waits");
    place.run(["heal", &lab.name, "n2"]);
    assert!(child.wait().expect("ended").success(), "{}", said(&place));
    assert_eq!(original, tree(&lab, "n2", "/tmp/in/set"));

    // The fast path ends connections whose link is cut. The same command goes on afterwards.
    lab.exec("n2", ["rm", "-rf", "/tmp/in"]);
    let mut child = under_way(&place, &lab, "quick");
    place.run(["cut", &lab.name, "n2"]);
    assert_eq!(child.wait().expect("ended").code(), Some(1), "{}", said(&place));
    let why = said(&place);
    assert!(why.contains("in node `n1`") && why.contains("run the same command again"), "{why}");
    place.run(["heal", &lab.name, "n2"]);
    // As it does after the command was killed, with which its ends in the nodes end.
    let mut child = under_way(&place, &lab, "plain");
    child.kill().expect("killed");
    child.wait().expect("ended");
    for node in ["n1", "n2"] {
        await_that("no end is left", || {
            !lab.exec(node, ["sh", "-c", "cat /proc/[0-9]*/cmdline"]).contains("--transfer\0")
        });
    }
    let answer = place.json(words(&lab, "n2", &["--network", "quick"]));
    assert!(number(&answer, "kept") > 0.0, "it goes on where it was: {answer}");
    assert_eq!(original, tree(&lab, "n2", "/tmp/in/set"));
}

fn said(place: &Place) -> String {
    std::fs::read_to_string(place.path().join("said")).expect("written")
}

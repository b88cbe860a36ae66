//! Benchmarks of transfers between nodes, through the command itself.

mod common;

use common::Place;

/// Two nodes with ssh, data at the first and a folder at the second.
const TWO: &str = "nodes: {n: {count: 2, sshd: true, mounts: [\"./set:/set:ro\", \"./in:/in:rw\"]}, bare: {}}\n";

#[test]
fn transfers_are_measured_against_path_and_disk() {
    let place = Place::new();
    for folder in ["set/more", "in"] {
        std::fs::create_dir_all(place.path().join(folder)).expect("made");
    }
    std::fs::write(place.path().join("set/large"), vec![7; 8 << 20]).expect("written");
    std::fs::write(place.path().join("set/more/small"), "bytes").expect("written");
    let lab = place.up("moves", TWO);
    let bench = |receiver: &'static str, more: &[&'static str]| {
        let words =
            ["bench", "transfer", &lab.name, "n1", receiver, "--into", "/in", "--repeat", "1", "--warm-up", "0"];
        words.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<_>>()
    };
    let done = place.json(bench("n2", &["--data", "/set", "--time", "1s", "--out", "results"]));
    let figure = |name: &str| {
        let figures = done["figures"].as_array().expect("a list");
        let found = figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}: {done}"));
        let rows = found["rows"].as_array().expect("a list").iter();
        rows.map(|row| row["driver"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(figure("transfer rate"), ["limit", "slipway transfer", "rsync", "scp"]);
    assert_eq!(figure("processor time per GB"), ["slipway transfer", "rsync", "scp"]);
    assert_eq!((figure("TCP rate"), figure("disk write rate")), (vec!["limit".to_owned()], vec!["limit".to_owned()]));
    assert!(done["limit"].as_str().expect("words").starts_with("the smaller of iperf3's rate to n2"), "{done}");
    assert!(done["saturated"].as_array().is_some_and(|ways| ways.len() == 4), "{done}");
    let records = std::fs::read_to_string(place.path().join("results/records.jsonl")).expect("written");
    assert!(records.contains(r#""kind":"transfer""#) && records.contains("FOLDER/run"), "{records}");
    let left: Vec<_> = std::fs::read_dir(place.path().join("in")).expect("listed").collect();
    assert!(left.is_empty(), "{left:?}");

    // A program that is not at the receiver is named, and the rest goes on.
    lab.exec("n2", ["rm", "/usr/bin/scp", "/usr/bin/fio"]);
    let done = place.json(bench("n2", &["--data", "/set", "--time", "1s", "--out", "fewer"]));
    assert_eq!(done["refused"][0]["way"], "scp");
    assert!(done["limit"].as_str().expect("words").ends_with("not its disk's: fio is not installed at n2"), "{done}");

    assert!(place.fails(2, bench("bare", &["--data", "/set"])).contains("Hint: write `sshd: true`"));
    assert!(place.fails(2, bench("n2", &["--data", "set"])).contains("Hint: write the path from /"));
    assert!(place.fails(1, bench("n2", &["--data", "/none", "--out", "none"])).contains("read /none: it is not there"));
    lab.down();
}

#[test]
fn another_machine_without_iperf3s_server_has_the_disks_limit() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join("in")).expect("made");
    std::fs::write(place.path().join("large"), vec![7; 1 << 20]).expect("written");
    // This script stands for ssh. It runs the words behind `-- HOST`. Asked for its configuration, it has none.
    let ssh = "#!/bin/sh\n[ \"$1\" = -G ] && exit 0\nshift 2\nexec sh -c \"$*\"\n";
    std::fs::write(place.path().join("fake-ssh"), ssh).expect("written");
    // The port of a listener that is gone: nothing answers there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr()).expect("bound").port();
    let into = place.path().join("in").display().to_string();
    let mut words = vec!["bench", "transfer", "--peer", "127.0.0.1", "--data", "large", "--into", &into];
    words.extend(["--ssh", "sh ./fake-ssh", "--remote", env!("CARGO_BIN_EXE_slipway"), "--beside", "none"]);
    let port = port.to_string();
    words.extend(["--repeat", "1", "--warm-up", "0", "--port", &port, "--out", "results"]);
    let done = place.json(words);
    let limit = done["limit"].as_str().expect("words");
    let why = format!("not the path's rate: no `slipway bench serve` answers at 127.0.0.1, port {port}");
    assert!(limit.starts_with("fio's writes at 127.0.0.1") && limit.ends_with(&why), "{limit}");
    assert_eq!(std::fs::read_dir(place.path().join("in")).expect("listed").count(), 0);
}

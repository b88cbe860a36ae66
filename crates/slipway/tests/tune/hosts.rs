//! Virtual hosts of labs, with kernel settings of their own.

use serde_json::Value;

use crate::common::Place;

#[test]
fn a_host_of_a_lab_has_its_own_settings_and_gives_them_to_its_nodes() {
    let place = Place::new();
    let text = "
hosts:
  plain: {}
  tuned: {tune: {net.ipv4.tcp_congestion_control: reno, net.ipv4.tcp_rmem: 4096 65536 1048576}}
networks: {own: vxlan, shared: host}
nodes:
  a: {host: plain, networks: [own]}
  b: {host: tuned, networks: [own]}
  c: {host: tuned, networks: [own], sysctls: {net.ipv4.tcp_rmem: 4096 70000 2000000}}
  d: {host: tuned, networks: [shared]}
";
    let lab = place.up("tuned", text);
    let value = |node: &str, name: &str| {
        lab.exec(node, ["cat", &format!("/proc/sys/net/ipv4/{name}")]).trim().replace('\t', " ")
    };
    assert_ne!(value("a", "tcp_rmem"), "4096 65536 1048576");
    assert_eq!(
        (value("b", "tcp_congestion_control"), value("b", "tcp_rmem")),
        ("reno".into(), "4096 65536 1048576".into())
    );
    assert_eq!(
        (value("c", "tcp_congestion_control"), value("c", "tcp_rmem")),
        ("reno".into(), "4096 70000 2000000".into())
    );
    assert_eq!(value("d", "tcp_rmem"), "4096 65536 1048576", "the host's own");
    let refused = text.replace("tcp_congestion_control: reno", "tcp_nothing: 1");
    let file = place.file("refused", &refused);
    let told = place.fails(2, ["up", &file.display().to_string()]);
    assert!(told.contains("tcp_nothing"), "{told}");
}

const PROFILES: &str = "
hosts:
  plain: {}
  word: {tune: dtn}
  path: {tune: {profile: dtn, rtt: 300ms, rate: 10gbit, net.ipv4.tcp_wmem: 4096 16384 1000000}}
networks: {own: vxlan}
nodes:
  a: {host: plain}
  b: {host: word}
  c: {host: path}
  d: {host: path, sysctls: {net.ipv4.tcp_rmem: 4096 70000 2000000}}
";

#[test]
fn a_profile_gives_a_host_what_its_rules_advise_and_says_which() {
    let place = Place::new();
    let lab = place.up("profiles", PROFILES);
    let read = |node: &str, name: &str| {
        lab.exec(node, ["cat", &format!("/proc/sys/net/ipv4/{name}")]).trim().replace('\t', " ")
    };
    let shown = place.json(["inspect", &lab.name]);
    let tunings = &shown["state"]["tunings"];
    assert_eq!(tunings[0], Value::Null, "{tunings}");
    assert_eq!((&tunings[2]["rtt"], &tunings[2]["rate"]), (&"300ms".into(), &"10gbit".into()));
    let of = |host: usize, rule: &str| {
        let settings = tunings[host]["settings"].as_array().expect("settings");
        let found = settings.iter().find(|setting| setting["rule"] == rule);
        found.unwrap_or_else(|| panic!("{rule}: {tunings}")).clone()
    };
    let idle = of(2, "tcp-idle-restart");
    assert_eq!((&idle["former"], &idle["value"], &idle["in_nodes"]), (&"1".into(), &"0".into(), &true.into()));
    for node in ["b", "c", "d"] {
        assert_eq!(read(node, "tcp_slow_start_after_idle"), "0", "{node}");
    }
    assert_eq!(read("a", "tcp_slow_start_after_idle"), "1");
    // A host's own value, and a node's own, go before the profile's.
    assert_eq!(read("c", "tcp_wmem"), "4096 16384 1000000");
    assert_eq!(read("d", "tcp_rmem"), "4096 70000 2000000");
    let receive = of(2, "tcp-receive-buffer");
    assert_eq!(
        read("c", "tcp_rmem"),
        receive["value"].as_str().expect("a value"),
        "more than any machine has at first"
    );
    // The lab stays as its file has it, so it can be exported.
    assert_eq!(shown["lab"]["hosts"][1]["profile"]["word"], "dtn");
    assert_eq!(shown["lab"]["hosts"][1]["tune"], Value::Null);
    let exported = place.run(["export", &lab.name]);
    assert!(exported.contains("word: {tune: dtn}") && exported.contains("rtt: 300ms"), "{exported}");
    let told = place.run(["inspect", &lab.name]);
    assert!(told.contains("host word is tuned for dtn") && told.contains("tcp-idle-restart"), "{told}");
    let told = place.run(["inspect", &lab.name, "b"]);
    assert!(told.contains("net.ipv4.tcp_slow_start_after_idle = 0, by rule tcp-idle-restart"), "{told}");
}

#[test]
fn compare_holds_profiles_against_each_other() {
    let place = Place::new();
    let file = place.file("tuned", "hosts: 2\nnodes: {n: {count: 2}}\n");
    let file = file.display().to_string();
    let words = ["compare", &file, "--drivers", "bridge", "--tune", "none,dtn", "--repeat", "1", "--warm-up", "0"];
    let read = ["--out", "tunes", "--regex", "([0-9]+)", "--", "cat", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"];
    let summary = place.json(words.into_iter().chain(read));
    let rows = summary["figures"][0]["rows"].as_array().expect("rows").clone();
    let values: Vec<_> = rows.iter().map(|row| (row["driver"].clone(), row["value"]["median"].clone())).collect();
    assert_eq!(values, [("tune none".into(), 1.0.into()), ("tune dtn".into(), Value::from(0.0))], "{summary}");
}

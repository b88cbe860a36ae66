//! Labs over machines that say what they offer: nobody gets more, and the same file gives the same places.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use slipway_document::errors::DocumentErrors;
use slipway_document::units::Bytes;
use slipway_lab::condition::Cpu;
use slipway_lab::id::MachineId;
use slipway_lab::model::{Lab, Machine};
use slipway_lab::{Overrides, parse, parse_with};

fn read(text: &str) -> Result<Lab, DocumentErrors> {
    parse("lab.yaml", text, Path::new("/"))
}

/// The machines of a lab's nodes, in their order.
fn places(lab: &Lab) -> Vec<&str> {
    lab.nodes.iter().map(|node| lab.machines[lab.hosts[node.host].machine].name.as_str()).collect()
}

const TWO: &str = "machines: {a: {address: 192.0.2.1, cores: 4}, b: {address: 192.0.2.2, cores: 2, memory: 4GiB}}\n";

#[test]
fn nodes_go_where_there_is_room() {
    let lab = read(&format!("{TWO}nodes: {{n: {{count: 6, cpu: 1 core}}}}\n")).unwrap();
    assert_eq!(places(&lab), ["a", "b", "a", "a", "b", "a"].as_slice(), "as full as each other");
    let lab = read(&format!("{TWO}placement: pack\nnodes: {{n: {{count: 6, cpu: 1 core}}}}\n")).unwrap();
    assert_eq!(places(&lab), ["a", "a", "a", "b", "b", "a"].as_slice(), "in runs, and on where one is full");
    let lab = read(&format!("{TWO}nodes: {{n: {{count: 4}}}}\n")).unwrap();
    assert_eq!(places(&lab), ["a", "b", "a", "b"].as_slice(), "without limits in turn");
    let text = format!("{TWO}hosts: 3\nnodes: {{n: {{count: 3, cpu: 2 cores}}}}\n");
    assert_eq!(places(&read(&text).unwrap()), ["a", "b", "a"].as_slice(), "hosts by what is on them");
}

#[test]
fn a_time_to_give_machines_up_is_a_second_or_more() {
    let lab = read(&format!("{TWO}orphaned_after: 10min\nnodes: {{n: {{count: 2}}}}\n")).unwrap();
    assert_eq!(lab.orphaned_after.map(|after| after.duration().as_secs()), Some(600));
    let errors = read(&format!("{TWO}orphaned_after: 100ms\nnodes: {{n: {{count: 2}}}}\n")).unwrap_err();
    assert!(errors.plain().contains("no machine can be given up after 100ms"), "{}", errors.plain());
}

#[test]
fn nodes_are_where_machines_have_the_labels_that_they_need() {
    let machines = "\
machines:
  a: {address: 192.0.2.1, labels: [ssd]}
  b: {address: 192.0.2.2, labels: [gpu, ssd]}
  c: {address: 192.0.2.3, labels: [gpu]}
";
    let nodes = "nodes: {g: {count: 3, needs: [gpu]}, n: {count: 3}, s: {needs: [gpu, ssd]}}\n";
    for (rule, expected) in
        [("", ["b", "c", "b", "a", "b", "c", "b"]), ("placement: pack\n", ["b", "b", "c", "a", "b", "c", "b"])]
    {
        let lab = read(&format!("{machines}{rule}{nodes}")).unwrap();
        assert_eq!(places(&lab), expected.as_slice());
    }
    let full = "machines: {a: {address: 192.0.2.1, cores: 4}, b: {address: 192.0.2.2, cores: 2, labels: [gpu]}}\n";
    let lab =
        read(&format!("{full}nodes: {{g: {{count: 2, cpu: 1 core, needs: [gpu]}}, n: {{cpu: 1 core}}}}\n")).unwrap();
    assert_eq!(places(&lab), ["b", "b", "a"].as_slice());
    let cases = [
        (machines, "n: {needs: [tape]}", "node `n`: no machine with a host has all labels that it needs: tape"),
        (machines, "n: {host: a, needs: [gpu]}", "node `n`: the machine of its host does not have all labels"),
        (full, "g: {count: 3, cpu: 1 core, needs: [gpu]}", "no machine with its labels has room for node `g3`"),
        ("", "n: {needs: [gpu]}", "node `n`: no machine with a host has all labels"),
    ];
    for (machines, node, message) in cases {
        let errors = read(&format!("{machines}nodes: {{{node}}}\n")).unwrap_err();
        assert!(errors.plain().contains(message), "{}", errors.plain());
    }
}

#[test]
fn too_much_is_an_error() {
    let cases = [
        ("nodes: {n: {count: 7, cpu: 1 core}}", "no machine has room for node `n7`: 1 cores and 0B of memory"),
        (
            "nodes: {n: {host: b, memory: 5GiB}}",
            "machine `b` offers 2 cores and 4GiB of memory, and its nodes may take",
        ),
        ("hosts: 2\nnodes: {n: {count: 4, cpu: 2 cores}}", "no machine has room for host `host2`"),
    ];
    for (text, message) in cases {
        let errors = read(&format!("{TWO}{text}\n")).unwrap_err();
        assert!(errors.plain().contains(message), "{}", errors.plain());
    }
}

#[test]
fn machines_from_outside_take_the_place_of_the_files() {
    let machine = |name: &str, last: u8| Machine {
        name: name.to_owned(),
        address: Ipv4Addr::new(192, 0, 2, last),
        ssh: name.to_owned(),
        cores: None,
        memory: None,
        labels: Vec::new(),
        job: None,
    };
    let overrides = Overrides { machines: Some(vec![machine("x", 7), machine("y", 8)]), ..Overrides::default() };
    let lab =
        parse_with("lab.yaml", &format!("{TWO}nodes: {{n: {{count: 3}}}}\n"), Path::new("/"), &overrides).unwrap();
    assert_eq!(places(&lab), ["x", "y", "x"].as_slice());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_machine_gives_more_than_it_offers(
        machines in vec((1u32..16, proptest::option::of(1u64..32)), 1..5),
        groups in vec((1u32..6, proptest::option::of(1u32..8), proptest::option::of(1u64..8)), 1..5),
        hosts in proptest::option::of(1u32..8),
        pack in any::<bool>(),
    ) {
        let mut text = String::from("machines:\n");
        for (at, (cores, memory)) in machines.iter().enumerate() {
            let memory = memory.map_or_else(String::new, |memory| format!(", memory: {memory}GiB"));
            let _ = writeln!(text, "  m{at}: {{address: 192.0.2.{}, cores: {cores}{memory}}}", at + 1);
        }
        if let Some(hosts) = hosts {
            let _ = writeln!(text, "hosts: {hosts}");
        }
        if pack {
            text += "placement: pack\n";
        }
        text += "nodes:\n";
        for (at, (count, halves, memory)) in groups.iter().enumerate() {
            let cpu = halves.map_or_else(String::new, |halves| format!(", cpu: {} cores", f64::from(halves) / 2.0));
            let memory = memory.map_or_else(String::new, |memory| format!(", memory: {memory}GiB"));
            let _ = writeln!(text, "  g{}-: {{count: {count}{cpu}{memory}}}", char::from(b'a' + u8::try_from(at).unwrap()));
        }
        let Ok(lab) = read(&text) else {
            let errors = read(&text).unwrap_err().plain();
            let known = ["no machine has room", "offers", "has no host"];
            prop_assert!(known.iter().any(|part| errors.contains(part)), "{}\n{}", text, errors);
            return Ok(());
        };
        prop_assert_eq!(&read(&text).unwrap(), &lab);
        for (at, machine) in lab.machines.enumerate() {
            let on = |node: &&slipway_lab::model::Node| lab.hosts[node.host].machine == at;
            let cores = |node: &slipway_lab::model::Node| match node.limits.cpu {
                Some(Cpu::Cores(cores)) => cores.0,
                _ => 0.0,
            };
            let taken: f64 = lab.nodes.iter().filter(on).map(cores).sum();
            prop_assert!(taken <= f64::from(machine.cores.unwrap()), "{}", text);
            let taken: u64 = lab.nodes.iter().filter(on).filter_map(|node| node.limits.memory).map(|bytes| bytes.0).sum();
            prop_assert!(taken <= machine.memory.unwrap_or(Bytes(u64::MAX)).0, "{}", text);
            prop_assert!(lab.hosts.iter().any(|host| host.machine == at));
        }
        prop_assert!(lab.hosts.iter().all(|host| host.machine < MachineId(machines.len())));
    }
}

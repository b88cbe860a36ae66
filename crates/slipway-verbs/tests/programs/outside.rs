//! The same programs where their peer is outside of the lab: a gateway carries out what they ask for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::gateway::{World, start};
use super::*;

/// Two nodes whose broker knows none of the other's addresses.
fn parted() -> (Nodes, Arc<Mutex<World>>) {
    let nodes = Nodes::new(Caps::default(), Box::new(|_, _| Err(Errno::HOSTUNREACH)));
    let paths: Vec<PathBuf> = (1..=2).map(|node| nodes.folder.path().join(format!("{node}.gateway"))).collect();
    let world = start(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    (nodes, world)
}

fn wait_for_end(world: &Mutex<World>) {
    until("all programs have ended", || world.lock().unwrap().is_empty());
}

#[test]
fn a_pingpong_reaches_a_peer_outside() {
    let (nodes, world) = parted();
    for more in [&["-c"][..], &["-c", "-s", "100000", "-r", "40"], &["-c", "-s", "1"]] {
        let said = nodes.pair(&[&["ibv_rc_pingpong", "-g", "0", "-n", "200"], more].concat());
        assert!(said.contains("200 iters"), "{more:?}: {said}");
        wait_for_end(&world);
    }
    let world = world.lock().unwrap();
    assert_eq!(world.requests, 1200);
    assert!(world.receives >= 1200, "{}", world.receives);
}

#[test]
fn perftest_reaches_a_peer_outside() {
    let (nodes, world) = parted();
    for program in [
        "ib_write_bw",
        "ib_write_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_send_bw",
        "ib_send_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
    ] {
        nodes.pair(&[program, "-x", "0", "-F", "-n", "200"]);
        wait_for_end(&world);
    }
    for arguments in [&["ib_send_lat", "-I", "64"][..], &["ib_write_bw", "-s", "100000"]] {
        nodes.pair(&[arguments, &["-x", "0", "-F", "-n", "200"]].concat());
        wait_for_end(&world);
    }
}

#[test]
fn operations_on_a_peer_outside_are_carried_out_to_the_byte() {
    let (nodes, world) = parted();
    let script = |name: &str| format!("{}/tests/verbs/{name}.py", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(nodes.run(1, &["/usr/bin/python3", &script("operations")]), "all operations\n");
    wait_for_end(&world);
    assert_eq!(nodes.run(1, &["/usr/bin/python3", &script("hazards")]), "all hazards\n");
    wait_for_end(&world);
    assert!(world.lock().unwrap().requests > 100);
}

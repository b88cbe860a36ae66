//! Machines that cannot make a lab together: one clear error each, and nothing changed. `slipway doctor --machines` says why.

mod common;

use common::machines::{Machines, address};
use common::{await_that, told};
use serde_json::Value;

const LAB: &str = "networks: {net: vxlan}\nnodes: {n: {count: 3}}\n";

/// Runs a shell's words on a machine.
#[track_caller]
fn on(machines: &Machines, machine: usize, words: &str) {
    common::machines::must(machines.program(machine, "sh").args(["-ec", words]));
}

#[track_caller]
fn check<'a>(answer: &'a Value, machine: usize, subject: &str) -> &'a Value {
    let checks = answer["machines"][machine]["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["subject"] == subject).unwrap_or_else(|| panic!("{subject}: {answer:#}"))
}

#[test]
fn the_doctor_finds_the_way_between_machines_and_who_drops_tunnels() {
    let machines = Machines::new(3);
    let file = machines.file("well", LAB);
    let doctor = |code: i32| -> Value {
        let output = machines.slipway(0, ["--json", "doctor", "--machines"]).arg(&file).output().expect("slipway runs");
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let way = |answer: &Value, from: &str, to: &str| {
        let all = answer["ways"].as_array().expect("ways").clone();
        all.into_iter().find(|way| way["from"] == from && way["to"] == to).expect("the way")
    };
    // Labs that stand have the port. They are not disturbed, and the doctor hears all the same.
    machines.run(0, ["up".as_ref(), file.as_os_str()]);
    let answer = doctor(0);
    for machine in 0..3 {
        assert_eq!(check(&answer, machine, "reached")["verdict"], "good");
        assert_eq!(check(&answer, machine, "clock")["verdict"], "good");
    }
    assert_eq!(answer["ways"].as_array().expect("ways").len(), 6);
    assert!(answer["ways"].as_array().expect("ways").iter().all(|way| way["mtu"] == 1500), "{answer:#}");
    machines.run(0, ["down", "well"]);

    on(
        &machines,
        1,
        "nft add table inet f; nft 'add chain inet f input {type filter hook input priority 0;}'; nft add rule inet f input udp dport 4789 drop",
    );
    on(&machines, 2, "ip link set eth0 mtu 1400");
    let answer = doctor(3);
    for from in ["a", "c"] {
        let way = way(&answer, from, "b");
        assert_eq!((&way["mtu"], &way["check"]["verdict"]), (&Value::Null, &"missing".into()));
        assert!(way["check"]["found"].as_str().expect("text").contains("UDP port 4789"), "{way}");
    }
    assert_eq!(way(&answer, "b", "a")["mtu"], 1500);
    let narrow = way(&answer, "c", "a");
    assert_eq!(narrow["mtu"], 1400);
    assert!(narrow["check"]["hint"].as_str().expect("text").contains("underlay: {mtu: 1350}"), "{narrow}");

    on(&machines, 1, "nft add rule inet f input tcp dport 22 reject");
    let text = machines.slipway(0, ["doctor", "--machines"]).arg(&file).output().expect("slipway runs");
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        said.contains("✘ reached: no: failed to reach machine b") && said.contains("machine c (192.0.2.3)"),
        "{said}"
    );
}

#[test]
fn machines_that_cannot_are_told_and_nothing_is_changed() {
    let machines = Machines::new(3);
    let file = machines.file("ill", LAB);
    let up = |code| machines.fails(0, code, ["up".as_ref(), file.as_os_str()]);

    // A machine named twice.
    let twice = format!("a={0},b={1},c={1}", address(0), address(1));
    let said = machines.fails(0, 2, ["up".as_ref(), "--machines".as_ref(), twice.as_ref(), file.as_os_str()]);
    assert!(
        said.contains("both have the address 192.0.2.2") && said.contains("Hint: name each machine once"),
        "{said}"
    );

    // A full disk.
    let state = machines.path().join("b/state");
    std::fs::create_dir_all(&state).expect("a folder can be made");
    on(&machines, 1, &format!("mount -t tmpfs -o size=4k,nr_inodes=4 full {}", state.display()));
    let said = up(1);
    assert!(said.contains("on machine b") && said.contains("No space left on device"), "{said}");
    assert!(!said.contains("machine a") && !said.contains("machine c"), "{said}");
    on(&machines, 1, &format!("umount {}", state.display()));
    await_that("nothing is left", || machines.remains().is_empty());

    // Another version, and none.
    let bin = machines.path().join("bin");
    machines.hide(1, &bin);
    let said = up(3);
    assert!(said.contains("reach machine b") && said.contains("slipway --version`"), "{said}");
    let fake = machines.path().join("fake");
    let hello = r#"{"hello": {"protocol": 99, "version": "9.9.9"}}"#;
    std::fs::write(&fake, format!("#!/bin/sh\necho '{hello}'\ncat > /dev/null\n")).expect("written");
    on(&machines, 1, &format!("install -m 755 {} {}/slipway", fake.display(), bin.display()));
    let said = up(3);
    assert!(said.contains("machine b: it has Slipway 9.9.9 (protocol 99)"), "{said}");
    assert!(said.contains("Hint: install the same version on all machines"), "{said}");
    on(&machines, 1, &format!("umount {}", bin.display()));

    // No remote shell.
    let mut command = machines.slipway(0, ["up".as_ref(), file.as_os_str()]);
    let output = command.env("SLIPWAY_RSH", "/nowhere/ssh").output().expect("slipway can be started");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(
        told(&output).contains("reach machine b: No such file") && told(&output).contains("Hint: try `/nowhere/ssh b")
    );
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn labs_of_two_users_do_not_meet() {
    let machines = Machines::new(3);
    let files = ["one", "two"].map(|name| {
        machines.file(name, "networks: {net: vxlan, wire: fast}\nnodes: {n: {count: 3, networks: [net, wire]}}\n")
    });
    // Two coordinators on two machines, at the same time.
    std::thread::scope(|scope| {
        for (machine, file) in files.iter().enumerate() {
            let machines = &machines;
            scope.spawn(move || machines.run(machine, ["up".as_ref(), file.as_os_str()]));
        }
    });
    // The same addresses, and each lab's own answers.
    let serve = "import socket\ns = socket.create_server(('', 5000))\nprint('listens', flush=True)\nwhile True: s.accept()[0].sendall(LAB)";
    let mut servers: Vec<_> = ["one", "two"]
        .map(|lab| {
            let mut server = machines
                .slipway(2, ["exec", lab, "n3", "--", "python3", "-uc", &serve.replace("LAB", &format!("b'{lab}'"))]);
            server.stdout(std::process::Stdio::null()).spawn().expect("slipway can be started")
        })
        .into();
    for lab in ["one", "two"] {
        await_that("the server listens", || {
            !machines.run(2, ["exec", lab, "n3", "--", "ss", "-Hltn", "sport", "=", "5000"]).is_empty()
        });
    }
    std::thread::scope(|scope| {
        for lab in ["one", "two"] {
            let machines = &machines;
            scope.spawn(move || {
                for host in ["n3", "n3.wire"] {
                    let ask = format!("import socket\nfor i in range(200): assert socket.create_connection(('{host}', 5000), 5).recv(9) == b'{lab}'");
                    machines.run(0, ["exec", lab, "n1", "--", "python3", "-c", &ask]);
                }
            });
        }
    });
    // A name that another user's lab has.
    let said = machines.fails(2, 1, ["up".as_ref(), files[0].as_os_str()]);
    assert!(said.contains("take lab `one`: it is already up"), "{said}");
    machines.run(0, ["exec", "one", "n1", "--", "ping", "-q", "-c1", "-W5", "n3"]);
    // One that ends leaves the other alone.
    machines.run(1, ["down", "one"]);
    machines.run(0, ["exec", "two", "n1", "--", "ping", "-q", "-c1", "-W5", "n2"]);
    machines.run(2, ["down", "two"]);
    for server in &mut servers {
        let _ = server.wait();
    }
    assert_eq!(machines.remains(), [""; 0]);
}

//! Two nodes attack the fast path for as long as two others use it: by thousands of connections, a thousand threads, and a
//! flood of first segments. The others' connections are fast, counted, and held to their rules. To repeat an attack, set
//! `SLIPWAY_TEST_SEED`. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use common::{Inventory, Lab, Place, as_before, await_that};
use serde_json::Value;

const SECONDS: &str = "10";
const CONNECTIONS: u64 = 300;

/// Makes connections one after the other, each with a word there and back. Then it makes as many as a rule allows, and
/// one more. Under another rule, it says at what rate it may send, bytes a second.
const CLIENT: &str = "
import socket
for word in range(300):
    with socket.create_connection(('srv', 5000)) as c:
        c.sendall(b'%4d' % word)
        assert c.recv(4, socket.MSG_WAITALL) == b'%4d' % word
two = [socket.create_connection(('srv', 5001)) for _ in range(2)]
try:
    socket.create_connection(('srv', 5001))
    print('a third')
except ConnectionRefusedError:
    pass
paced = [socket.create_connection(('srv', 5002)) for _ in range(2)]
print(sum(c.getsockopt(socket.SOL_SOCKET, 47) for c in paced[1:]))
";

const SERVER: &str = "import socket, threading\\ndef serve(c):\\n  while (said := c.recv(100)): c.sendall(said)\\n  c.close()\\ndef listen(port):\\n  s = socket.create_server(('', port))\\n  while True: threading.Thread(target=serve, args=[s.accept()[0]]).start()\\nfor port in (5000, 5001, 5002): threading.Thread(target=listen, args=[port]).start()";

fn lab(place: &Place) -> Lab<'_> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fast_faults");
    let mounts = format!("mounts: [\"{}:/opt/test:ro\"]", programs.display());
    let text = format!(
        "networks: {{net: fast}}
nodes:
  srv: {{command: [python3, -c, \"{SERVER}\"]}}
  good:
  bad1: {{{mounts}}}
  bad2: {{{mounts}}}
policy:
  - {{to: srv, ports: [5001], connections: 2}}
  - {{to: srv, ports: [5002], rate: {{pair: 80mbit}}}}
"
    );
    place.up("standing", &text)
}

/// An attacker, once it has begun.
fn attack(lab: &Lab<'_>, node: &str, seed: &str, at: &str) -> Child {
    let mut command = lab.program(node, ["python3", "/opt/test/attacker.py", seed, SECONDS, at]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it speaks");
    assert_eq!(line, "ready\n");
    child
}

/// Connections between two nodes so far: those on the fast path, and those that are not.
fn between(lab: &Lab<'_>, client: u64, server: u64) -> (u64, Value) {
    let routers = lab.routers();
    let all = routers[0]["status"]["connections"]["between"].as_array().expect("a list").clone();
    let found = all.into_iter().find(|of| of["client"] == client && of["server"] == server);
    found.map_or((0, Value::Null), |of| {
        (["pair", "tcp"].iter().filter_map(|path| of[*path].as_u64()).sum(), of["native"].clone())
    })
}

#[test]
fn two_nodes_connect_as_ever_while_two_others_attack() {
    let seed = std::env::var("SLIPWAY_TEST_SEED").unwrap_or_else(|_| rand::random::<u32>().to_string());
    println!("SLIPWAY_TEST_SEED={seed}");
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = lab(&place);
    await_that("the server listens", || {
        let connects =
            ["python3", "-c", "import socket; [socket.create_connection(('srv', p)) for p in (5000, 5001, 5002)]"];
        lab.program("good", connects).stderr(Stdio::null()).status().expect("started").success()
    });
    let routers = lab.router_processes();
    let (fast, _) = between(&lab, 1, 0);
    let mut attackers = [attack(&lab, "bad1", &seed, "bad2"), attack(&lab, "bad2", &seed, "bad1")];
    let mut rounds = 0;
    while attackers.iter_mut().any(|attacker| attacker.try_wait().expect("asked").is_none()) {
        assert_eq!(lab.exec("good", ["python3", "-c", CLIENT]), "5000000\n", "half of 80 Mbit/s");
        rounds += 1;
    }
    assert!(rounds > 0);
    let (now, native) = between(&lab, 1, 0);
    // Two more each under the rule that counts, and under the one by which they share.
    assert_eq!(now - fast, rounds * (CONNECTIONS + 4), "{native}");
    assert_eq!(lab.router_processes(), routers, "no router has ended");
    drop(lab);
    as_before(&place, &before, "nothing is kept of the attack");
}

//! Packets that wait in a node's links when it dies go on to its peers, and none after them. Needs root and the packages of
//! `scripts/setup.sh test`.

mod common;

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use common::{Lab, Place};

/// A gateway between two networks whose links hold packets back, and a node beside it that always answers.
const HELD: &str = "networks:\n  front: {driver: FRONT, conditions: HELD}\n  \
    back: {driver: bridge, ipv4: 10.80.0.0/24, ipv6: \"fd00:80::/64\", conditions: HELD}\nnodes:\n  \
    client: {networks: [front]}\n  witness: {networks: [front]}\n  \
    router: {networks: [front, back], gateway: true}\n  server: {networks: [back]}\n";

/// Accepts one connection, and sends its peer datagrams, more than a slow link carries at once.
const DYING: &str = "
import socket, time
server = socket.create_server(('', 5000))
print('listening', flush=True)
peer, there = server.accept()
peer.recv(5, socket.MSG_WAITALL)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(30):
    datagrams.sendto(bytes(1400), (there[0], 5001))
print('sent', flush=True)
time.sleep(1000)";

/// Takes the datagrams, and tells how the connection ends.
const PEER: &str = "
import socket
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(('', 5001))
peer = socket.create_connection(('router', 5000))
peer.sendall(b'hello')
datagrams.settimeout(60)
peer.settimeout(60)
try:
    for _ in range(30):
        datagrams.recv(2000)
    print('datagrams', flush=True)
    print('end' if peer.recv(1) == b'' else 'data', flush=True)
except ConnectionResetError:
    print('reset', flush=True)
except TimeoutError:
    print('nothing', flush=True)";

fn start(lab: &Lab<'_>, node: &str, program: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = lab.program(node, ["python3", "-c", program]).stdout(Stdio::piped()).spawn().expect("started");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    (child, said.lines())
}

/// Asks an address, and then the witness, whose links are as long: an answer to the first would be there by then.
fn answers(lab: &Lab<'_>, there: &str) -> bool {
    let replies = || lab.kernel_count("client", "Icmp", "InEchoReps");
    let before = replies();
    let status = lab.program("client", ["ping", "-q", "-c1", "-W0.1", there]).stdout(Stdio::null()).status();
    assert!(status.is_ok() && lab.pings("client", "witness"));
    replies() > before + 1
}

fn what_waits_arrives(driver: &str, held: &str) {
    let place = Place::new();
    let lab = place.up("held", &HELD.replace("FRONT", driver).replace("HELD", held));
    let name = lab.name.as_str();
    let own = lab.row("router")["addresses"][0].as_str().expect("an address").to_owned();
    for (end, seen) in [
        (&["kill", name, "router"][..], "reset"),
        (&["kill", name, "router", "--how", "graceful"], "end"),
        (&["stop", name, "router"], "end"),
    ] {
        let case = format!("{driver} {held}: {end:?}");
        let (mut dying, mut words) = start(&lab, "router", DYING);
        assert_eq!(words.next().expect("a line").expect("read"), "listening", "{case}");
        let (mut peer, told) = start(&lab, "client", PEER);
        assert_eq!(words.next().expect("a line").expect("read"), "sent", "{case}");
        place.run(end.iter().copied());
        for there in ["server", own.as_str()] {
            assert!(!answers(&lab, there), "{case}: {there} answers");
        }
        let told: Vec<String> = told.map(|line| line.expect("read")).collect();
        assert_eq!(told, ["datagrams", seen], "{case}");
        for child in [&mut dying, &mut peer] {
            child.wait().expect("a child can be waited for");
        }
        // Changes of a dead node's links do not wake it.
        place.run(["set", name, "router", "loss=0.001%"]);
        assert!(!answers(&lab, &own), "{case}: answers when its links change");
        place.run(["start", name, "router"]);
        for there in ["server", own.as_str(), "ip6-server"] {
            assert!(lab.pings("client", there), "{case}: {there} does not answer after start");
        }
        place.run(["restore", name]);
    }
    lab.down();
}

#[test]
fn what_waits_in_a_delay_line_arrives() {
    what_waits_arrives("bridge", "{delay: 200ms}");
}

#[test]
fn what_waits_for_a_slow_link_arrives() {
    what_waits_arrives("bridge", "{delay: 200ms, rate: 1mbit}");
}

/// The kernel's own token bucket.
#[test]
fn what_waits_in_a_token_bucket_arrives() {
    what_waits_arrives("macvlan", "{rate: 1mbit}");
}

/// A node on a fast network whose links have conditions sends by the network beneath.
#[test]
fn what_waits_beneath_a_fast_network_arrives() {
    what_waits_arrives("fast", "{delay: 50ms, rate: 1mbit}");
}

/// Nothing more leaves a node whose power is gone, that stands still, or whose cable is cut.
#[test]
fn what_waits_behind_a_closed_link_is_lost() {
    let place = Place::new();
    for held in ["{delay: 300ms, rate: 1mbit}", "{rate: 1mbit}"] {
        for end in [&["kill", "--how", "hard"][..], &["freeze"], &["cut"]] {
            let lab = place.up("off", &HELD.replace("FRONT", "bridge").replace("HELD", held));
            let (mut dying, mut words) = start(&lab, "router", DYING);
            assert_eq!(words.next().expect("a line").expect("read"), "listening");
            let (mut peer, _told) = start(&lab, "client", PEER);
            assert_eq!(words.next().expect("a line").expect("read"), "sent");
            place.run(end.iter().copied().chain([lab.name.as_str(), "router"]));
            let before = lab.kernel_count("client", "Udp", "InDatagrams");
            // Half a second of the client's packets: the rest of the datagrams takes less.
            let mut ping = lab.program("client", ["ping", "-q", "-c40", "-i0.002", "-s1400", "witness"]);
            assert!(ping.stdout(Stdio::null()).status().expect("started").success());
            assert_eq!(lab.kernel_count("client", "Udp", "InDatagrams"), before, "{held}: {end:?}");
            lab.down();
            for child in [&mut dying, &mut peer] {
                child.wait().expect("a child can be waited for");
            }
        }
    }
}

//! A running lab's control socket, as a stranger finds it: another version, another user, half a message.

mod common;

use std::fs::{Permissions, set_permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Lab, Place, told};
use slipway_engine::protocol::{Hello, VERSION};

const SMALL: &str = "networks: {net: bridge}\nnodes: {n: {count: 2}}\n";

fn control(lab: &Lab<'_>) -> PathBuf {
    lab.place.path().join("state").join(&lab.name).join("control")
}

/// Each text behind its length.
fn frames(texts: &[&str]) -> Vec<u8> {
    let frame = |text: &&str| [&u32::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat();
    texts.iter().flat_map(frame).collect()
}

fn hello(protocol: u32) -> String {
    serde_json::to_string(&Hello { protocol, slipway: "9.9.9".to_owned() }).expect("plain data")
}

/// What the anchor answers to these bytes.
fn answer(lab: &Lab<'_>, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(control(lab)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    // The anchor closes its end, and has not read all that it refuses.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_anchor_and_a_command_of_other_versions_refuse_each_other() {
    let place = Place::new();
    let lab = place.up("versions", SMALL);
    let start = r#"{"change":{"order":{"start":{"nodes":[]}}}}"#;
    assert!(answer(&lab, &frames(&[&hello(VERSION), start])).ends_with(r#"{"outcome":{"Ok":{"connections":0}}}"#));
    let told = answer(&lab, &frames(&[&hello(VERSION + 1), start]));
    assert!(told.contains(r#""code":"version""#) && told.contains("slipway 9.9.9"), "{told}");
    let told = answer(&lab, &frames(&[&hello(VERSION), r#"{"change":{"order":{"start":{"nodes":[7]}}}}"#]));
    assert!(told.contains(r#""code":"unknown_node""#) && told.contains("the lab has 2"), "{told}");

    let control = control(&lab);
    std::fs::remove_file(&control).expect("removed");
    let later = UnixListener::bind(&control).expect("bound");
    let server = std::thread::spawn(move || {
        let (mut peer, _) = later.accept().expect("a peer");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        peer.write_all(&frames(&[&hello(VERSION + 1), "of a form that is not known"])).expect("sent");
        let _ = peer.read_to_end(&mut Vec::new());
    });
    let told = place.fails(1, ["start", &lab.name, "n1"]);
    server.join().expect("no panic");
    assert!(told.contains("slipway 9.9.9 (protocol 3)") && told.contains("Hint: "), "{told}");
    place.run(["down", &lab.name]);
}

#[test]
fn half_a_message_holds_nobody_up() {
    let place = Place::new();
    let lab = place.up("half", SMALL);
    let whole = frames(&[&hello(VERSION), r#"{"read_state":{}}"#]);
    let mut peers: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(control(&lab)).expect("connected")).collect();
    for (at, peer) in peers.iter_mut().enumerate() {
        peer.write_all(&whole[..at.min(whole.len() - 1)]).expect("sent");
    }
    let begin = Instant::now();
    place.run(["stop", &lab.name, "n1", "--grace", "0s"]);
    place.run(["start", &lab.name, "n1"]);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let mut first = peers.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let mut told = String::new();
    first.read_to_string(&mut told).expect("the anchor says why it hangs up");
    assert!(told.contains(r#""code":"timeout""#), "{told}");
}

#[test]
fn another_user_is_refused() {
    let place = Place::new();
    let lab = place.up("stranger", SMALL);
    let control = control(&lab);
    for folder in control.ancestors().skip(1).take_while(|folder| folder.starts_with(place.path())) {
        set_permissions(folder, Permissions::from_mode(0o711)).expect("opened up");
    }
    set_permissions(&control, Permissions::from_mode(0o666)).expect("opened up");
    let request = frames(&[&hello(VERSION), r#"{"halt":{"nodes":[0]}}"#]);
    let request: Vec<String> = request.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let request = request.concat();
    // The anchor may have refused, and closed its end, before the request is sent.
    let script = format!(
        "import socket, contextlib\n\
         s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect('{}')\n\
         with contextlib.suppress(BrokenPipeError): s.sendall(b'{request}')\n\
         print(s.recv(65536).decode(errors='replace'))",
        control.display()
    );
    let output = Command::new("python3").args(["-c", &script]).uid(65534).gid(65534).output().expect("python3");
    let text = told(&output);
    assert!(output.status.success() && text.contains(r#""code":"not_permitted""#), "{text}");
    let rows = place.json(["ps", &lab.name]);
    assert!(!rows.to_string().contains("stopped"), "{rows}");
}

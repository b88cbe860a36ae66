//! Labs on real namespaces, through the command itself.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use common::{Inventory, Place, await_that, copy_program, told};
use rustix::process::{Pid, Signal, kill_process};

const TWO: &str = "nodes: {n: {count: 2}}\n";

fn signal(process: &std::process::Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process.id()).expect("pids are small")).expect("not zero");
    kill_process(pid, signal).expect("the process is there");
}

#[test]
fn a_lab_goes_up_and_leaves_nothing_when_it_goes_down() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("whole", TWO);
    let during = Inventory::of(&place);
    assert!(during.processes.len() >= 3, "an anchor and two inits: {during:?}");
    assert!(during.namespaces.len() >= 2, "each node has its own network: {during:?}");
    assert!(!during.files.is_empty(), "{during:?}");
    assert_eq!(during.interfaces, before.interfaces, "nothing of a lab is in the machine's network");
    assert_eq!(during.mounts, before.mounts, "nothing of a lab is in the machine's mounts");

    let labs = place.json(["ps"]);
    assert_eq!(labs["labs"][0]["name"], *lab.name);
    assert_eq!(labs["labs"][0]["status"], "up");
    let row = lab.row("n2");
    assert_eq!((&row["status"], &row["addresses"][0]), (&"running".into(), &"10.64.0.2".into()));
    assert!(lab.pings("n1", "n2"), "IPv4 by name");
    assert!(lab.pings("n1", "ip6-n2"), "IPv6 by name");

    let name = lab.name.clone();
    lab.down();
    assert_eq!(Inventory::of(&place), before);
    assert!(place.run(["down", &name]).contains("nothing to remove"), "down twice is fine");
    place.fails(4, ["ps", &name]);
    assert!(place.fails(125, ["exec", &name, "n1", "--", "true"]).contains("Hint: "));
}

/// A script may hold a lock or a pipe of its own while it brings a lab up.
#[test]
fn a_lab_keeps_none_of_the_callers_descriptors() {
    let place = Place::new();
    let file = place.file("bare", "nodes: {n: {}}\n");
    let mut up = Command::new("sh");
    place.furnish(&mut up);
    let script = r#""$0" up "$1" 9>&1 >/dev/null"#;
    up.args(["-c", script, env!("CARGO_BIN_EXE_slipway")]).arg(&file).stdout(Stdio::piped());
    let mut up = up.spawn().expect("sh can be started");
    let mut output = up.stdout.take().expect("piped");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(output.read_to_end(&mut Vec::new()).is_ok()));
    let ends = end.recv_timeout(std::time::Duration::from_mins(1));
    assert!(up.wait().expect("it was started").success());
    place.run(["down", &place.name("bare")]);
    assert_eq!(ends, Ok(true), "the lab holds the pipe");
}

#[test]
fn programs_keep_their_codes_streams_and_signals() {
    let place = Place::new();
    let lab = place.up("exec", TWO);
    let code = |program: &[&str]| {
        let output = lab.program("n1", program.iter().copied()).output().expect("slipway can be started");
        (output.status.code(), told(&output))
    };
    for (program, expected) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 42"], 42),
        (&["no-such-program"], 127),
        (&["/etc/hosts"], 126),
        (&["sh", "-c", "kill -9 $$"], 137),
    ] {
        let (code, told) = code(program);
        assert_eq!(code, Some(expected), "{program:?}: {told}");
    }

    let mut cat = lab.program("n1", ["sh", "-c", "cat; echo wrong >&2"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    cat.stdin.take().expect("piped").write_all(b"through").expect("written");
    let output = cat.wait_with_output().expect("ended");
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"through"[..], &b"wrong\n"[..]));

    let mut waiting = lab.program("n1", ["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"]);
    let mut waiting = waiting.stdout(Stdio::piped()).spawn().expect("started");
    let mut ready = [0; 6];
    waiting.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("it says so");
    signal(&waiting, Signal::TERM);
    assert_eq!(waiting.wait().expect("ended").code(), Some(9), "the program decides what SIGTERM means");

    let name = &lab.name;
    assert_eq!(place.run(["exec", "-w", "/usr", name, "n1", "--", "pwd"]), "/usr\n");
    assert_eq!(place.run(["exec", "-e", "K=a b", name, "n1", "--", "sh", "-c", "echo $K"]), "a b\n");
    assert_eq!(place.run(["exec", "-u", "nobody:7", name, "n1", "--", "id", "-g"]), "7\n");
    // Others than root may use devices too.
    assert_eq!(
        place.run(["exec", "-u", "nobody", name, "n1", "--", "sh", "-c", "echo gone > /dev/null; echo $?"]),
        "0\n"
    );
    assert!(place.fails(125, ["exec", "-u", "nemo", name, "n1", "--", "id"]).contains("find user `nemo`"));
    assert!(place.fails(125, ["exec", name, "m1", "--", "true"]).contains("did you mean `n1`?"));
    assert_eq!(place.run(["exec", "n2", "--", "hostname"]), "n2\n", "the only lab goes without saying");
}

#[test]
fn a_stopped_node_comes_back_with_its_links_and_files() {
    let place = Place::new();
    let lab = place.up("power", "networks: {a: bridge, b: vxlan}\nnodes: {n: {count: 3, networks: [a, b]}}\n");
    let mac = |node| lab.exec(node, ["cat", "/sys/class/net/eth1/address"]);
    let before = mac("n2");
    lab.exec("n2", ["sh", "-c", "echo kept > /root/file"]);

    let name = &lab.name;
    assert!(place.run(["stop", "--dry-run", name, "n2"]).contains("would stop n2"));
    assert_eq!(lab.row("n2")["status"], "running");
    place.run(["stop", name, "n2", "--grace", "2s"]);
    assert_eq!(lab.row("n2")["status"], "stopped");
    assert!(lab.is_silent("n1", "n2", "n3"), "a stopped node is silent");
    assert!(lab.pings("n1", "n3"), "the others are not");
    place.fails(125, ["exec", name, "n2", "--", "true"]);

    place.run(["start", name, "n2"]);
    assert!(lab.pings("n1", "n2") && lab.pings("n2", "n3.b"), "its links are back");
    assert!(!lab.is_silent("n1", "n2", "n3"), "which a test of silence notices");
    assert_eq!(mac("n2"), before);
    assert_eq!(lab.exec("n2", ["cat", "/root/file"]), "kept\n");

    place.run(["freeze", name, "n*"]);
    assert_eq!(lab.row("n3")["status"], "frozen");
    place.run(["unfreeze", name, "n"]);
    assert_eq!(lab.row("n3")["status"], "running");
    assert!(place.fails(4, ["freeze", name, "x*"]).contains("no node fits `x*`"));
}

#[test]
fn files_go_in_and_out() {
    let place = Place::new();
    let lab = place.up("copy", TWO);
    let there = |path: &str| format!("{}:n1:{path}", lab.name);
    let folder = place.path().join("data");
    std::fs::create_dir_all(folder.join("deep")).expect("made");
    std::fs::write(folder.join("deep/file"), "content").expect("written");
    std::os::unix::fs::symlink("deep/file", folder.join("link")).expect("linked");

    let copied = place.json(["copy", "data", &there("/root/")]);
    assert_eq!((&copied["copied"]["entries"], &copied["copied"]["bytes"]), (&4.into(), &7.into()));
    assert_eq!(lab.exec("n1", ["cat", "/root/data/link"]), "content");
    place.run(["copy", &there("/root/data"), "back"]);
    assert_eq!(std::fs::read_to_string(place.path().join("back/deep/file")).expect("there"), "content");
    assert!(place.path().join("back/link").is_symlink());

    // In a node links lead where the node's own programs would be led, and no further.
    std::fs::write(place.path().join("secret"), "outside").expect("written");
    let secret = place.path().join("secret").display().to_string();
    lab.exec("n1", ["sh", "-c", &format!("mkdir /evil; ln -s {secret} /evil/link; ln -s / /evil/root")]);
    place.run(["copy", &there("/evil"), "evil"]);
    assert!(place.path().join("evil/root").is_symlink(), "a link comes out as a link");
    let said = place.fails(1, ["copy", "data", &there("/no/such/folder")]);
    assert!(said.contains("in node `n1`"), "{said}");
    assert!(place.fails(2, ["copy", "data", "elsewhere"]).contains("neither side is in a node"));
    assert!(place.fails(1, ["copy", &there("/nothing"), "."]).contains("No such file"));
}

#[test]
fn a_copy_shows_how_far_it_is() {
    let place = Place::new();
    let lab = place.up("far", TWO);
    std::fs::write(place.path().join("big"), vec![7; 30 << 20]).expect("written");
    let inside = format!("{}:n1:/scratch/big", lab.name);
    let words = [["copy", "big", &inside], ["copy", &inside, "back"]];
    for (words, of) in words.iter().zip(["/30.00 MiB", ""]) {
        let output = place.slipway(words).output().expect("slipway can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("copying") && said.lines().count() == 1, "a plain line: {said:?}");
        let at_terminal = |term| {
            let mut script = Command::new("script");
            place.furnish(&mut script);
            let line = format!("{} {}", env!("CARGO_BIN_EXE_slipway"), words.join(" "));
            let script = script.args(["-qec", &line, "/dev/null"]).env("TERM", term);
            let output = script.output().expect("script (bsdutils) is installed");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let shown = at_terminal("xterm");
        assert!(shown.matches("copying").count() > 1 && shown.contains(of), "a bar that moves: {shown:?}");
        assert!(shown.trim_end().ends_with("copied 1 file (30.0 MiB)"), "and then goes: {shown:?}");
        let shown = at_terminal("dumb");
        assert_eq!(shown.matches("copying").count(), 1, "a plain line where nothing can be drawn: {shown:?}");
    }
}

#[test]
fn a_saved_node_is_an_image() {
    let place = Place::new();
    let lab = place.up("first", TWO);
    lab.exec("n1", ["sh", "-c", "echo built > /root/made; rm /etc/issue"]);
    let answer = place.json(["save", &lab.name, "n1", "made.tar.zst"]);
    assert_eq!(answer["base"], "host");
    assert!(place.fails(2, ["save", &lab.name, "n1", "made.zip"]).contains(".tar.zst"));
    lab.down();

    let text = "images: {made: {path: made.tar.zst, base: host}}\nnodes: {n: {image: made}}\n";
    let lab = place.up("second", text);
    assert_eq!(lab.exec("n", ["cat", "/root/made"]), "built\n");
    assert_eq!(
        lab.program("n", ["test", "-e", "/etc/issue"]).status().expect("started").code(),
        Some(1),
        "deleted stays so"
    );
}

#[test]
fn a_saved_image_has_what_the_node_changed_and_nothing_of_the_labs() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join("root/bin")).expect("made");
    copy_program("/bin/busybox", &place.path().join("root/bin/busybox"));
    std::fs::write(place.path().join("data"), "secret").expect("written");
    let mounts = "mounts: [\"./data:/srv/file:ro\", \"./root:/srv/folder\"]";
    let text = format!(
        "images: {{bare: ./root}}\nnodes:\n  bare: {{image: bare, {mounts}}}\n  full: {{sshd: true, {mounts}}}\n"
    );
    let lab = place.up("clean", &text);
    for (node, shell) in [("bare", "/bin/busybox"), ("full", "/usr/bin/env")] {
        lab.exec(node, [shell, "sh", "-c", "echo mine > /made; echo x > /tmp/x; echo x > /scratch/x"]);
        place.run(["save", &lab.name, node, "saved.tar"]);
        let listed = Command::new("tar").arg("-tf").arg(place.path().join("saved.tar")).output().expect("tar is there");
        let listed = String::from_utf8(listed.stdout).expect("names");
        // Folders that these were made in are the node's, and empty.
        let folders = ["etc", "srv", "etc/ssh", "etc/ssh/ssh_config.d"];
        let files: Vec<_> = listed.lines().filter(|name| !folders.contains(name)).collect();
        assert_eq!(files, ["made"], "{node}");
    }
}

#[test]
fn of_two_ups_at_once_one_wins() {
    let place = Place::new();
    let file = place.file("twice", TWO);
    let start = || {
        let mut up = place.slipway(["up".as_ref(), file.as_os_str()]);
        up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    };
    let both = [start(), start()].map(|up| up.wait_with_output().expect("ended"));
    let won = both.iter().filter(|output| output.status.success()).count();
    assert_eq!(won, 1, "{}\n{}", told(&both[0]), told(&both[1]));
    let lost = both.iter().find(|output| !output.status.success()).expect("the other");
    assert!(String::from_utf8_lossy(&lost.stderr).contains("it is already up"), "{}", told(lost));
    place.run(["down", &place.name("twice")]);
}

#[test]
fn what_fails_half_way_is_undone() {
    let place = Place::new();
    let before = Inventory::of(&place);
    for (name, text, says, code) in [
        (
            "driver",
            "hosts: machine\nnetworks: {v: {driver: sriov, parent: lo}}\nnodes: {n: {networks: [v]}}\n",
            "SR-IOV",
            3,
        ),
        ("image", "images: {gone: ./gone.tar}\nnodes: {n: {image: gone}}\n", "gone.tar", 2),
        ("mount", "nodes: {a: , b: {mounts: ['/no/such/folder:/x']}}\n", "/no/such/folder", 2),
        ("command", "nodes: {a: , b: {command: /scratch/no/program}}\n", "/scratch/no/program", 1),
    ] {
        let file = place.file(name, text);
        let output = place.slipway(["up".as_ref(), file.as_os_str()]).output().expect("started");
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{}", told(&output));
        assert_eq!(Inventory::of(&place), before, "after {name}");
    }
}

#[test]
fn ctrl_c_undoes_up() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let file = place.file("many", "nodes: {n: {count: 800}}\n");
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut up = place.slipway(["up".as_ref(), file.as_os_str()]);
        let mut up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        // It says that it starts nodes with the first that is ready; hundreds are to come.
        let mut said = [0; 8];
        up.stderr.as_mut().expect("piped").read_exact(&mut said).expect("it says what it does");
        signal(&up, which);
        let output = up.wait_with_output().expect("ended");
        assert_eq!(output.status.code(), Some(code), "{} {:?}", told(&output), output.status.signal());
        assert_eq!(Inventory::of(&place), before);
    }
}

/// The command where everybody may execute it; the build's folder may be closed to others.
fn for_everybody() -> (tempfile::TempDir, std::path::PathBuf) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let folder = tempfile::Builder::new().permissions(open).tempdir().expect("made");
    let slipway = folder.path().join("slipway");
    copy_program(env!("CARGO_BIN_EXE_slipway"), &slipway);
    (folder, slipway)
}

/// `setpriv` to somebody without any privilege.
fn nobody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).current_dir("/");
    command
}

#[test]
fn without_root_it_says_what_to_do() {
    let (_folder, slipway) = for_everybody();
    for words in [&["ps"][..], &["down"], &["exec", "x", "y", "--", "true"]] {
        let output = nobody().arg(&slipway).args(words).output().expect("setpriv (util-linux) is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("takes root") && said.contains("Hint: `sudo slipway"), "{}", told(&output));
        let code = if words[0] == "exec" { 125 } else { 3 };
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
    }
}

#[test]
fn a_user_namespace_is_enough_for_most() {
    let (folder, _) = for_everybody();
    let own = tempfile::tempdir().expect("made");
    let name = own.path().to_str().expect("plain");
    std::fs::set_permissions(own.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
    std::fs::write(own.path().join("lab.yaml"), TWO).expect("written");
    let script = format!(
        "cd {name} && export SLIPWAY_STATE={name}/state SLIPWAY_IMAGES={name}/images SLIPWAY_SCRATCH={name}/scratch
        export PATH={}:$PATH
        set -e
        slipway up -q
        slipway exec n1 -- ping -q -c1 n2
        slipway exec n1 -- ping -q -c1 ip6-n2
        slipway exec n1 -- sh -c 'echo x > /root-file; cat /etc/hostname'
        slipway copy lab.yaml n2:/tmp/
        slipway stop n1 --grace 1s; slipway start n1
        slipway exec n1 -- cat /root-file
        ! slipway freeze n1
        slipway down
        ! ls -A state | grep -v locks",
        folder.path().display()
    );
    let mut user = nobody();
    user.args([
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
    ]);
    let output = user.arg(script).output().expect("setpriv (util-linux) is installed");
    assert!(output.status.success(), "{}", told(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("n1\n"), "{}", told(&output));
}

/// Stops every agent that packs, and says so in a file.
const STOPPER: &str = r"import os, signal
seen = set()
while True:
  for pid in filter(str.isdigit, os.listdir('/proc')):
    try: line = open(f'/proc/{pid}/cmdline').read()
    except OSError: continue
    if line.split('\0')[1:2] == ['--pack'] and pid not in seen:
      seen.add(pid)
      os.kill(int(pid), signal.SIGSTOP)
      with open('/root/stopped', 'a') as said: said.write('x')";

#[test]
fn a_node_that_stops_the_agent_holds_up_no_copy() {
    let place = Place::new();
    let command = serde_json::json!(["python3", "-c", STOPPER]);
    let lab = place.up("stop", &format!("nodes:\n  n: {{command: {command}}}\n"));
    let from = format!("{}:n:/scratch/big", lab.name);
    // More than a pipe holds, by far: the agent is at it when it is found.
    lab.exec("n", ["dd", "if=/dev/urandom", "of=/scratch/big", "bs=1M", "count=400", "status=none"]);
    let said = place.fails(1, ["copy", "--patience", "1s", &from, "got"]);
    assert!(said.contains("next to nothing passed for 1 s") && said.contains("slipway ps"), "{said}");
    assert!(!place.path().join("got").exists(), "half a file stayed");
    assert_eq!(lab.exec("n", ["cat", "/root/stopped"]), "x");

    let mut copy = place.slipway(["copy", "--patience", "1h", &from, "got"]).spawn().expect("slipway can be started");
    await_that("the agent is stopped", || lab.exec("n", ["cat", "/root/stopped"]) == "xx");
    let pid = rustix::process::Pid::from_child(&copy);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
    assert_eq!(copy.wait().expect("waited for").code(), Some(130));
    assert!(!place.path().join("got").exists(), "half a file stayed");
    let left = lab.exec("n", ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
    assert!(!left.contains("agent --pack"), "an agent is left: {left}");
}

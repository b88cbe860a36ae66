//! Crashes, refusals and races: whatever ends a lab half-way, nothing of it stays, and nothing else is touched.

mod common;

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Inventory, Lab, Place, as_before, await_that, told};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};

/// Two virtual hosts and both kinds of wire, three to six nodes.
fn small_lab(random: &mut ChaCha8Rng) -> String {
    let driver = if random.random() { "vxlan" } else { "bridge" };
    format!("hosts: 2\nnetworks: {{net: {driver}}}\nnodes: {{n: {{count: {}}}}}\n", random.random_range(3..=6))
}

/// Moments to kill at, the same again with `SLIPWAY_TEST_SEED`.
fn random() -> ChaCha8Rng {
    let seed = std::env::var("SLIPWAY_TEST_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("SLIPWAY_TEST_SEED is a number"));
    println!("to see the same again: SLIPWAY_TEST_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn quietly(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slipway can be started")
}

/// Ends `child` by SIGKILL at a moment that was drawn, unless it has ended by then.
fn kill_at(mut child: Child, moment: Duration) {
    sleep(moment);
    child.kill().expect("a child can be killed");
    child.wait().expect("a child can be waited for");
}

/// Kills the anchor of a lab, where it has one by now.
fn kill_anchor(place: &Place, name: &str) {
    let Ok(state) = std::fs::read(place.path().join("state").join(name).join("state.json")) else { return };
    let state: serde_json::Value = serde_json::from_slice(&state).expect("the state is never half written");
    kill(&state["anchor"]["pid"]);
}

/// Kills the process with this number; that it has ended is fine.
fn kill(pid: &serde_json::Value) {
    let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).expect("a process's number");
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("kill {pid:?}: {error}"),
    }
}

/// Rounds of a killed command, each followed by `down --all`. `begin` starts the command to be killed.
fn killed_in_rounds(
    rounds: u32,
    begin: impl for<'a> Fn(&'a Place, &str, Option<&Lab<'a>>) -> Command,
    needs_lab: bool,
) {
    let place = Place::new();
    let mut random = random();
    let before = Inventory::of(&place);
    let name = place.name("crash");
    // How long it takes when nothing happens to it; later rounds are killed anywhere within.
    let mut usual = None;
    for round in 0..=rounds {
        let text = small_lab(&mut random);
        let lab = needs_lab.then(|| place.up("crash", &text));
        place.file("crash", &text);
        let mut command = begin(&place, &name, lab.as_ref());
        if let Some(usual) = usual {
            let moment = Duration::mul_f64(usual, random.random_range(0.0..1.1));
            let anchor_too = random.random_bool(0.3);
            kill_at(quietly(&mut command), moment);
            if anchor_too {
                kill_anchor(&place, &name);
            }
            place.run(["down", "--all"]);
            // A guard belongs to the killed command, not to the lab, and ends by itself once it has cleared up.
            await_that("the command's guard has ended", || {
                Inventory::of(&place).processes.iter().all(|process| !process.ends_with(" slipway-guard"))
            });
            as_before(&place, &before, &format!("round {round}, killed after {moment:?}, anchor too: {anchor_too}"));
        } else {
            let started = Instant::now();
            let output = command.output().expect("slipway can be started");
            assert!(output.status.success(), "{}", told(&output));
            usual = Some(started.elapsed());
            place.run(["down", "--all"]);
            as_before(&place, &before, "without a crash");
        }
    }
}

#[test]
fn up_killed_at_any_moment() {
    let up = |place: &Place, _: &str, _: Option<&Lab<'_>>| {
        place.slipway(["up".as_ref(), place.path().join("crash.yaml").as_os_str()])
    };
    killed_in_rounds(25, up, false);
}

#[test]
fn down_killed_at_any_moment() {
    killed_in_rounds(15, |place, name, _| place.slipway(["down", name]), true);
}

/// Whatever the job has started goes with `run`, in the background or not; what others run in the nodes stays.
#[test]
fn a_killed_run_takes_its_job_along_and_nothing_else() {
    for mpi in [None, Some("mpich")] {
        let place = Place::new();
        let lab = place.up("alone", "nodes: {n: {count: 3, command: [sleep, '4000']}}\n");
        lab.exec("n1", ["sh", "-c", "setsid sleep 3000 > /dev/null 2>&1 &"]);
        let mut exec = quietly(&mut lab.program("n2", ["sleep", "2000"]));
        let programs = |node: &str| {
            let listed = lab.exec(node, ["ps", "-e", "-o", "args="]);
            let mut programs: Vec<_> = listed.lines().filter(|line| line.starts_with("sleep")).collect();
            programs.sort_unstable();
            programs.join(", ")
        };
        await_that("others' programs run", || programs("n2") == "sleep 2000, sleep 4000");
        let others = ["n1", "n2", "n3"].map(programs);

        // Daemons that leave their session, and one that is nobody's child any more.
        let job = "setsid sleep 1000 & (setsid setsid sleep 1001 &) ; sleep 1002";
        let mut run = place.slipway(["run", "--on", "n1,n2", "--out", "out"]);
        run.args(mpi.map(|mpi| ["--mpi", mpi]).into_iter().flatten()).args([&lab.name, "--", "sh", "-c", job]);
        let mut run = quietly(&mut run);
        let runs = |node| (1000..=1002).all(|time| programs(node).contains(&format!("sleep {time}")));
        await_that("the job runs in both nodes", || runs("n1") && runs("n2"));
        run.kill().expect("a child can be killed");
        run.wait().expect("a child can be waited for");

        await_that("the job has ended", || ["n1", "n2", "n3"].map(programs) == others);
        let jobs = |group: &PathBuf| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("job-"));
        let nodes = || {
            let groups = Inventory::of(&place).cgroups;
            groups.iter().map(|lab| lab.join("n1")).collect::<Vec<_>>()
        };
        let left = || nodes().iter().any(|node| common::entries(node).any(|path| jobs(&path)));
        await_that("its control groups are gone", || !left());
        let shared = place.path().join("state").join(&lab.name).join("node");
        await_that("its folder is gone", || !common::entries(&shared).any(|path| jobs(&path)));
        assert!(exec.try_wait().expect("looked at").is_none(), "`exec` runs on");
        assert_eq!(lab.row("n1")["status"], "running");
        lab.down();
        exec.wait().expect("it ends with its node");
    }
}

#[test]
fn run_killed_at_any_moment() {
    // What it starts in the background ends after its own process does, while the lab goes down.
    let run = |place: &Place, name: &str, _: Option<&Lab<'_>>| {
        let out = place.path().join(format!("out-{}", rand::random::<u64>()));
        let mut command = place.slipway(["run", name, "--out"]);
        command.arg(out).args(["--", "sh", "-c", "sleep 1000 & sleep 0.3"]);
        command
    };
    killed_in_rounds(10, run, true);
}

#[test]
fn a_lab_without_its_anchor_is_broken_and_comes_up_again() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let lab = place.up("orphan", "nodes: {n: {count: 3}}\n");
    kill_anchor(&place, &lab.name);
    await_that("the lab is broken", || place.json(["ps"])["labs"][0]["status"] == "broken");
    assert!(place.fails(4, ["ps", &lab.name]).contains("Hint: "));
    let again = place.up("orphan", "nodes: {n: {count: 2}}\n");
    assert!(again.pings("n1", "n2"), "up clears away what the crash left, and goes on");
    again.down();
    as_before(&place, &before, "after it all");
}

/// Its devices there go with the namespace that holds their other ends, and `down` waits for that. The machine's network is
/// one of the test's own: other labs beside it have such devices too.
#[test]
fn nothing_of_a_lab_on_the_machines_own_network_outlives_down() {
    const SCRIPT: &str = r#"
        for round in $(seq 20); do
            "$SLIPWAY" up --quiet lab.yaml
            [ "$(ip -o link | wc -l)" -gt 1 ]
            [ $((round % 2)) = 0 ] ||
                kill -9 $(sed 's/.*"anchor":{"pid":\([0-9]*\).*/\1/' "$SLIPWAY_STATE/$LAB/state.json")
            "$SLIPWAY" down "$LAB"
            [ "$(ip -o link | wc -l)" = 1 ]
        done
    "#;
    let place = Place::new();
    place.file("lab", "hosts: machine\nnetworks: {net: host}\nnodes: {n: {count: 2}}\n");
    let mut command = Command::new("unshare");
    place.furnish(&mut command);
    command.args(["--net", "--mount", "--propagation", "private", "sh", "-euxc"]);
    let output =
        command.arg(SCRIPT).env("SLIPWAY", env!("CARGO_BIN_EXE_slipway")).env("LAB", place.name("lab")).output();
    let output = output.expect("unshare (util-linux) is installed");
    assert!(output.status.success(), "{}", told(&output));
}

/// All in a namespace of the test's own: its interfaces are no business of the machine's.
#[test]
fn what_others_made_stays() {
    const SCRIPT: &str = r#"
        mount -t tmpfs none /run
        ip link add br0 type bridge
        ip link set br0 up
        ip link add n1.0 type veth peer name uplink
        ip netns add foreign
        mkdir mounted
        mount -t tmpfs foreign mounted
        echo mine > mounted/file
        look() {
            ip -o link
            ip netns list
            findmnt -rn -o TARGET,SOURCE
            cat mounted/file "$GROUP/cgroup.procs" "$BESIDE/cgroup.procs"
            ls -d "$GROUP" "$BESIDE" "$LAB_ALIKE"
        }
        look > before
        "$SLIPWAY" up lab.yaml
        "$SLIPWAY" exec "$LAB" n1 -- ping -q -c1 -W60 n2
        look > during
        "$SLIPWAY" down "$LAB"
        "$SLIPWAY" up lab.yaml
        kill -9 $(sed 's/.*"anchor":{"pid":\([0-9]*\).*/\1/' "$SLIPWAY_STATE/$LAB/state.json")
        "$SLIPWAY" down --all
        look > after
        diff before during
        diff before after
    "#;
    let place = Place::new();
    place.file(
        "lab",
        "networks: {br0: bridge, foreign: vxlan}\nhosts: 2\nnodes: {n: {count: 2, networks: [br0, foreign]}}\n",
    );
    // Control groups cannot be the test's own. One beside Slipway's, and two in its place: a folder that no lab of this
    // state root has, and one named as the lab is, as another state root's would be.
    let root = cgroups();
    let beside = Foreign::make(root.join(format!("foreign-{}", place.name("x"))));
    let group = Foreign::make(root.join("slipway").join(format!("foreign-{}", place.name("x"))));
    let alike = Foreign::make(root.join("slipway").join(place.name("lab")));
    let mut command = Command::new("unshare");
    place.furnish(&mut command);
    let output = command
        .args(["--net", "--mount", "--propagation", "private", "sh", "-euxc", SCRIPT])
        .env("SLIPWAY", env!("CARGO_BIN_EXE_slipway"))
        .env("LAB", place.name("lab"))
        .env("GROUP", &group.path)
        .env("BESIDE", &beside.path)
        .env("LAB_ALIKE", &alike.path)
        .output()
        .expect("unshare (util-linux) is installed");
    assert!(output.status.success(), "{}", told(&output));
    for mut foreign in [beside, group, alike] {
        assert!(foreign.process.try_wait().expect("a child can be looked at").is_none(), "{:?}", foreign.path);
    }
}

/// Where a control group can be made that has no limits and any process.
fn cgroups() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount =
        mounts.filter(|words| words[2] == "cgroup2" || words[3].contains("freezer")).map(|words| words[1]).next();
    mount.expect("control groups are mounted").into()
}

/// A control group with a process in it.
struct Foreign {
    path: PathBuf,
    process: Child,
}

impl Foreign {
    fn make(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).expect("root may make control groups");
        let process = Command::new("sleep").arg("1000").spawn().expect("sleep is there");
        std::fs::write(path.join("cgroup.procs"), process.id().to_string()).expect("root may fill control groups");
        Self { path, process }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It leaves its group at once so; by its end, a moment after it is waited for.
        let _ = std::fs::write(cgroups().join("cgroup.procs"), self.process.id().to_string());
        let _ = std::fs::remove_dir(&self.path);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn labs_of_one_name_in_two_state_roots_never_meet() {
    let place = Place::new();
    let lab = place.up("twin", "nodes: {n: {count: 2}}\n");
    let other = place.path().join("other");
    let there = |words: &[&str]| {
        let output = place.slipway(words).env("SLIPWAY_STATE", &other).output().expect("slipway can be started");
        assert!(output.status.success(), "{words:?}: {}", told(&output));
    };
    there(&["up", "twin.yaml"]);
    lab.exec("n1", ["touch", "/scratch/mine"]);
    there(&["exec", &lab.name, "n1", "--", "test", "!", "-e", "/scratch/mine"]);
    there(&["freeze", &lab.name, "n1"]);
    assert_eq!(lab.row("n1")["status"], "running");
    there(&["down", "--all"]);
    assert!(lab.pings("n1", "n2"), "nobody took it down");
    lab.exec("n1", ["test", "-e", "/scratch/mine"]);
    // Killed, its groups are left, and are still not another's.
    kill_anchor(&place, &lab.name);
    there(&["down", "--all"]);
    place.run(["down", "--all"]);
}

#[test]
fn up_that_cannot_leaves_nothing() {
    const TINY: &str = "mount -t tmpfs -o size=64k,nr_inodes=8 tiny $AT; exec \"$SLIPWAY\" up lab.yaml";
    let place = Place::new();
    let archive = place.path().join("big.tar");
    std::fs::write(place.path().join("noise"), vec![7; 1 << 20]).expect("written");
    let tar =
        Command::new("tar").args(["-C".as_ref(), place.path(), "-cf".as_ref(), &archive, "noise".as_ref()]).status();
    assert!(tar.expect("tar is installed").success());
    for folder in ["state", "images", "scratch"] {
        std::fs::create_dir(place.path().join(folder)).expect("made");
        std::fs::set_permissions(place.path().join(folder), std::fs::Permissions::from_mode(0o700)).expect("closed");
    }
    let before = Inventory::of(&place);
    let up = |text: &str, code: i32, says: &[&str]| {
        place.file("lab", text);
        let said = place.fails(code, ["up", "lab.yaml"]);
        assert!(says.iter().all(|words| said.contains(words)), "{says:?} in: {said}");
        as_before(&place, &before, text);
    };
    up(
        "hosts: machine\nnetworks: {net: {driver: sriov, parent: lo}}\nnodes: {n: {count: 2}}\n",
        3,
        &["no network card here has SR-IOV", "Hint: "],
    );
    up("networks: {net: {driver: bridge, mtu: 200}}\nnodes: {n: }\n", 2, &["mtu of 200", "help: "]);
    up("images: {gone: ./gone.tar.zst}\nnodes: {n: {image: gone}}\n", 2, &["gone.tar.zst", "No such file"]);
    up(
        "nodes: {n: {count: 3}, odd: {cpuset: \"4000\"}}\n",
        2,
        &["limit cpuset: of 4000 not all are there", "help: this machine runs on processors "],
    );
    up("nodes: {n: {count: 3}, odd: {mounts: ['./gone:/srv']}}\n", 2, &["gone", "No such file"]);
    // Only a node's start shows files that earlier labs left in /scratch.
    up("nodes: {n: {count: 3}, odd: {command: /scratch/no/program}}\n", 1, &["/scratch/no/program", "node `odd`"]);

    for (folder, text) in [
        ("scratch", "nodes: {n: {count: 20}}\n"),
        ("state", "nodes: {n: {count: 20}}\n"),
        ("images", "images: {big: ./big.tar}\nnodes: {n: {image: big}}\n"),
    ] {
        place.file("lab", text);
        let mut command = Command::new("unshare");
        place.furnish(&mut command);
        let output = command
            .args(["--mount", "--propagation", "private", "sh", "-euc", TINY])
            .env("SLIPWAY", env!("CARGO_BIN_EXE_slipway"))
            .env("AT", place.path().join(folder))
            .output()
            .expect("unshare (util-linux) is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{folder}: {}", told(&output));
        assert!(said.contains("No space left on device"), "{folder}: {said}");
        as_before(&place, &before, &format!("a full {folder}"));
    }
}

#[test]
fn a_name_that_is_taken_stays_taken() {
    let place = Place::new();
    let lab = place.up("taken", "nodes: {n: {count: 2}}\n");
    let during = Inventory::of(&place);
    place.file("taken", "nodes: {other: {count: 5}}\n");
    let said = place.fails(1, ["up", "taken.yaml"]);
    assert!(said.contains("it is already up") && said.contains("Hint: "), "{said}");
    assert_eq!(Inventory::of(&place), during);
    assert!(lab.pings("n1", "n2"));
}

#[test]
fn up_and_down_at_once_end_in_one_of_both() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let mut random = random();
    let file = place.file("race", "nodes: {n: {count: 8}}\n");
    let name = place.name("race");
    for round in 0..10 {
        let mut up = quietly(&mut place.slipway(["up".as_ref(), file.as_os_str()]));
        let moment = Duration::from_millis(random.random_range(0..150));
        sleep(moment);
        // It ends what it finds and waits for whoever is at work; an `up` that has not yet begun finds the place free.
        place.run(["down", &name]);
        let is_up = up.wait().expect("waited for").success()
            && place.slipway(["ps", &name]).output().expect("started").status.success();
        if is_up {
            assert_ne!(Inventory::of(&place), before, "round {round}: wholly there");
            place.run(["down", &name]);
        }
        as_before(&place, &before, &format!("round {round}: not there at all"));
    }
}

/// `up` is at work from the moment that there is a folder, and has no anchor yet.
#[test]
fn down_ends_a_lab_that_is_being_made() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let file = place.file("making", "nodes: {n: {count: 400}}\n");
    let name = place.name("making");
    let mut up = quietly(&mut place.slipway(["up".as_ref(), file.as_os_str()]));
    await_that("up begins", || place.path().join("state").join(&name).exists());
    let mut down = quietly(&mut place.slipway(["down", &name]));
    up.wait().expect("waited for");
    await_that("down does not wait for a lab that runs", || down.try_wait().expect("looked at").is_some());
    as_before(&place, &before, "after down");
}

/// A node ends when all of its processes are collected, and its command is the anchor's to collect.
#[test]
fn a_node_whose_command_ignores_sigterm_is_stopped_and_started() {
    let place = Place::new();
    let lab = place.up("deaf", "nodes: {n: {count: 2, command: [sh, -c, \"trap '' TERM; sleep 1000; sleep 1000\"]}}\n");
    let mut stop = quietly(&mut place.slipway(["stop", "--grace", "100ms", &lab.name, "n1"]));
    await_that("n1 is stopped", || stop.try_wait().expect("looked at").is_some());
    assert_eq!((&lab.row("n1")["status"], &lab.row("n2")["status"]), (&"stopped".into(), &"running".into()));
    place.run(["start", &lab.name, "n1"]);
    assert!(lab.exec("n1", ["ps", "-e", "-o", "args="]).contains("sleep 1000"), "its command runs again");
}

#[test]
fn an_up_whose_lab_was_taken_down_meanwhile_says_so() {
    let place = Place::new();
    let before = Inventory::of(&place);
    let file = place.file("short", "nodes: {n: {count: 200}}\n");
    let name = place.name("short");
    let state = || -> serde_json::Value {
        let bytes = std::fs::read(place.path().join("state").join(&name).join("state.json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    };
    let up = place.slipway(["up".as_ref(), file.as_os_str()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let up = up.expect("slipway can be started");
    // Its anchor goes on while it stands still.
    await_that("the anchor is at work", || state()["anchor"].is_object());
    kill_process(Pid::from_child(&up), Signal::STOP).expect("it runs");
    await_that("the lab is up", || state()["ready"] == true);
    let anchor = state()["anchor"]["pid"].clone();
    let mut down = quietly(&mut place.slipway(["down", &name]));
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{anchor}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    await_that("the anchor has ended", has_ended);
    kill_process(Pid::from_child(&up), Signal::CONT).expect("it is there");
    let output = up.wait_with_output().expect("waited for");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it came up and ended again\nHint: ") && output.stdout.is_empty(), "{}", told(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(down.wait().expect("waited for").success());
    as_before(&place, &before, "after both");
}

#[test]
fn a_node_whose_init_is_killed_is_dead_until_it_is_started() {
    for (driver, hosts) in [("bridge", 1), ("vxlan", 2)] {
        let place = Place::new();
        let text = format!("hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes: {{n: {{count: 3}}}}\n");
        let lab = place.up("init", &text);
        let others = || ["n1", "n3"].map(|node| lab.row(node)["pid"].clone());
        let (pids, address) = (others(), lab.row("n2")["addresses"].clone());
        let mut witness =
            lab.program("n1", ["ping", "-n", "-i0.2", "n3"]).stdout(Stdio::piped()).spawn().expect("started");

        kill(&lab.row("n2")["pid"]);
        await_that("n2 is dead", || lab.row("n2")["status"] == "dead");
        assert_eq!(lab.row("n2")["pid"], serde_json::Value::Null);
        assert!(lab.is_silent("n3", "n2", "n1"), "{driver}: nobody answers for it");
        assert_eq!(others(), pids, "{driver}: the others run on");
        place.fails(125, ["exec", &lab.name, "n2", "--", "true"]);

        place.run(["start", &lab.name, "n2"]);
        let row = lab.row("n2");
        assert_eq!((&row["status"], &row["addresses"]), (&"running".into(), &address));
        assert!(lab.pings("n1", "n2") && lab.pings("n2", "n3"), "{driver}: its links work");
        assert_eq!(others(), pids);

        let ping = Pid::from_child(&witness);
        kill_process(ping, Signal::INT).expect("it runs");
        let mut said = String::new();
        std::io::Read::read_to_string(witness.stdout.as_mut().expect("piped"), &mut said).expect("read");
        witness.wait().expect("waited for");
        // The last of them may still be on its way.
        let answered: Vec<usize> =
            said.lines().filter_map(|line| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok()).collect();
        assert!(
            !answered.is_empty() && answered.iter().copied().eq(1..=answered.len()),
            "{driver}: a bystander noticed: {said}"
        );
    }
}

#[test]
fn down_does_not_wait_for_ever_for_whoever_holds_a_lab() {
    let place = Place::new();
    let _lab = place.up("other", "nodes: {n: }\n");
    let held = place.name("held");
    let lock = place.path().join("state/.locks").join(&held);
    let mut holder = Command::new("flock");
    let holder =
        holder.arg(&lock).args(["sh", "-c", "echo held; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("flock (util-linux) is installed");
    let mut said = [0; 4];
    holder.stdout.take().expect("piped").read_exact(&mut said).expect("it holds the lock");

    let said = place.fails(1, ["down", "--all", "--patience", "100ms"]);
    assert!(said.contains(&format!("PID {} (", holder.id())) && said.contains("end that process"), "{said}");
    let left = place.json(["ps"])["labs"].to_string();
    assert!(!left.contains(&place.name("other")), "the others go down: {left}");
    drop(holder.stdin.take());
    holder.wait().expect("waited for");
}

#[test]
fn nobody_else_reaches_what_a_node_writes() {
    let place = Place::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("set");
    std::fs::create_dir(place.path().join("scratch")).expect("made");
    let lab = place.up("private", "nodes: {n: }\n");
    lab.exec("n", ["sh", "-c", "cp /bin/sh /scratch/sh && chmod 4755 /scratch/sh"]);
    let find = |user: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--clear-groups", "--regid", user, "--reuid", user, "find"])
            .arg(place.path())
            .args(["-perm", "-4000"]);
        let output = command.output().expect("setpriv (util-linux) is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(find("0").contains("/n/sh"), "{}", find("0"));
    assert_eq!(find("65534"), "");
}

//! Real programs over real labs. Needs root and the packages of `scripts/setup.sh test`.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Lab, Place, await_that, copy_program, ring, told};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Two machines as far as programs can tell, and an overlay between them.
const OVERLAY: &str = "hosts: 2\nnetworks: {net: vxlan}\n";
/// The same, and a path beside the overlay.
const FAST: &str = "hosts: 2\nnetworks: {net: fast}\n";
/// That path on one machine.
const FAST_ALONE: &str = "networks: {net: fast}\n";

/// Whatever joins the nodes, programs run as they are.
const CLUSTERS: [&str; 2] = [OVERLAY, FAST];

/// A job that has ended well.
struct Ran {
    answer: Value,
    folder: std::path::PathBuf,
}

impl Ran {
    /// What a node printed.
    fn output(&self, node: &str) -> String {
        std::fs::read_to_string(self.folder.join(format!("{node}.stdout"))).expect("every node's output is kept")
    }

    /// What each of the nodes sent by its interfaces, bytes.
    fn sent(&self) -> impl Iterator<Item = u64> {
        let sent = self.answer["sent"].as_array().expect("run says what was sent");
        sent.iter().map(|bytes| bytes.as_u64().expect("a number"))
    }

    /// Every node sent more than so many bytes the way that its network is for: by its interfaces, or past them.
    #[track_caller]
    fn crossed(&self, lab: &Lab<'_>, bytes: u64) {
        if lab.is_fast() {
            assert!(lab.connections() > 0, "no connection took the fast path: {}", self.answer);
            assert!(self.sent().all(|sent| sent < bytes), "it went by the network beneath: {}", self.answer);
        } else {
            assert!(self.sent().all(|sent| sent > bytes), "it went past the network: {}", self.answer);
        }
    }
}

/// `slipway run OPTIONS -- PROGRAM`, to be run.
fn job(lab: &Lab<'_>, folder: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = lab.place.slipway(["--json", "run", &lab.name, "--timeout", "15min", "--out"]);
    command.arg(folder).args(options).arg("--").args(program);
    command
}

/// Runs a job, which must succeed.
#[track_caller]
fn run(lab: &Lab<'_>, options: &[&str], program: &[&str]) -> Ran {
    let folder = lab.place.path().join(format!("out-{}", rand::random::<u64>()));
    let output = job(lab, &folder, options, program).output().expect("slipway can be started");
    let printed = std::fs::read_to_string(folder.join("n1.stderr")).unwrap_or_default();
    assert!(output.status.success(), "{program:?}: {}\n{printed}", told(&output));
    Ran { answer: serde_json::from_slice(&output.stdout).expect("run answers in JSON"), folder }
}

/// Compiles with a program that a Debian package brings.
fn compile(command: &mut Command, package: &str) {
    let name = command.get_program().to_owned();
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}: install {package}", name.display()));
    assert!(output.status.success(), "{}: {}", name.display(), told(&output));
}

#[test]
fn one_program_compiled_for_open_mpi_and_for_mpich() {
    let place = Place::new();
    ring::compile(&place.path().join("bin"));
    let nodes = "nodes: {n: {count: 4, mounts: [\"./bin:/opt/ring:ro\"]}}\n";
    for cluster in [OVERLAY, FAST, FAST_ALONE] {
        let lab = place.up("ring", &format!("{cluster}{nodes}"));
        let ran = run(&lab, &["--mpi", "openmpi"], &["/opt/ring/openmpi"]);
        assert_eq!(ran.output("n1"), "4 ranks add up to 6\n");
        // A block is 256 KiB; every node passes one on to another node, and has its part in the sum.
        ran.crossed(&lab, 256 << 10);
        for mpi in ["openmpi", "mpich"] {
            let ran = run(&lab, &["--mpi", mpi], &[&format!("/opt/ring/{mpi}"), "hello"]);
            let output = ran.output("n1");
            // MPICH's transport complains where its peers leave first, which pairs show at once (docs/guide/fast.md).
            let mut said: Vec<&str> = output.lines().filter(|line| !line.contains("UCX  ERROR")).collect();
            said.sort_unstable();
            assert_eq!(said, (0..4).map(|rank| format!("{rank} of 4")).collect::<Vec<_>>());
            is_quiet(&lab, 4);
        }
    }
}

/// A server at a node's address answers with the address that it was asked from, by TCP and UDP. Clients ask from
/// sockets bound to nothing, and from sockets bound to a port alone, as Open MPI does.
const WHENCE: &str = r#"
import socket, sys, threading
def serve(family, at):
    tcp, udp = socket.socket(family), socket.socket(family, socket.SOCK_DGRAM)
    for one in (tcp, udp):
        one.bind((at, 7000))
    tcp.listen()
    def streams():
        while True:
            stream, peer = tcp.accept()
            stream.sendall(peer[0].encode())
            stream.close()
    def packets():
        while True:
            _, peer = udp.recvfrom(9)
            udp.sendto(peer[0].encode(), peer)
    for work in (streams, packets):
        threading.Thread(target=work).start()
def ask(at, kind, bound, connected):
    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    one = socket.socket(family, kind)
    one.settimeout(20)
    if bound:
        one.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))
    if connected:
        one.connect((at, 7000))
    if kind == socket.SOCK_DGRAM:
        one.send(b"?") if connected else one.sendto(b"?", (at, 7000))
    print(one.recv(99).decode())
at = sys.argv[2:]
if sys.argv[1] == "serve":
    for one in at:
        serve(socket.AF_INET6 if ":" in one else socket.AF_INET, one)
    print("ready", flush=True)
else:
    for one in at:
        for bound in (False, True):
            for kind, connected in ((socket.SOCK_STREAM, True), (socket.SOCK_DGRAM, True), (socket.SOCK_DGRAM, False)):
                ask(one, kind, bound, connected)
"#;

#[test]
fn programs_on_their_hosts_network_send_from_their_nodes_address() {
    let place = Place::new();
    std::fs::write(place.path().join("whence.py"), WHENCE).expect("written");
    let lab = place.up(
        "whence",
        "hosts: 2\nnetworks: {net: host}\nnodes: {n: {count: 6, mounts: [\"./whence.py:/opt/whence.py:ro\"]}}\n",
    );
    let address = |node: &str| ["", "ip6-"].map(|kind| lab.exec("n1", ["getent", "hosts", &format!("{kind}{node}")]));
    let address = |node: &str| address(node).map(|line| line.split(' ').next().expect("an address").to_owned());
    let server = address("n3");
    let mut serve = lab.program("n3", ["python3", "/opt/whence.py", "serve", &server[0], &server[1]]);
    let mut serve = serve.stdout(Stdio::piped()).spawn().expect("started");
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(serve.stdout.take().expect("piped")), &mut ready)
        .expect("read");
    assert_eq!(ready, "ready\n");
    // n5 is on the same host, neither its first node nor its last to be asked; n4 and n6 are on the other.
    for node in ["n5", "n4", "n6"] {
        let said = lab.exec(node, ["python3", "/opt/whence.py", "ask", &server[0], &server[1]]);
        let own = address(node);
        let expected: Vec<&str> = own.iter().flat_map(|own| std::iter::repeat_n(own.as_str(), 6)).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{node}");
    }
    lab.down();
    serve.wait().expect("it ended with its lab");
}

#[test]
fn mpi_on_the_network_of_its_hosts() {
    let place = Place::new();
    ring::compile(&place.path().join("bin"));
    for (hosts, nodes) in [(1, 2), (1, 4), (2, 2), (2, 4), (2, 8)] {
        let lab = place.up(
            &format!("ring{hosts}of{nodes}"),
            &format!(
                "hosts: {hosts}\nnetworks: {{net: host}}\nnodes: {{n: {{count: {nodes}, mounts: [\"./bin:/opt/ring:ro\"]}}}}\n"
            ),
        );
        let ran = run(&lab, &["--mpi", "openmpi"], &["/opt/ring/openmpi"]);
        assert_eq!(ran.output("n1"), format!("{nodes} ranks add up to {}\n", nodes * (nodes - 1) / 2));
        // Of MPICH no more than that it starts: see `netpipe_over_mpich_crosses_the_network`.
        for mpi in ["openmpi", "mpich"] {
            let ran = run(&lab, &["--mpi", mpi], &[&format!("/opt/ring/{mpi}"), "hello"]);
            let output = ran.output("n1");
            let mut said: Vec<&str> = output.lines().filter(|line| !line.contains("UCX  ERROR")).collect();
            said.sort_unstable();
            assert_eq!(said, (0..nodes).map(|rank| format!("{rank} of {nodes}")).collect::<Vec<_>>(), "{mpi}");
        }
    }
}

#[test]
fn hpc_challenge_over_four_nodes() {
    let place = Place::new();
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hpcc/hpccinf.txt");
    let input = std::fs::read_to_string(input).expect("the example's input is there");
    // Small enough for two cores that four ranks share.
    std::fs::write(place.path().join("hpccinf.txt"), input.replace("240          Ns", "64           Ns"))
        .expect("written");
    let nodes = "nodes: {n: {count: 4, mounts: [\"./hpccinf.txt:/scratch/hpccinf.txt:ro\"]}}\n";
    for cluster in CLUSTERS {
        let lab = place.up("hpcc", &format!("{cluster}{nodes}"));
        let ran = run(&lab, &["--mpi", "openmpi", "-n", "4", "-w", "/scratch"], &["hpcc"]);
        let result = lab.exec("n1", ["cat", "/scratch/hpccoutf.txt"]);
        assert!(result.contains("End of HPC Challenge tests"), "{result}");
        assert!(result.contains("CommWorldProcs=4") && result.contains("\nSuccess=1"), "{result}");
        ran.crossed(&lab, 1 << 20);
    }
}

#[test]
fn netpipe_crosses_the_network() {
    for cluster in CLUSTERS {
        let place = Place::new();
        let lab = place.up("netpipe", &format!("{cluster}nodes: {{n: {{count: 2}}}}\n"));
        let ran = run(&lab, &["--mpi", "openmpi"], &["NPopenmpi", "-u", "4096", "-n", "20", "-o", "/dev/null"]);
        // Over a hundred sizes up to 4 KiB, twenty times each way: more than 1 MB.
        ran.crossed(&lab, 1_000_000);
    }
}

/// MPICH launches reliably, which the tests beside this one hold it to; what it does not do reliably is end. Debian's 4.0.2
/// hangs now and then once ranks have talked over TCP, with Slipway or without: a rank that has left waits for the others
/// without answering them (github.com/pmodels/mpich/pull/6596).
#[test]
#[ignore = "MPICH 4.0.2 over UCX 1.13.1 hangs now and then, natively too; see docs/guide/troubleshooting.md"]
fn netpipe_over_mpich_crosses_the_network() {
    for cluster in CLUSTERS {
        let place = Place::new();
        let lab = place.up("netpipe-mpich", &format!("{cluster}nodes: {{n: {{count: 2}}}}\n"));
        let ran = run(&lab, &["--mpi", "mpich"], &["NPmpich2", "-u", "4096", "-n", "20", "-o", "/dev/null"]);
        ran.crossed(&lab, 1_000_000);
    }
}

/// A copy of an example that has a script of its own.
fn example(place: &Place, name: &str, files: &[&str]) -> std::path::PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let here = place.path().join(name);
    std::fs::create_dir(&here).expect("made");
    for file in ["run.sh", "lab.yaml"].iter().chain(files) {
        copy_program(from.join(file), &here.join(file));
    }
    here
}

/// Runs its script, which must succeed, and gives what it printed.
#[track_caller]
fn run_script(place: &Place, here: &Path, words: &[&str]) -> String {
    let slipway = Path::new(env!("CARGO_BIN_EXE_slipway")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut script = Command::new(here.join("run.sh"));
    place.furnish(&mut script);
    let output = script.args(words).env("PATH", format!("{}:{path}", slipway.display())).output().expect("started");
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What Debian's MPICH cannot be held to: the example with a newer one, twenty times in a row, and then on the fast path.
#[test]
#[ignore = "fetches MPICH 5 from PyPI; `make test-long` runs it"]
fn mpich_of_today_exchanges_over_four_nodes() {
    let place = Place::new();
    let here = example(&place, "mpich", &["requirements.txt", "exchange.c"]);
    assert_eq!(run_script(&place, &here, &["20"]).matches("4 ranks add up to 6").count(), 20);
    run_script(&place, &here, &["compare", "--drivers", "fast", "--jobs", "job", "--repeat", "5"]);
}

/// Measures the job of a lab once, on the fast path, whatever driver it names.
const FAST_ONCE: [&str; 9] = ["compare", "--drivers", "fast", "--jobs", "job", "--repeat", "1", "--warm-up", "0"];

/// The jobs of labs in `examples/`.
#[track_caller]
fn examples_are_fast(names: &[&str]) {
    let place = Place::new();
    for name in names {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(format!("{name}.yaml"));
        place.run(FAST_ONCE.map(std::ffi::OsStr::new).into_iter().chain([lab.as_os_str()]));
    }
}

#[test]
fn examples_on_the_fast_path() {
    examples_are_fast(&["redis", "nginx", "pings"]);
}

#[test]
#[ignore = "takes minutes, and OpenFOAM is large; `make test-long` runs it"]
fn large_examples_on_the_fast_path() {
    examples_are_fast(&["demo", "mpi-hpcc"]);
    let place = Place::new();
    run_script(&place, &example(&place, "openfoam-dambreak", &[]), &FAST_ONCE);
}

#[test]
fn an_mpi_jobs_code_is_its_failing_ranks() {
    let place = Place::new();
    let labs = [("overlay", OVERLAY), ("fast", FAST)]
        .map(|(name, cluster)| place.up(name, &format!("{cluster}nodes: {{n: {{count: 2}}}}\n")));
    let launchers = [("openmpi", "OMPI_COMM_WORLD_RANK"), ("mpich", "PMI_RANK")];
    for (lab, (mpi, rank)) in labs.iter().flat_map(|lab| launchers.map(|launcher| (lab, launcher))) {
        run(lab, &["--mpi", mpi], &["/bin/true"]);
        let fails = format!("[ ${rank} = 0 ] || exit 7");
        let folder = place.path().join(format!("{}-{mpi}", lab.name));
        let output = job(lab, &folder, &["--mpi", mpi], &["sh", "-c", &fails]).output().expect("started");
        assert_eq!(output.status.code(), Some(7), "{mpi}: {}", told(&output));
        let output =
            job(lab, &folder.join("missing"), &["--mpi", mpi], &["/no/such/program"]).output().expect("started");
        assert!(!output.status.success(), "{mpi}: {}", told(&output));
        is_quiet(lab, 2);
    }
}

#[test]
fn ctrl_c_ends_an_mpi_job_everywhere() {
    let place = Place::new();
    for cluster in CLUSTERS {
        let lab = place.up("stop", &format!("{cluster}nodes: {{n: {{count: 4}}}}\n"));
        for (mpi, signal, code) in [
            ("openmpi", Signal::INT, 130),
            ("mpich", Signal::INT, 130),
            ("openmpi", Signal::TERM, 143),
            ("mpich", Signal::TERM, 143),
        ] {
            // Each rank leaves something behind that nobody waits for.
            let ranks = ["sh", "-c", "setsid sleep 1000 & echo up; sleep 1000"];
            let folder = place.path().join(format!("{mpi}-{code}-{}", lab.is_fast()));
            let mut running =
                job(&lab, &folder, &["--mpi", mpi, "-n", "4"], &ranks).stdout(Stdio::piped()).spawn().expect("started");
            await_that("every rank runs", || {
                let output = std::fs::read_to_string(folder.join("n1.stdout"));
                output.is_ok_and(|output| output.matches("up\n").count() == 4)
            });
            kill_process(Pid::from_child(&running), signal).expect("it runs");
            await_that("the job has ended", || running.try_wait().expect("looked at").is_some());
            assert_eq!(running.wait().expect("ended").code(), Some(code), "{mpi}");
            is_quiet(&lab, 4);
        }
    }
}

/// Nothing but inits is left in a lab's nodes.
#[track_caller]
fn is_quiet(lab: &Lab<'_>, nodes: usize) {
    for node in (1..=nodes).map(|number| format!("n{number}")) {
        assert_eq!(
            lab.row(&node)["usage"]["pids"],
            1,
            "only its init runs in {node}: {}",
            lab.exec(&node, ["ps", "ax"])
        );
    }
}

#[test]
fn redis_and_its_benchmark() {
    let place = Place::new();
    let nodes =
        "nodes:\n  n1: {command: redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /scratch}\n  n2:\n";
    let script = "redis-benchmark -h n1 -t set,get -n 2000 -c 8 -d 1000 --csv";
    for cluster in CLUSTERS {
        let lab = place.up("redis", &format!("{cluster}{nodes}"));
        lab.listens("n1", 6379);
        let ran = run(&lab, &["--on", "n2"], &["sh", "-c", script]);
        let output = ran.output("n2");
        assert!(output.contains("\"SET\",") && output.contains("\"GET\","), "{output}");
        // Two thousand values of 1000 bytes.
        ran.crossed(&lab, 2_000_000);
    }
}

#[test]
fn nginx_and_two_clients() {
    let place = Place::new();
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nginx").canonicalize().expect("it is there");
    let nodes = format!(
        "nodes:\n  web: {{command: nginx -c /srv/nginx.conf, mounts: [\"{}:/srv:ro\"], memory: 256MiB, pids: 64}}\n  n: {{count: 2}}\n",
        site.display()
    );
    let script = "curl -s --fail http://web/ && ab -q -n 500 -c 4 http://web/";
    for cluster in CLUSTERS {
        let lab = place.up("nginx", &format!("{cluster}{nodes}"));
        lab.listens("web", 80);
        let ran = run(&lab, &["--on", "n"], &["sh", "-c", script]);
        let page = std::fs::read_to_string(site.join("index.html")).expect("the page is there");
        for node in ["n1", "n2"] {
            let output = ran.output(node);
            assert!(output.contains(page.trim()) && output.contains("Complete requests:      500"), "{output}");
            assert!(output.contains("Failed requests:        0"), "{output}");
        }
        // What five hundred requests take at least.
        ran.crossed(&lab, 500 * 40);
    }
}

/// A server and its client in one program.
const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "serve" {
		listener, err := net.Listen("tcp", ":7000")
		must(err)
		for {
			connection, err := listener.Accept()
			must(err)
			name, err := os.Hostname()
			must(err)
			fmt.Fprint(connection, "hello from "+name)
			connection.Close()
		}
	}
	connection, err := net.Dial("tcp", os.Args[1])
	must(err)
	answer, err := io.ReadAll(connection)
	must(err)
	fmt.Println(string(answer))
}
"#;

/// No shell, no C library, not even folders.
#[test]
fn a_static_go_program_is_an_image() {
    let place = Place::new();
    let image = place.path().join("image");
    std::fs::create_dir(&image).expect("made");
    std::fs::write(place.path().join("main.go"), GO).expect("written");
    let mut go = Command::new("go");
    go.args(["build", "-o", "image/greet", "main.go"]).current_dir(place.path()).env("CGO_ENABLED", "0");
    // Its standard library is compiled once, not for each run of the test.
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .env("GOTOOLCHAIN", "local")
        .env("GO111MODULE", "off");
    compile(&mut go, "golang-go");
    let text = "images: {go: ./image}\nnodes:\n  server: {image: go, command: [/greet, serve]}\n  client: {image: go, read_only: true}\n";
    for cluster in CLUSTERS {
        let lab = place.up("go", &format!("{cluster}{text}"));
        lab.listens("server", 7000);
        assert_eq!(lab.exec("client", ["/greet", "server:7000"]), "hello from server\n");
        assert_eq!(lab.connections() > 0, lab.is_fast());
        let said = place.fails(127, ["exec", &lab.name, "client", "--", "sh"]);
        assert!(said.contains("find program `sh`"), "{said}");
        assert_eq!(std::fs::read_dir(&image).expect("there").count(), 1, "an image is not written to");
    }
}

#[test]
fn two_hundred_nodes_ping_their_neighbours() {
    let ping = "i=${HOSTNAME#n}; exec ping -q -c1 -W60 n$((i % 200 + 1))";
    for cluster in CLUSTERS {
        let place = Place::new();
        let lab = place.up("ring", &format!("{cluster}nodes: {{n: {{count: 200}}}}\n"));
        let ran = run(&lab, &[], &["sh", "-c", ping]);
        let programs = ran.answer["programs"].as_array().expect("listed");
        assert_eq!(programs.len(), 200);
        assert!(programs.iter().all(|program| program["code"] == 0), "{}", ran.answer);
        assert!(ran.output("n200").contains("PING n1 "), "{}", ran.output("n200"));
    }
}

#[test]
fn ssh_between_nodes_asks_nothing() {
    for cluster in CLUSTERS {
        let place = Place::new();
        let lab = place.up("ssh", &format!("{cluster}nodes: {{n: {{count: 2, sshd: true}}}}\n"));
        assert_eq!(lab.exec("n1", ["ssh", "n2", "hostname"]), "n2\n");
        assert_eq!(lab.exec("n2", ["ssh", "n1", "hostname"]), "n1\n");
        assert_eq!(lab.program("n1", ["ssh", "n2", "exit 42"]).output().expect("started").status.code(), Some(42));
        assert_eq!(lab.connections() > 0, lab.is_fast());
    }
}

//! What programs see of their sockets is the same whatever carries their connections. Needs root and the packages of
//! `scripts/setup.sh test`.
//!
//! The observer (`sockets/*.c`) runs on two nodes, built in three ways, and prints what it sees. Every lab of [`LABS`] must
//! make it print the same lines, which are those of `sockets/snapshots`. On the fast path every line in which it differs is
//! written down too (`sockets/snapshots/fast-*`), with what was expected: no other may, and `docs/guide/fast.md` explains them.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use common::{Lab, Place, await_that, told};

/// The drivers, and on how many hosts. The first one is what the others are held to.
const LABS: [(&str, u32); 2] = [("bridge", 1), ("vxlan", 2)];

/// The fast path: pairs of unix sockets within a host, connections of TCP between two.
const FAST: [(&str, u32); 2] = [("fast", 1), ("fast", 2)];

/// The observer's builds: name, compiler, options, package.
const BUILDS: [(&str, &str, &[&str], &str); 3] = [
    ("dynamic", "gcc", &[], "build-essential"),
    // The linker warns that getaddrinfo would load libraries; for /etc/hosts it loads none.
    ("static", "gcc", &["-static", "-Wl,--no-warnings"], "build-essential"),
    ("musl", "musl-gcc", &["-static"], "musl-tools"),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets")
}

/// Compiles the observer into `folder`, in all ways.
fn compile(folder: &Path) {
    let mut files: Vec<PathBuf> = common::entries(&sources()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    for (name, compiler, options, package) in BUILDS {
        let mut command = Command::new(compiler);
        command.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-Werror", "-pthread", "-o"]);
        command.arg(folder.join(name)).args(&files).args(options);
        let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}: install {package}"));
        assert!(output.status.success(), "{}", told(&output));
    }
}

/// What a group of scenarios prints on both sides, scenario by scenario.
fn observe(place: &Place, (driver, hosts): (&str, u32), build: &str, group: &str) -> String {
    let name = format!("{driver}{hosts}-{build}");
    std::fs::create_dir(place.path().join(&name)).expect("made");
    let mounts = format!("{{mounts: [\"./{name}:/meet\", \"./bin:/opt/observer:ro\"]}}");
    let text = format!("hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes: {{server: {mounts}, client: {mounts}}}\n");
    let lab = place.up(&name, &text);
    let program = format!("/opt/observer/{build}");
    let sides = ["server", "client"].map(|side| {
        let mut command = lab.program(side, [&program, "/meet", side, group]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slipway can be started")
    });
    let printed = sides.map(|side| {
        let output = side.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{driver}, {build}: {}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    by_scenario(&printed)
}

/// Lines begin with their scenario; those of a scenario come together, in the order of each side.
fn by_scenario(printed: &[String]) -> String {
    let mut scenarios: Vec<(&str, Vec<&str>)> = Vec::new();
    for (scenario, line) in printed.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(' ')) {
        match scenarios.iter_mut().find(|(name, _)| *name == scenario) {
            Some((_, lines)) => lines.push(line),
            None => scenarios.push((scenario, vec![line])),
        }
    }
    // When one side gives up, what the other still says is chance.
    let gave_up = |lines: &[&str]| lines.iter().any(|line| line.contains(" FAILED: "));
    for (_, lines) in scenarios.iter_mut().filter(|(_, lines)| gave_up(lines)) {
        *lines = vec!["it does not come to its end"];
    }
    scenarios.iter().fold(String::new(), |mut text, (name, lines)| {
        let _ = writeln!(text, "{name}\n    {}", lines.join("\n    "));
        text
    })
}

/// The lines in which one differs from what was seen first, each with its scenario.
fn differences(expected: &str, found: &str) -> String {
    fn lines(text: &str) -> Vec<String> {
        let mut scenario = "";
        let mut lines = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("    ") {
                Some(line) => lines.push(format!("{scenario}: {line}")),
                None => scenario = line,
            }
        }
        lines
    }
    let (expected, found) = (lines(expected), lines(found));
    let (before, after) = (BTreeSet::from_iter(&expected), BTreeSet::from_iter(&found));
    let gone = expected.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}\n"));
    let new = found.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}\n"));
    let said: String = gone.chain(new).collect();
    if said.is_empty() { "the order of lines".to_owned() } else { said }
}

/// Every lab and every build sees the same, and it is what is written down.
#[track_caller]
fn all_see_the_same(group: &str) {
    let place = Place::new();
    std::fs::create_dir(place.path().join("bin")).expect("made");
    compile(&place.path().join("bin"));
    let observed = |labs: &[(&'static str, u32)]| -> Vec<(String, String)> {
        thread::scope(|scope| {
            let runs: Vec<_> = labs
                .iter()
                .flat_map(|lab| BUILDS.iter().map(move |build| (*lab, build.0)))
                .map(|(lab, build)| {
                    let place = &place;
                    let run = scope.spawn(move || observe(place, lab, build, group));
                    (format!("{} on {} hosts, {build}", lab.0, lab.1), run)
                })
                .collect();
            runs.into_iter().map(|(name, run)| (name, run.join().expect("it was observed"))).collect()
        })
    };
    let same = |seen: &[(String, String)]| {
        let (first, rest) = seen.split_first().expect("there are labs");
        for (name, lines) in rest {
            assert!(*lines == first.1, "{name} differs from {}:\n{}", first.0, differences(&first.1, lines));
        }
        first.1.clone()
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(sources().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let expected = same(&observed(&LABS));
    settings.bind(|| insta::assert_snapshot!(group, expected));
    for lab in FAST {
        let found = same(&observed(&[lab]));
        let difference = if found == expected { "none\n".to_owned() } else { differences(&expected, &found) };
        settings.bind(|| insta::assert_snapshot!(format!("fast-{}-{group}", lab.1), difference));
    }
}

#[test]
fn addresses() {
    all_see_the_same("addresses");
}

#[test]
fn connecting() {
    all_see_the_same("connecting");
}

#[test]
fn accepting() {
    all_see_the_same("accepting");
}

#[test]
fn options() {
    all_see_the_same("options");
}

#[test]
fn flags() {
    all_see_the_same("flags");
}

#[test]
fn data() {
    all_see_the_same("data");
}

#[test]
fn endings() {
    all_see_the_same("endings");
}

#[test]
fn failing() {
    all_see_the_same("failing");
}

#[test]
fn refusals() {
    all_see_the_same("refusals");
}

#[test]
fn families() {
    all_see_the_same("families");
}

#[test]
fn processes() {
    all_see_the_same("processes");
}

/// Two nodes, `server` and `client`, on each of [`LABS`] in turn; the server runs `command`, and listens on `port`.
fn with_a_server(command: &[&str], port: u16, prepare: impl Fn(&Path), talk: impl Fn(&Lab<'_>)) {
    for (driver, hosts) in LABS.into_iter().chain(FAST) {
        let place = Place::new();
        std::fs::create_dir(place.path().join("opt")).expect("made");
        prepare(&place.path().join("opt"));
        let text = format!(
            "hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes:\n  server: {{command: {}, mounts: [\"./opt:/opt/test:ro\"]}}\n  client: {{mounts: [\"./opt:/opt/test:ro\"]}}\n",
            serde_json::json!(command)
        );
        let lab = place.up(driver, &text);
        // Without a connection, so that the first one is the program's.
        await_that("the server listens", || {
            let sockets = lab.exec("server", ["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
            sockets.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let own = words.next().is_some_and(|own| own.ends_with(&format!(":{port:04X}")));
                own && words.nth(1) == Some("0A")
            })
        });
        talk(&lab);
    }
}

/// Runs a shell's script on the client, which must succeed, and gives what it printed.
#[track_caller]
fn on_client(lab: &Lab<'_>, script: &str) -> String {
    lab.exec("client", ["timeout", "120", "sh", "-euc", script])
}

const PYTHON: &str = r#"
import asyncio, sys

async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    writer.close()

async def serve():
    async with await asyncio.start_server(echo, None, 7000) as server:
        await server.serve_forever()

async def call(number):
    host = "server" if number % 2 else "ip6-server"
    reader, writer = await asyncio.open_connection(host, 7000)
    assert writer.get_extra_info("peername")[1] == 7000
    sent = bytes([number]) * 300_000
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
    await writer.wait_closed()

async def call_all():
    await asyncio.gather(*(call(number) for number in range(50)))
    try:
        await asyncio.open_connection("server", 7001)
    except ConnectionRefusedError:
        print("fifty echoes, one refusal")

asyncio.run(serve() if sys.argv[1] == "serve" else call_all())
"#;

#[test]
fn python_asyncio() {
    let write = |folder: &Path| std::fs::write(folder.join("echo.py"), PYTHON).expect("written");
    with_a_server(&["/usr/bin/python3", "/opt/test/echo.py", "serve"], 7000, write, |lab| {
        assert_eq!(on_client(lab, "/usr/bin/python3 /opt/test/echo.py call"), "fifty echoes, one refusal\n");
    });
}

/// Its runtime registers with epoll before it connects, and makes its calls from many threads.
const GO: &str = r#"
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
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
			go func() {
				_, err := io.Copy(connection, connection)
				must(err)
				must(connection.Close())
			}()
		}
	}
	var all sync.WaitGroup
	for number := 0; number < 50; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			host := []string{"server", "ip6-server"}[number%2]
			connection, err := net.Dial("tcp", host+":7000")
			must(err)
			sent := bytes.Repeat([]byte{byte(number)}, 300000)
			go func() {
				_, err := connection.Write(sent)
				must(err)
				must(connection.(*net.TCPConn).CloseWrite())
			}()
			got, err := io.ReadAll(connection)
			must(err)
			if !bytes.Equal(got, sent) {
				must(fmt.Errorf("connection %d got something else", number))
			}
		}(number)
	}
	all.Wait()
	_, err := net.Dial("tcp", "server:7001")
	fmt.Println("fifty echoes,", err)
}
"#;

#[test]
fn a_static_go_program() {
    let build = |folder: &Path| {
        std::fs::write(folder.join("echo.go"), GO).expect("written");
        let mut go = Command::new("go");
        go.args(["build", "-o", "echo", "echo.go"]).current_dir(folder).env("CGO_ENABLED", "0");
        go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
        let output = go.env("GOTOOLCHAIN", "local").env("GO111MODULE", "off").output();
        let output = output.unwrap_or_else(|error| panic!("go: {error}: install golang-go"));
        assert!(output.status.success(), "{}", told(&output));
    };
    with_a_server(&["/opt/test/echo", "serve"], 7000, build, |lab| {
        let said = on_client(lab, "/opt/test/echo call");
        assert!(said.starts_with("fifty echoes, dial tcp ") && said.contains("connection refused"), "{said}");
    });
}

#[test]
fn nginx_and_curl() {
    const CONFIGURATION: &str = "daemon off; worker_processes 2; pid /run/nginx.pid; error_log /dev/stderr;
        events { worker_connections 256; }
        http { access_log off; server { listen 80 reuseport; listen [::]:80; root /opt/test; sendfile on; tcp_nopush on; } }";
    let write = |folder: &Path| {
        std::fs::write(folder.join("nginx.conf"), CONFIGURATION).expect("written");
        std::fs::write(folder.join("large"), vec![b'x'; 5_000_000]).expect("written");
    };
    with_a_server(&["nginx", "-c", "/opt/test/nginx.conf"], 80, write, |lab| {
        let said = on_client(
            lab,
            "curl -sS --fail http://server/large | cmp - /opt/test/large
             curl -sS --fail http://ip6-server/large | cmp - /opt/test/large
             curl -sS --fail --parallel $(seq -f '-o /dev/null http://server/large?%g' 20)
             curl -sS -o /dev/null -w '%{http_code} %{local_ip} %{remote_ip} %{remote_port}\\n' http://server/nothing
             curl -sS http://server:81/ || echo code $?",
        );
        let lines: Vec<&str> = said.lines().collect();
        let addresses = on_client(lab, "for node in client server; do getent ahostsv4 $node | head -n 1; done");
        let own: Vec<&str> = addresses.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(lines, [format!("404 {} {} 80", own[0], own[1]), "code 7".to_owned()], "{said}");
    });
}

#[test]
fn redis_and_its_own_benchmark() {
    let command = ["redis-server", "--bind", "*", "-::*", "--protected-mode", "no", "--save", "", "--dir", "/scratch"];
    with_a_server(
        &command,
        6379,
        |_| {},
        |lab| {
            let said = on_client(
                lab,
                "redis-cli -h server set key value; redis-cli -h ip6-server get key
             redis-benchmark -h server -t ping,set,get,lpush -n 2000 -c 50 -P 4 -d 3000 -q --csv",
            );
            assert!(said.starts_with("OK\nvalue\n"), "{said}");
            for test in ["PING_INLINE", "SET", "GET", "LPUSH"] {
                assert!(said.contains(&format!("\"{test}")), "{test} is missing: {said}");
            }
        },
    );
}

#[test]
fn iperf3_both_ways() {
    with_a_server(
        &["iperf3", "-s"],
        5201,
        |_| {},
        |lab| {
            for options in ["", "-R", "--bidir", "-6 -P 4", "-Z", "-M 1000 -N -w 256K", "-B client", "-u -b 10M"] {
                let host = if options.contains("-6") { "ip6-server" } else { "server" };
                let said = on_client(lab, &format!("iperf3 -c {host} -n 8M {options}"));
                assert!(said.contains("iperf Done."), "{options}: {said}");
            }
        },
    );
}

#[test]
fn socat_both_ways() {
    let command = ["socat", "TCP-LISTEN:7000,fork,reuseaddr", "SYSTEM:sha256sum"];
    with_a_server(
        &command,
        7000,
        |_| {},
        |lab| {
            let said = on_client(
                lab,
                "head -c 3000000 /dev/zero | socat -t 60 - TCP:server:7000
             head -c 3000000 /dev/zero | socat -t 60 - TCP:server:7000,nonblock,nodelay,keepalive,bind=client
             head -c 3000000 /dev/zero | sha256sum
             echo x | socat - TCP:server:7001 2>&1 | grep -o 'Connection refused'",
            );
            let lines: Vec<&str> = said.lines().collect();
            assert!(lines.len() == 4 && lines[0] == lines[2] && lines[1] == lines[2], "{said}");
        },
    );
}

//! Servers and their clients, written in many languages, talk as ever whatever carries their connections. Needs root and the
//! packages of `scripts/setup.sh test`.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Lab, Place, told};

/// The drivers, and on how many hosts.
const LABS: [(&str, u32); 4] = [("bridge", 1), ("vxlan", 2), ("fast", 1), ("fast", 2)];

/// Two nodes, `server` and `client`, on each of [`LABS`] in turn; the server runs `command`, and listens on `ports`.
fn with_a_server(command: &[&str], ports: &[u16], prepare: impl Fn(&Path), talk: impl Fn(&Lab<'_>)) {
    for (driver, hosts) in LABS {
        let place = Place::new();
        std::fs::create_dir(place.path().join("opt")).expect("made");
        prepare(&place.path().join("opt"));
        let text = format!(
            "hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes:\n  server: {{command: {}, mounts: [\"./opt:/opt/test:ro\"]}}\n  client: {{mounts: [\"./opt:/opt/test:ro\"]}}\n",
            serde_json::json!(command)
        );
        let lab = place.up(driver, &text);
        // Without a connection, so that the first one is the program's.
        for &port in ports {
            lab.listens("server", port);
        }
        talk(&lab);
    }
}

/// Runs a shell's script on the client, which must succeed, and gives what it printed.
#[track_caller]
fn on_client(lab: &Lab<'_>, script: &str) -> String {
    lab.exec("client", ["timeout", "900", "sh", "-euc", script])
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
    with_a_server(&["/usr/bin/python3", "/opt/test/echo.py", "serve"], &[7000], write, |lab| {
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
    with_a_server(&["/opt/test/echo", "serve"], &[7000], build, |lab| {
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
    with_a_server(&["nginx", "-c", "/opt/test/nginx.conf"], &[80], write, |lab| {
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
        &[6379],
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
    const WAYS: [&str; 8] = ["", "-R", "--bidir", "-6 -P 4", "-Z", "-M 1000 -N -w 256K", "-B client", "-u -b 10M"];
    const PORTS: [u16; 8] = [5201, 5202, 5203, 5204, 5205, 5206, 5207, 5208];
    // A server for each: one that has not yet heard that its client has ended refuses the next.
    let command = "for port in $(seq 5201 5207); do iperf3 -s -p $port & done; exec iperf3 -s -p 5208";
    with_a_server(
        &["sh", "-c", command],
        &PORTS,
        |_| {},
        |lab| {
            for (options, port) in WAYS.into_iter().zip(PORTS) {
                let host = if options.contains("-6") { "ip6-server" } else { "server" };
                let said = on_client(lab, &format!("iperf3 -c {host} -p {port} -n 8M {options}"));
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
        &[7000],
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

/// The parent accepts and passes connections on to its workers, which ask the kernel what they were given.
const NODE: &str = r"
const net = require('net'), cluster = require('cluster'), assert = require('assert')

const echo = socket => socket.on('error', error => { throw error }).pipe(socket)
const call = number => new Promise((done, fail) => {
    const sent = Buffer.alloc(300000, number), got = []
    const socket = net.connect(7000, number % 2 ? 'server' : 'ip6-server', () => {
        assert.equal(socket.remotePort, 7000)
        socket.end(sent)
    })
    socket.on('data', bytes => got.push(bytes)).on('error', fail)
    socket.on('end', () => { assert(Buffer.concat(got).equals(sent)); done() })
})

if (cluster.isPrimary && process.argv[2] === 'serve') {
    cluster.fork(), cluster.fork()
} else if (process.argv[2] === 'serve') {
    net.createServer({allowHalfOpen: true}, echo).listen(7000)
} else {
    Promise.all([...Array(50).keys()].map(call))
        .then(() => net.connect(7001, 'server').on('error', error => console.log('fifty echoes,', error.code)))
}
";

#[test]
fn node_js_with_workers() {
    let write = |folder: &Path| std::fs::write(folder.join("echo.js"), NODE).expect("written");
    with_a_server(&["/usr/bin/node", "/opt/test/echo.js", "serve"], &[7000], write, |lab| {
        assert_eq!(on_client(lab, "/usr/bin/node /opt/test/echo.js call"), "fifty echoes, ECONNREFUSED\n");
    });
}

/// One thread that serves by a selector, and clients that block, each in a thread of its own.
const JAVA: &str = r#"
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;

public class Echo {
    static void serve() throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(7000)).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
        while (true) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); keys.remove()) {
                SelectionKey key = keys.next();
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    if (accepted == null) continue;
                    accepted.configureBlocking(false);
                    accepted.register(selector, SelectionKey.OP_READ, new ArrayDeque<ByteBuffer>());
                } else echo(key, buffer);
            }
        }
    }

    @SuppressWarnings("unchecked")
    static void echo(SelectionKey key, ByteBuffer buffer) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        Queue<ByteBuffer> unsent = (Queue<ByteBuffer>) key.attachment();
        boolean ended = false;
        if (key.isReadable()) {
            ended = channel.read(buffer.clear()) < 0;
            unsent.add(ByteBuffer.allocate(buffer.position()).put(buffer.flip()).flip());
        }
        while (!unsent.isEmpty() && channel.write(unsent.peek()) >= 0 && !unsent.peek().hasRemaining()) unsent.remove();
        if (ended && unsent.isEmpty()) channel.close();
        else key.interestOps(ended ? SelectionKey.OP_WRITE
            : SelectionKey.OP_READ | (unsent.isEmpty() ? 0 : SelectionKey.OP_WRITE));
    }

    static void call(int number) {
        byte[] sent = new byte[300000];
        Arrays.fill(sent, (byte) number);
        try (Socket socket = new Socket(number % 2 == 0 ? "server" : "ip6-server", 7000)) {
            Thread writer = new Thread(() -> {
                try {
                    socket.getOutputStream().write(sent);
                    socket.shutdownOutput();
                } catch (IOException error) { throw new UncheckedIOException(error); }
            });
            writer.start();
            byte[] got = socket.getInputStream().readAllBytes();
            writer.join();
            if (!Arrays.equals(got, sent) || socket.getPort() != 7000) throw new AssertionError("something else came");
        } catch (Exception error) { throw new RuntimeException(error); }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("serve")) serve();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            int number = i;
            threads.add(new Thread(() -> call(number)));
        }
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> { error.printStackTrace(); System.exit(1); });
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        try (Socket socket = new Socket("server", 7001)) {
            System.out.println("somebody listens");
        } catch (ConnectException refused) { System.out.println("fifty echoes, " + refused.getMessage()); }
    }
}
"#;

#[test]
#[ignore = "a Java compiler is large; `make test-long` installs it and runs this"]
fn java_with_a_selector() {
    let compile = |folder: &Path| {
        std::fs::write(folder.join("Echo.java"), JAVA).expect("written");
        let output = Command::new("/usr/bin/javac").args(["-Xlint:all", "Echo.java"]).current_dir(folder).output();
        let output = output.unwrap_or_else(|error| panic!("javac: {error}: install openjdk-17-jdk-headless"));
        assert!(output.status.success(), "{}", told(&output));
    };
    let java = ["/usr/bin/java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", "/opt/test", "Echo"];
    with_a_server(&[&java[..], &["serve"]].concat(), &[7000], compile, |lab| {
        let said = on_client(lab, &[&java[..], &["call"]].concat().join(" "));
        assert_eq!(said, "fifty echoes, Connection refused\n");
    });
}

//! Descriptors that connections leave behind, counted in a process of its own.

#[allow(dead_code, reason = "each test file uses its own part")]
mod nodes;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use nodes::{Lab, SERVER};

fn server() -> SocketAddr {
    SocketAddr::new(SERVER.into(), 85)
}

#[test]
fn many_connections_leave_nothing() {
    let lab = Lab::new();
    let listener = lab.server(move || TcpListener::bind(server()).expect("bound"));
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("readable").map(|entry| entry.expect("readable").path());
        all.filter(|path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))).count()
    };
    let run = |count: usize| {
        let listener = listener.try_clone().expect("a copy");
        let accepting = lab.server_runs(move || {
            for _ in 0..count {
                let (mut stream, _) = listener.accept().expect("accepted");
                stream.write_all(b"x").expect("written");
            }
        });
        lab.client(move || {
            for _ in 0..count {
                let mut byte = [0];
                TcpStream::connect(server()).expect("connected").read_exact(&mut byte).expect("read");
            }
        });
        accepting.join().expect("it ran");
    };
    let before = open();
    run(2000);
    // A thread may be about to close what it has just given to a program; nothing stays of each connection.
    let after = open();
    assert!(after < before + 10, "{before} sockets before, {after} after");
    assert_eq!(lab.router.counts.tally().pair, 2000);
}

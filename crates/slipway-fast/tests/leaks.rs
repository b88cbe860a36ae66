//! Alone in its process, because it counts the process's descriptors and threads.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use slipway_fast::channel::{Acceptor, Hello, Key, Limits, Open, Pool};

const LONG: Duration = Duration::from_mins(2);

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn nothing_is_left_of_many_connections() {
    let counts = || (count("/proc/self/fd"), count("/proc/self/task"));
    let before = counts();
    let question = Open { flow: 1, server: "10.64.0.2:80".parse().unwrap(), client: "10.64.0.1:4000".parse().unwrap() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let key = Key::draw().unwrap();
    let acceptor = Acceptor::start(listener, key.clone(), Hello::new(7, 1), Limits::default(), |asked| {
        asked.accept().unwrap();
    })
    .unwrap();
    let pool = Pool::start(key, Hello::new(7, 0), [(1, address)], 16).unwrap();
    for _ in 0..3000 {
        pool.open(1, &question, LONG).unwrap();
    }
    // Both ends of the session, of what is ready and of what is being made, and what the threads wait on.
    assert!(count("/proc/self/fd") <= before.0 + 2 * (1 + 16 + 16) + 8, "{} descriptors", count("/proc/self/fd"));
    drop((pool, acceptor));
    // A thread that was waited for is listed for a moment longer.
    let deadline = Instant::now() + LONG;
    while counts() != before && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(counts(), before);
}

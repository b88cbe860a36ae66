//! What the router costs and what it gains, between two nodes of one host joined by a veth pair: connections a second, 64-byte
//! round trips, and throughput, in rounds that take turns. Ratios are to the same without a filter.
//!
//! `cargo bench -p slipway-fast`, or with the beginning of what is to be measured and of the way: `-- connections Fast`. The numbers
//! of whole labs are `cargo bench -p slipway -- fast`.

#[allow(dead_code, reason = "each of those who use it uses its own part")]
#[path = "../tests/nodes/mod.rs"]
mod nodes;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nodes::{Lab, SERVER};
use slipway_fast::policy::Policy;
use slipway_lab::id::NodeId;

const ROUNDS: usize = 7;
/// Of the host, that have nothing to do with what is counted.
const SOCKETS: usize = 4000;
const TIME: Duration = Duration::from_millis(700);

/// Its name, how many clients there are at once and as many threads that accept, what a client does with each connection and how
/// much that is, and what the server does.
type Measure = (&'static str, usize, fn(TcpStream) -> u64, fn(TcpStream));

/// How the programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// No filter: the veth pair.
    Plain,
    /// Under the filter, but left on the veth pair.
    Native,
    /// On the fast path.
    Fast,
    /// On the fast path, under a rule that counts connections, on a host with thousands of other sockets.
    Counted,
}

fn main() {
    // Cargo passes `--bench`.
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |at: usize, name: &str| asked.get(at).is_none_or(|asked| name.starts_with(asked.as_str()));
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| wanted(1, &format!("{way:?}"))).collect();
    let lab = Lab::new();
    let measures: [Measure; 4] = [
        ("connections/s", 1, one, echo),
        ("eight at once, connections/s", 8, one, echo),
        ("round trips/s", 1, round_trips, echo),
        ("Gbit/s", 1, stream, swallow),
    ];
    println!("| | {} |", ways.iter().map(|way| format!("{way:?}")).collect::<Vec<_>>().join(" | "));
    // A port's old connections are in its way for a minute.
    let mut ports = 1000_u16..;
    for measured in measures.into_iter().filter(|(name, ..)| wanted(0, name)) {
        let mut found = vec![Vec::new(); ways.len()];
        for _ in 0..ROUNDS {
            for (way, found) in ways.iter().zip(&mut found) {
                found.push(measure(&lab, *way, ports.next().unwrap_or_default(), measured));
            }
        }
        let medians: Vec<f64> = found
            .into_iter()
            .map(|mut all| {
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            })
            .collect();
        let cells: Vec<String> =
            medians.iter().map(|median| format!("{median:.1} ({:.2}×)", median / medians[0])).collect();
        println!("| {} | {} |", measured.0, cells.join(" | "));
    }
}

impl Way {
    const ALL: [Self; 4] = [Self::Plain, Self::Native, Self::Fast, Self::Counted];
}

fn measure(lab: &Lab, way: Way, port: u16, (_, clients, client, server): Measure) -> f64 {
    let to = SocketAddr::new(SERVER.into(), port);
    lab.router.condition(if way == Way::Native { [NodeId(0)].into() } else { [].into() });
    let limit = if way == Way::Counted { "policy: [{to: b, connections: 100000}]\n" } else { "" };
    let text = format!("networks: {{net: fast}}\nnodes: {{a: , b: }}\n{limit}");
    let rules = slipway_lab::parse("lab.yaml", &text, Path::new("/")).expect("it is right").policy;
    lab.router.set_policy(Policy::new(&rules, 2));
    let others = if way == Way::Counted { SOCKETS / 2 } else { 0 };
    let _others: Vec<_> = (0..others).map(|_| UnixStream::pair().expect("a pair")).collect();
    let filtered = way != Way::Plain;
    let listener = lab.runs(NodeId(1), filtered, move || TcpListener::bind(to).expect("bound")).join().expect("it ran");
    let accept = move |listener: &TcpListener| {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut first = [0];
            if stream.read(&mut first).expect("read") == 0 {
                return;
            }
            server(stream);
        }
    };
    let accepting = lab.runs(NodeId(1), filtered, move || {
        thread::scope(|scope| (0..clients).for_each(|_| drop(scope.spawn(|| accept(&listener)))));
    });
    let connect = move || {
        let (started, mut done) = (Instant::now(), 0);
        while started.elapsed() < TIME {
            let mut stream = TcpStream::connect(to).expect("connected");
            stream.write_all(b"x").expect("written");
            done += client(stream);
        }
        done as f64 / started.elapsed().as_secs_f64()
    };
    let done = lab.runs(NodeId(0), filtered, move || {
        let rate = thread::scope(|scope| {
            let connecting: Vec<_> = (0..clients).map(|_| scope.spawn(connect)).collect();
            connecting.into_iter().map(|client| client.join().expect("it ran")).sum()
        });
        // One for each thread that accepts, which ends it.
        (0..clients).for_each(|_| drop(TcpStream::connect(to).expect("connected")));
        rate
    });
    let rate = done.join().expect("it ran");
    accepting.join().expect("it ran");
    rate
}

fn one(mut stream: TcpStream) -> u64 {
    let mut byte = [0];
    stream.write_all(&byte).expect("written");
    stream.read_exact(&mut byte).expect("read");
    1
}

fn round_trips(mut stream: TcpStream) -> u64 {
    stream.set_nodelay(true).expect("set");
    let mut message = [0; 64];
    for _ in 0..2000 {
        stream.write_all(&message).expect("written");
        stream.read_exact(&mut message).expect("read");
    }
    2000
}

fn echo(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("set");
    let mut bytes = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Gigabits: 7,629 blocks are 8.
fn stream(mut stream: TcpStream) -> u64 {
    let block = vec![0; 128 * 1024];
    for _ in 0..7629 {
        stream.write_all(&block).expect("written");
    }
    8
}

fn swallow(mut stream: TcpStream) {
    let mut block = vec![0; 256 * 1024];
    while let Ok(1..) = stream.read(&mut block) {}
}

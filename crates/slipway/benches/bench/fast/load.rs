//! The programs that run in nodes: this one, mounted there, with [`WORD`] for its first argument. They say on standard output what they
//! measured, as numbers.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// The word that makes this program the load instead of the benchmark.
pub(crate) const WORD: &str = "fast-load";
/// Where nodes have this program.
pub(super) const MOUNTED: &str = "/bench";

/// Of one `write`: what iperf3 writes at a time too.
const BLOCK: usize = 128 << 10;
/// A thread that moves data needs little.
const STACK: usize = 64 << 10;
/// After a pause so long the routers have all connections ready that they keep.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(words: &[&str]) {
    let outcome = match words {
        ["answer", port, threads] => answer(number(port), number(threads)),
        ["swallow", port] => swallow(number(port)),
        ["share", port, flows, millis] => share(number(port), number(flows), Duration::from_millis(number(millis))),
        ["connect", to, count, clients] => connect(address(to), number(count), number(clients)),
        ["burst", to, count, times] => burst(address(to), number(count), number(times)),
        ["spread", to, flows] => spread(address(to), number(flows)),
        ["write", to, flows, millis] => write(address(to), number(flows), Duration::from_millis(number(millis))),
        _ => panic!("there is no load {words:?}"),
    };
    if let Err(error) = outcome {
        eprintln!("{words:?}: {error}");
        std::process::exit(1);
    }
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

fn address(word: &str) -> SocketAddr {
    word.parse().unwrap_or_else(|_| panic!("not an address: {word}"))
}

/// With a queue that holds all that a client brings at once; the standard library's holds 128.
fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from(([0; 4], port)))?;
    rustix::net::listen(&socket, 4096)?;
    Ok(socket.into())
}

/// Serves for ever: answers every byte of a connection until its end, as many connections at once as there are threads.
fn answer(port: u16, threads: usize) -> io::Result<()> {
    let listener = Arc::new(listen(port)?);
    for _ in 1..threads {
        let listener = Arc::clone(&listener);
        thread::spawn(move || echo(&listener));
    }
    echo(&listener)
}

fn echo(listener: &TcpListener) -> ! {
    loop {
        let Ok((mut stream, _)) = listener.accept() else { continue };
        let mut byte = [0];
        while matches!(stream.read(&mut byte), Ok(1)) && stream.write_all(&byte).is_ok() {}
    }
}

/// Serves for ever: reads all that comes, each connection by a thread.
fn swallow(port: u16) -> io::Result<()> {
    let listener = listen(port)?;
    loop {
        let (stream, _) = listener.accept()?;
        thread::Builder::new().stack_size(STACK).spawn(move || drain(stream))?;
    }
}

fn drain(mut stream: TcpStream) {
    let mut block = vec![0; BLOCK];
    while matches!(stream.read(&mut block), Ok(1..)) {}
}

/// Takes so many connections, and says what they got once all are there: Jain's index of their shares, 1 where all are equal, and
/// the total, Gb/s. One thread reads them all, as they have something.
fn share(port: u16, flows: u64, time: Duration) -> io::Result<()> {
    let listener = listen(port)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let streams: Vec<TcpStream> = (0..flows)
        .map(|flow| watch(listener.accept()?.0, &poll, flow, epoll::EventFlags::IN))
        .collect::<io::Result<_>>()?;
    let mut counts = vec![0_u64; streams.len()];
    let mut block = vec![0; BLOCK];
    let mut take = |counts: &mut [u64], time: Duration| {
        as_they_are_ready(&poll, time, |flow| {
            let bytes = match (&streams[flow]).read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                other => other?,
            };
            counts[flow] += bytes as u64;
            Ok(bytes > 0)
        })
    };
    // The last one's first data, and what the first ones had to themselves.
    take(&mut counts, PAUSE)?;
    counts.fill(0);
    let begun = Instant::now();
    take(&mut counts, time)?;
    let took = begun.elapsed().as_secs_f64();
    let shares = || counts.iter().map(|&count| count as f64);
    let (sum, squares): (f64, f64) = (shares().sum(), shares().map(|share| share * share).sum());
    println!("{} {}", sum * sum / (shares().count() as f64 * squares), sum * 8.0 / took / 1e9);
    Ok(())
}

/// The other side of [`share`]: writes all it can over so many connections, as they can be written to, until they end.
fn spread(to: SocketAddr, flows: u64) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let streams: Vec<TcpStream> = (0..flows)
        .map(|flow| watch(TcpStream::connect(to)?, &poll, flow, epoll::EventFlags::OUT))
        .collect::<io::Result<_>>()?;
    let block = vec![0; BLOCK];
    as_they_are_ready(&poll, Duration::from_mins(1), |flow| match (&streams[flow]).write(&block) {
        Err(error) if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind()) => Ok(false),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(true),
    })
}

fn watch(stream: TcpStream, poll: &OwnedFd, flow: u64, flags: epoll::EventFlags) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    epoll::add(poll, &stream, epoll::EventData::new_u64(flow), flags)?;
    Ok(stream)
}

/// Does something with each stream that is ready, for so long or until that says no.
fn as_they_are_ready(
    poll: &OwnedFd,
    time: Duration,
    mut action: impl FnMut(usize) -> io::Result<bool>,
) -> io::Result<()> {
    let begun = Instant::now();
    let mut events = Vec::with_capacity(512);
    let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
    while begun.elapsed() < time {
        events.clear();
        epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
        for event in &events {
            let flow = usize::try_from(event.data.u64()).map_err(io::Error::other)?;
            if !action(flow)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Connects, sends a byte, hears it and closes, so many times; several clients share them. Connections a second.
fn connect(to: SocketAddr, count: u32, clients: u32) -> io::Result<()> {
    let once = || -> io::Result<()> {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    };
    let begun = Instant::now();
    let all = || (0..count / clients).try_for_each(|_| once());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(all)).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
    })?;
    println!("{}", f64::from(count) / begun.elapsed().as_secs_f64());
    Ok(())
}

/// Makes so many connections, one right after the other, and closes them only then; µs each, median of so many times.
fn burst(to: SocketAddr, count: u32, times: usize) -> io::Result<()> {
    let mut took = Vec::new();
    for _ in 0..times {
        thread::sleep(PAUSE);
        let begun = Instant::now();
        let streams: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(to)).collect::<Result<_, _>>()?;
        took.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        drop(streams);
    }
    took.sort_by(f64::total_cmp);
    println!("{}", took[took.len() / 2]);
    Ok(())
}

/// Writes all it can over so many connections, each by a thread, for so long; Gb/s that were taken.
fn write(to: SocketAddr, flows: usize, time: Duration) -> io::Result<()> {
    let written = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut writers = Vec::new();
    for _ in 0..flows {
        let (mut stream, written) = (TcpStream::connect(to)?, Arc::clone(&written));
        let writer = move || {
            let block = vec![0; BLOCK];
            while begun.elapsed() < time && stream.write_all(&block).is_ok() {
                written.fetch_add(BLOCK as u64, Ordering::Relaxed);
            }
        };
        writers.push(thread::Builder::new().stack_size(STACK).spawn(writer)?);
    }
    for writer in writers {
        writer.join().expect("it does not panic");
    }
    println!("{}", written.load(Ordering::Relaxed) as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e9);
    Ok(())
}

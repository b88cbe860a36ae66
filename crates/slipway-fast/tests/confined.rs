//! A process that confines itself as a router does, and then does what a router never does. (No test harness: its process is the
//! one that ends.) Needs root.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::{env, panic, process, thread};

use nix::sys::prctl;
use rustix::net::{AddressFamily, SocketType};
use slipway_fast::confine::confine;
use slipway_fast::metadata::BYTES;
use slipway_fast::walk;
use slipway_sys::bpf::SocketStorage;
use slipway_sys::seccomp::Filter;
use slipway_sys::sock_diag::destroy_tcp;

/// A name, what is done (true where it could be), and the number of the call that is one too many.
type Deed = (&'static str, fn() -> bool, i64);

const FORBIDDEN: &[Deed] = &[
    ("a file is made", || File::create("/tmp/slipway-confined").is_ok(), libc::SYS_openat),
    ("a folder is made", || fs::create_dir("/tmp/slipway-confined").is_ok(), MKDIR),
    ("a process is killed", || rustix::process::test_kill_process(rustix::process::Pid::INIT).is_ok(), libc::SYS_kill),
    ("it can be traced", || prctl::set_dumpable(true).is_ok(), libc::SYS_prctl),
    ("a namespace is made", || slipway_sys::ns::create_net().is_ok(), libc::SYS_unshare),
    (
        "a namespace is entered",
        || nix::sched::setns(std::io::stderr().as_fd(), nix::sched::CloneFlags::CLONE_NEWNET).is_ok(),
        libc::SYS_setns,
    ),
    (
        "a unix socket is made",
        || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).is_ok(),
        libc::SYS_socket,
    ),
    ("a map is made", || SocketStorage::create("notes", BYTES).is_ok(), libc::SYS_bpf),
    ("a filter is added", || Filter::trap(&[]).attach().is_ok(), libc::SYS_seccomp),
];

#[cfg(target_arch = "x86_64")]
const MKDIR: i64 = libc::SYS_mkdir;
#[cfg(target_arch = "aarch64")]
const MKDIR: i64 = libc::SYS_mkdirat;

fn main() {
    match env::args().nth(1) {
        Some(name) => confined(&name),
        None => all(),
    }
}

/// Every deed in a process of its own.
fn all() {
    for (name, _, number) in FORBIDDEN {
        let (signal, said) = run(name);
        assert_eq!(signal, Some(libc::SIGABRT), "{name}: {said}");
        assert!(said.contains(&format!("system call {number} (")), "{name}: {said}");
        println!("{name}: ok");
    }
    // The C library blocks signals first, so nothing is said.
    let (signal, said) = run("starts");
    assert_eq!((signal, said.as_str()), (Some(libc::SIGSYS), ""));
    let (signal, said) = run("panics");
    assert_eq!(signal, Some(libc::SIGABRT), "{said}");
    assert!(said.contains("on purpose") && !said.contains("system call"), "{said}");
    let (signal, said) = run("works");
    assert_eq!((signal, said.as_str()), (None, "it worked\n"));
    println!("what a router does: ok");
}

fn run(name: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env::current_exe().expect("this program"));
    let output = command.arg(name).stdin(Stdio::null()).output().expect("started");
    (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn confined(name: &str) {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        told(info);
        process::abort();
    }));
    prctl::set_no_new_privs().expect("anybody may");
    confine().expect("with no_new_privs anybody may");
    // On another thread: it holds for all.
    let deed = FORBIDDEN.iter().find(|(known, ..)| *known == name).map_or(works as fn() -> bool, |(_, deed, _)| *deed);
    let deed = match name {
        "panics" => || panic!("on purpose"),
        "starts" => || Command::new("/bin/true").status().is_ok(),
        _ => deed,
    };
    assert!(thread::spawn(deed).join().expect("it ends"));
}

fn works() -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("it has one");
    let client = thread::spawn(move || TcpStream::connect(address).expect("connected"));
    let (server, _) = listener.accept().expect("accepted");
    client.join().expect("it ends").shutdown(std::net::Shutdown::Both).expect("shut down");
    // A policy forbade the connection while the router handed it out: the connection ends.
    let cookie = rustix::net::sockopt::socket_cookie(&server).expect("it has one");
    let peer = server.peer_addr().expect("it has one");
    destroy_tcp(address, peer, cookie).expect("these tests need root, to end connections");
    let mut sockets = 0;
    walk::sockets(rustix::process::getpid().as_raw_nonzero().get(), |found| {
        sockets += usize::from(found.copy().expect("copied").is_some());
    })
    .expect("walked");
    assert!(sockets >= 2);
    fs::read_to_string("/proc/self/status").expect("read");
    fs::read_dir("/proc/self/fd").expect("listed").for_each(|entry| drop(fs::read_link(entry.expect("read").path())));
    eprintln!("it worked");
    true
}

//! Calls that one thread makes and another carries out, on the kernel. Needs root.
//!
//! A filter is a thread's own, so each test has a thread that is trapped and supervises it from its own.

use std::ffi::c_long;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use slipway_sys::bpf::{Interruptions, ThreadCounts};
use slipway_sys::notify::{Call, Caller, Listener, Memory};
use slipway_sys::seccomp::{Filter, Trap, Verdict, When};

/// A thread under a filter with these traps, which does `work`.
fn trapped<T: Send + 'static>(traps: &[Trap], work: impl FnOnce() -> T + Send + 'static) -> (Listener, JoinHandle<T>) {
    let filter = Filter::trap(traps);
    let (tell, hear) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(filter.attach_and_listen()).expect("the test listens");
        work()
    });
    let listener = hear.recv().expect("the thread lives").expect("these tests need root, to attach a filter");
    (listener, thread)
}

fn next(listener: &Listener) -> Call {
    listener.receive().expect("receives").expect("the thread calls")
}

fn opened(listener: &Listener, call: &Call) -> Caller {
    let caller = Caller::open(call.tid).expect("it waits");
    assert!(listener.is_waiting(call.id));
    caller
}

fn memory(listener: &Listener, call: &Call) -> Memory {
    let memory = call.memory().expect("it waits");
    assert!(listener.is_waiting(call.id));
    memory
}

/// The environment names the user: without it, the program would first connect to a name service.
fn known(command: &mut Command) -> &mut Command {
    command.envs([("HOME", "/root"), ("SHELL", "/bin/sh"), ("USER", "root")])
}

#[allow(unsafe_code)]
fn raw(number: c_long, arguments: [u64; 4]) -> Result<i64, Option<i32>> {
    let [a, b, c, d] = arguments;
    // SAFETY: the tests pass addresses that are good for the call, or none that the kernel would follow.
    match unsafe { libc::syscall(number, a, b, c, d) } {
        -1 => Err(io::Error::last_os_error().raw_os_error()),
        result => Ok(result),
    }
}

#[allow(unsafe_code)]
fn owned(number: i64) -> OwnedFd {
    // SAFETY: the call that is answered with this number gave it to this thread alone.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(number).expect("a descriptor")) }
}

fn argument(file: impl AsFd) -> u64 {
    file.as_fd().as_raw_fd().unsigned_abs().into()
}

fn number(argument: u64) -> i32 {
    i32::try_from(argument).expect("a descriptor")
}

#[test]
fn an_answer_is_what_the_call_gives() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_listen)], || {
        [raw(libc::SYS_listen, [7, 8, 0, 0]), raw(libc::SYS_listen, [1; 4]), raw(libc::SYS_listen, [u64::MAX, 0, 0, 0])]
    });
    // Unsupported before Linux 6.6.
    if let Err(error) = listener.wake_on_the_callers_core() {
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
    let call = next(&listener);
    assert_eq!((call.number, call.args[0], call.args[1]), (libc::SYS_listen, 7, 8));
    assert_ne!(call.tid, 0);
    listener.answer(call.id, Ok(5)).expect("answers");
    assert!(!listener.is_waiting(call.id));
    let again = listener.answer(call.id, Ok(6)).expect_err("answered");
    assert!(matches!(again.raw_os_error(), Some(libc::ENOENT | libc::EINPROGRESS)), "{again}");

    let call = next(&listener);
    listener.answer(call.id, Err(Errno::CONNREFUSED)).expect("answers");
    let call = next(&listener);
    listener.go_on(call.id).expect("goes on");
    assert_eq!(thread.join().expect("ends"), [Ok(5), Err(Some(libc::ECONNREFUSED)), Err(Some(libc::EBADF))]);
    assert_eq!(listener.receive().expect("hears of the end"), None);
}

#[test]
fn a_descriptor_is_replaced_where_it_is() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_connect)], || {
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
            .expect("a socket");
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).expect("sets");
        let result = raw(libc::SYS_connect, [argument(&socket), 0, 0, 0]);
        let closes = rustix::io::fcntl_getfd(&socket).expect("reads");
        let mut stream = UnixStream::from(socket);
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).expect("the other end writes");
        (result, closes, heard)
    });
    let call = next(&listener);
    let caller = opened(&listener, &call);
    let at = number(call.args[0]);
    let theirs = caller.descriptor(at).expect("it is open");
    assert_eq!(rustix::net::sockopt::socket_domain(&theirs).expect("asks"), rustix::net::AddressFamily::INET);
    assert!(caller.describe(at).expect("reads").close_on_exec);
    assert_eq!(caller.descriptor(9999).expect_err("not open").raw_os_error(), Some(libc::EBADF));
    assert_eq!(caller.describe(9999).expect_err("not open").kind(), io::ErrorKind::NotFound);

    let (ours, end) = UnixStream::pair().expect("a pair");
    assert_eq!(listener.install(call.id, end.as_fd(), Some(at), false).expect("installs"), at);
    assert!(!caller.describe(at).expect("reads").close_on_exec);
    assert!(listener.is_waiting(call.id), "installing alone answers nothing");
    assert_eq!(listener.install(call.id, end.as_fd(), Some(at), true).expect("installs"), at);
    let beyond = listener.install(call.id, end.as_fd(), Some(i32::MAX), true).expect_err("beyond the limit");
    assert_eq!(beyond.raw_os_error(), Some(libc::EBADF));
    listener.answer(call.id, Ok(0)).expect("answers");
    (&ours).write_all(b"hello").expect("writes");
    let (result, closes, heard) = thread.join().expect("ends");
    assert_eq!((result, closes, &heard), (Ok(0), rustix::io::FdFlags::CLOEXEC, b"hello"));
}

#[test]
fn a_new_descriptor_is_the_answer() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_accept4)], || {
        let accepted = raw(libc::SYS_accept4, [0; 4]).map(owned).expect("accepts");
        let closes = rustix::io::fcntl_getfd(&accepted).expect("reads");
        UnixStream::from(accepted).write_all(b"hello").expect("writes");
        closes
    });
    let call = next(&listener);
    let (mut ours, end) = UnixStream::pair().expect("a pair");
    let number = listener.install(call.id, end.as_fd(), None, true).expect("installs");
    listener.answer(call.id, Ok(number.into())).expect("answers");
    assert!(!listener.is_waiting(call.id));
    drop(end);
    let mut heard = Vec::new();
    ours.read_to_end(&mut heard).expect("the other end closes");
    assert_eq!(heard, b"hello");
    assert_eq!(thread.join().expect("ends"), rustix::io::FdFlags::CLOEXEC);
}

#[test]
fn memory_is_copied_whole_or_not_at_all() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_getsockname)], || {
        let mut name = *b"old name";
        let result = raw(libc::SYS_getsockname, [0, name.as_mut_ptr().addr() as u64, 0, 0]);
        (result, name)
    });
    let call = next(&listener);
    let memory = memory(&listener, &call);
    let mut name = [0; 8];
    call.read(call.args[1], &mut name).expect("reads");
    assert_eq!(&name, b"old name");
    memory.write(call.args[1], b"new").expect("writes");
    memory.read(call.args[1], &mut name).expect("reads");
    assert_eq!(&name, b"new name");
    // Nothing, the first page, the kernel's half, the very end.
    for address in [0, 100, 1 << 63, 0xffff_8880_0000_0000, u64::MAX - 1, u64::MAX] {
        let faults = [call.read(address, &mut name), memory.read(address, &mut name), memory.write(address, &name)];
        for fault in faults {
            assert_eq!(fault.expect_err("not mapped").raw_os_error(), Some(libc::EFAULT), "{address:x}");
        }
    }
    listener.answer(call.id, Ok(0)).expect("answers");
    assert_eq!(thread.join().expect("ends"), (Ok(0), *b"new name"));
}

/// A child that is killed while its call waits: its memory and number are nobody's, and its call is void.
#[test]
fn a_caller_that_is_killed_is_gone() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_connect)], || {
        // The filter passes to children, and through exec.
        let connect = ["-c", "exec 3<>/dev/tcp/127.0.0.1/9"];
        known(Command::new("bash").args(connect)).status().expect("these tests need bash")
    });
    let call = next(&listener);
    let (caller, memory) = (opened(&listener, &call), memory(&listener, &call));
    let mut address = [0; 16];
    call.read(call.args[1], &mut address).expect("reads");
    assert_eq!(address[..8], [2, 0, 0, 9, 127, 0, 0, 1]);

    let pid = rustix::process::Pid::from_raw(call.tid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kills");
    assert!(!thread.join().expect("ends").success());
    assert!(!listener.is_waiting(call.id));
    let (_ours, end) = UnixStream::pair().expect("a pair");
    let gone = [
        listener.answer(call.id, Ok(0)).expect_err("gone"),
        listener.go_on(call.id).expect_err("gone"),
        listener.install(call.id, end.as_fd(), Some(3), false).expect_err("gone"),
        listener.install(call.id, end.as_fd(), None, false).expect_err("gone"),
    ];
    assert!(gone.iter().all(|error| error.raw_os_error() == Some(libc::ENOENT)), "{gone:?}");
    let faults = [
        call.read(call.args[1], &mut address),
        memory.read(call.args[1], &mut address),
        memory.write(call.args[1], &address),
    ];
    for fault in faults {
        assert_eq!(fault.expect_err("gone").raw_os_error(), Some(libc::EFAULT));
    }
    assert!(!caller.lives());
    assert_eq!(caller.descriptor(3).expect_err("gone").raw_os_error(), Some(libc::ESRCH));
    assert!(Caller::open(call.tid).is_err());
    assert_eq!(listener.receive().expect("hears"), None);
}

/// A signal's handler runs in the midst of a waiting call: the call gives EINTR, or is made anew under another id.
#[test]
fn a_caller_that_is_interrupted_calls_anew() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_accept4)], || {
        on_signal(libc::SIGUSR1, true);
        let restarted = raw(libc::SYS_accept4, [1; 4]);
        on_signal(libc::SIGUSR1, false);
        [restarted, raw(libc::SYS_accept4, [2; 4])]
    });
    let (_ours, end) = UnixStream::pair().expect("a pair");
    let call = next(&listener);
    interrupt(call.tid, libc::SIGUSR1);
    let again = next(&listener);
    assert_eq!((again.tid, again.args), (call.tid, call.args));
    assert_ne!(again.id, call.id);
    let gone = listener.install(call.id, end.as_fd(), None, false).expect_err("void");
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
    listener.answer(again.id, Ok(1)).expect("answers");

    let call = next(&listener);
    interrupt(call.tid, libc::SIGUSR1);
    assert_eq!(thread.join().expect("ends"), [Ok(1), Err(Some(libc::EINTR))]);
    let gone = listener.answer(call.id, Ok(1)).expect_err("void");
    assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
}

#[allow(unsafe_code)]
fn interrupt(tid: i32, signal: i32) {
    // SAFETY: no pointers; the thread has a handler for this signal. One that has ended is not disturbed.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, signal) };
}

/// Installs a handler that does nothing.
#[allow(unsafe_code)]
fn on_signal(signal: i32, restart: bool) {
    extern "C" fn nothing(_: i32) {}
    let handler = nothing as extern "C" fn(i32);
    // SAFETY: the handler does nothing, and the structure is plain data of the C library's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn what_an_epoll_instance_holds_is_known() {
    use rustix::event::epoll;

    let (listener, thread) = trapped(&[Trap::every(libc::SYS_listen)], || {
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC).expect("makes");
        let [held, other, gone] = std::array::from_fn(|_| UnixStream::pair().expect("a pair"));
        let add = |file: &UnixStream| {
            epoll::add(&instance, file, epoll::EventData::new_u64(7), epoll::EventFlags::IN).expect("adds");
        };
        add(&gone.0);
        // The file lives on in its copy, and so does its entry, under a number that is another file's then.
        let copy = rustix::io::dup(&gone.0).expect("copies");
        let mut number: OwnedFd = gone.0.into();
        rustix::io::dup2(&other.0, &mut number).expect("copies");
        add(&held.0);
        let files = [instance.as_fd(), held.0.as_fd(), number.as_fd(), copy.as_fd()];
        raw(libc::SYS_listen, files.map(argument))
    });
    let call = next(&listener);
    let caller = opened(&listener, &call);
    let [epoll, held, replaced, copy] = [0, 1, 2, 3].map(|index| number(call.args[index]));
    assert!(caller.polls(epoll, held).expect("asks"));
    assert!(!caller.polls(epoll, replaced).expect("asks"), "its number alone is there");
    assert!(!caller.polls(epoll, copy).expect("asks"), "it was added under another number");
    assert_eq!(caller.polls(held, copy).expect_err("no instance").raw_os_error(), Some(libc::EINVAL));
    assert_eq!(caller.polls(epoll, 9999).expect_err("not open").raw_os_error(), Some(libc::EBADF));
    listener.answer(call.id, Ok(0)).expect("answers");
    assert_eq!(thread.join().expect("ends"), Ok(0));
}

/// The filter catches no other call; a disguise in an argument's high half, which the kernel drops, helps nothing.
#[test]
fn traps_look_at_the_half_that_the_kernel_takes() {
    const HIGH: u64 = 1 << 32;
    let level = |level: i32| When::Argument { index: 1, mask: u32::MAX, values: vec![level.cast_unsigned()] };
    let traps = [
        Trap {
            call: libc::SYS_getsockopt,
            when: When::Pair { level: libc::SOL_SOCKET, names: vec![libc::SO_DOMAIN, libc::SO_PROTOCOL] },
            verdict: Verdict::Notify,
        },
        Trap { call: libc::SYS_getsockopt, when: level(libc::IPPROTO_TCP), verdict: Verdict::Errno(libc::ENOPROTOOPT) },
        Trap {
            call: libc::SYS_sendto,
            when: When::Argument { index: 3, mask: libc::MSG_FASTOPEN as u32, values: vec![libc::MSG_FASTOPEN as u32] },
            verdict: Verdict::Errno(libc::EOPNOTSUPP),
        },
        Trap { call: libc::SYS_io_uring_setup, when: When::Always, verdict: Verdict::Errno(libc::EPERM) },
    ];
    let (listener, thread) = trapped(&traps, || {
        let [socket, protocol] = [libc::SOL_SOCKET as u64, libc::SO_PROTOCOL as u64];
        let [domain, kind, tcp] = [libc::SO_DOMAIN as u64, libc::SO_TYPE as u64, libc::IPPROTO_TCP as u64];
        let fast = libc::MSG_FASTOPEN as u64;
        let option = |level, name| raw(libc::SYS_getsockopt, [u64::MAX, level, name, 0]);
        let send = |flags| raw(libc::SYS_sendto, [u64::MAX, 0, 0, flags]);
        [
            option(socket, domain),
            option(HIGH | socket, HIGH | protocol),
            option(socket, kind),
            option(0, domain),
            option(HIGH | tcp, kind),
            send(0),
            send(HIGH | fast | 0x4000),
            raw(libc::SYS_io_uring_setup, [0; 4]),
            // Another ABI's number for the same processor.
            raw(0x4000_0000 + libc::SYS_getsockopt, [0; 4]),
            raw(libc::SYS_getpid, [0; 4]).map(|_| 0),
        ]
    });
    for result in [100, 101] {
        let call = next(&listener);
        assert_eq!(call.number, libc::SYS_getsockopt);
        listener.answer(call.id, Ok(result)).expect("answers");
    }
    let [ebadf, enoprotoopt, eopnotsupp] = [libc::EBADF, libc::ENOPROTOOPT, libc::EOPNOTSUPP].map(|n| Err(Some(n)));
    let [eperm, enosys] = [libc::EPERM, libc::ENOSYS].map(|n| Err(Some(n)));
    let expected = [Ok(100), Ok(101), ebadf, ebadf, enoprotoopt, ebadf, eopnotsupp, eperm, enosys, Ok(0)];
    assert_eq!(thread.join().expect("ends"), expected);
    assert_eq!(listener.receive().expect("hears"), None);
}

/// The default profile's refusals come first, and a node's own supervisor finds the place taken.
#[test]
fn a_trap_goes_with_the_default_profile() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_connect), Trap::every(libc::SYS_mount)], || {
        Filter::container_default().attach().expect("attaches");
        let second = Filter::trap(&[]).attach_and_listen().expect_err("taken").raw_os_error();
        (raw(libc::SYS_mount, [0; 4]), raw(libc::SYS_connect, [0; 4]), second)
    });
    let call = next(&listener);
    assert_eq!(call.number, libc::SYS_connect);
    listener.answer(call.id, Err(Errno::NETUNREACH)).expect("answers");
    let results = (Err(Some(libc::EPERM)), Err(Some(libc::ENETUNREACH)), Some(libc::EBUSY));
    assert_eq!(thread.join().expect("ends"), results);
}

/// The listener's last copy closed: trapped calls fail, and do not hang.
#[test]
fn without_a_listener_calls_fail() {
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_connect)], || raw(libc::SYS_connect, [0; 4]));
    let call = next(&listener);
    let copy = Listener::from(rustix::io::dup(&listener).expect("copies"));
    drop(listener);
    assert!(copy.is_waiting(call.id), "a call outlives one of its listener's copies");
    drop(copy);
    assert_eq!(thread.join().expect("ends"), Err(Some(libc::ENOSYS)));
}

/// Signals at any moment: whoever gives knows which descriptors callers have and were not told of, or were told of and did not
/// hear.
#[test]
fn an_interrupted_caller_has_what_it_was_given_and_is_known_not_to_know() {
    const CALLS: usize = 2_000;
    let counts = ThreadCounts::create("test").expect("these tests need root, to make a BPF map");
    let counting = Interruptions::count(&[libc::SYS_accept4], &counts).expect("the kernel counts");
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_accept4)], move || {
        // With descriptors of its own, so that they can be counted.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).expect("copies the table");
        on_signal(libc::SIGUSR2, false);
        let count = || std::fs::read_dir("/proc/thread-self/fd").expect("reads").count();
        let before = count();
        let results: Vec<_> = (0..CALLS).map(|_| raw(libc::SYS_accept4, [0; 4]).map(owned).map(drop)).collect();
        let left = count() - before;
        let this = Caller::open(rustix::thread::gettid().as_raw_nonzero().get()).expect("it is this thread");
        (results, left, counts.of(this.as_fd()).expect("it lives"))
    });
    let (_ours, end) = UnixStream::pair().expect("a pair");
    let (signals, signalled) = mpsc::channel::<i32>();
    let disturber = thread::spawn(move || signalled.into_iter().for_each(|tid| interrupt(tid, libc::SIGUSR2)));
    let (mut told, mut untold) = (0_usize, 0_usize);
    while let Some(call) = listener.receive().expect("receives") {
        signals.send(call.tid).expect("the disturber lives");
        let given = listener.install(call.id, end.as_fd(), None, true);
        match given.and_then(|number| listener.answer(call.id, Ok(number.into())).inspect_err(|_| untold += 1)) {
            Ok(()) => told += 1,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
        }
    }
    drop(signals);
    let (results, left, interrupted) = thread.join().expect("ends");
    drop(counting);
    disturber.join().expect("ends");
    // A caller that a signal has woken goes on without an answer that comes before it has the filter's lock
    // (`seccomp_do_user_notification`, `kernel/seccomp.c`), and nobody is told.
    let heard = results.iter().filter(|result| result.is_ok()).count();
    assert!(heard <= told, "nobody hears what was not said");
    assert_eq!(left, untold + (told - heard));
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(Some(libc::EINTR)))));
    // But it is counted.
    assert_eq!(interrupted, (results.len() - heard) as u64);
}

/// While a process's first thread waits, another one execs a program and takes over its number: that program, which may be a
/// privileged one, is not to be read or written in the caller's place. What it calls itself is its own.
#[test]
fn a_program_that_takes_the_callers_number_is_not_reached() {
    const PROGRAM: &str = "
import os, socket, threading
def replace():
    os.read(0, 1)
    os.execvp('bash', ['bash', '-c', 'echo here; read -n 1; exec 3<>/dev/tcp/127.0.0.1/10'])
threading.Thread(target=replace).start()
socket.create_connection(('127.0.0.1', 9))
";
    let (tell, hear) = mpsc::channel();
    let (listener, thread) = trapped(&[Trap::every(libc::SYS_connect)], move || {
        let mut command = Command::new("python3");
        let command = known(command.args(["-c", PROGRAM])).stdin(Stdio::piped()).stdout(Stdio::piped());
        tell.send(command.spawn().expect("these tests need python3")).expect("the test listens");
    });
    let mut child = hear.recv().expect("the thread lives");
    thread.join().expect("ends");
    let call = next(&listener);
    assert_eq!(call.tid.unsigned_abs(), child.id(), "the first thread calls");
    let (caller, memory) = (opened(&listener, &call), memory(&listener, &call));
    let mut address = [0; 4];
    memory.read(call.args[1], &mut address).expect("reads");
    assert_eq!(address, [2, 0, 0, 9]);

    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"x").expect("writes");
    child.stdout.take().expect("piped").read_exact(&mut [0; 5]).expect("the program runs");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", call.tid)).expect("the number is in use");
    assert_eq!(name, "bash\n");
    assert!(!listener.is_waiting(call.id));
    assert_eq!(memory.read(call.args[1], &mut address).expect_err("gone").raw_os_error(), Some(libc::EFAULT));
    let mapped = std::fs::read_to_string(format!("/proc/{}/maps", call.tid)).expect("reads");
    let stack = mapped.lines().find(|line| line.ends_with("[stack]")).expect("it has one");
    let (start, _) = stack.split_once('-').expect("a range");
    let start = u64::from_str_radix(start, 16).expect("an address");
    assert_eq!(memory.write(start, &address).expect_err("not the caller's").raw_os_error(), Some(libc::EFAULT));

    input.write_all(b"x").expect("writes");
    let after = next(&listener);
    assert_eq!(after.tid, call.tid);
    after.read(after.args[1], &mut address).expect("reads");
    let reached = caller.descriptor(number(after.args[0]));
    assert!(listener.is_waiting(after.id));
    assert_eq!(address, [2, 0, 0, 10]);
    // A holder of callers learns that this one is another, or reaches the new one's.
    match reached {
        Ok(socket) => {
            let ours = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("reads");
            let theirs = std::fs::read_link(format!("/proc/{}/fd/{}", after.tid, after.args[0])).expect("reads");
            assert_eq!(ours, theirs);
        }
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESRCH)),
    }
    listener.answer(after.id, Err(Errno::CONNREFUSED)).expect("answers");
    child.wait().expect("ends");
}

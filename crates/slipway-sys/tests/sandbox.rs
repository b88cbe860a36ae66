//! The filter and the capability set as a program meets them. Each check forks, because neither can be taken back.
//! (No test harness: it would run threads, and a forked child of a threaded process may not do much.)

#![allow(unsafe_code)]

use std::io;

use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
use slipway_sys::clone::{Cloned, SingleThread, clone};
use slipway_sys::{caps, seccomp::Filter};

/// A call, what is expected of it under the filter, and why it matters.
type Call = (&'static str, fn() -> i64, Expected);

enum Expected {
    Errno(i32),
    Allowed,
}
use Expected::{Allowed, Errno};

fn call(number: i64, arg: [i64; 6]) -> i64 {
    // SAFETY: every call below either has no pointer arguments or passes null or invalid ones, which the kernel refuses.
    unsafe { libc::syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]) }
}

const CALLS: &[Call] = &[
    ("mount", || call(libc::SYS_mount, [0; 6]), Errno(libc::EPERM)),
    ("umount2", || call(libc::SYS_umount2, [0; 6]), Errno(libc::EPERM)),
    ("unshare user", || call(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0]), Errno(libc::EPERM)),
    ("setns", || call(libc::SYS_setns, [-1, 0, 0, 0, 0, 0]), Errno(libc::EPERM)),
    ("keyctl", || call(libc::SYS_keyctl, [0; 6]), Errno(libc::EPERM)),
    ("add_key", || call(libc::SYS_add_key, [0; 6]), Errno(libc::EPERM)),
    ("request_key", || call(libc::SYS_request_key, [0; 6]), Errno(libc::EPERM)),
    ("bpf", || call(libc::SYS_bpf, [0; 6]), Errno(libc::EPERM)),
    ("kexec_load", || call(libc::SYS_kexec_load, [0; 6]), Errno(libc::EPERM)),
    ("init_module", || call(libc::SYS_init_module, [0; 6]), Errno(libc::EPERM)),
    ("perf_event_open", || call(libc::SYS_perf_event_open, [0; 6]), Errno(libc::EPERM)),
    ("io_uring_setup", || call(libc::SYS_io_uring_setup, [0; 6]), Errno(libc::EPERM)),
    ("open_by_handle_at", || call(libc::SYS_open_by_handle_at, [0; 6]), Errno(libc::EPERM)),
    ("userfaultfd", || call(libc::SYS_userfaultfd, [0; 6]), Errno(libc::EPERM)),
    ("pidfd_getfd", || call(libc::SYS_pidfd_getfd, [-1, 0, 0, 0, 0, 0]), Errno(libc::EPERM)),
    ("reboot", || call(libc::SYS_reboot, [0; 6]), Errno(libc::EPERM)),
    ("settimeofday", || call(libc::SYS_settimeofday, [0; 6]), Errno(libc::EPERM)),
    ("clone3 (flags cannot be read)", || call(libc::SYS_clone3, [0; 6]), Errno(libc::ENOSYS)),
    (
        "clone with a namespace",
        || call(libc::SYS_clone, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0]),
        Errno(libc::EPERM),
    ),
    ("a call of the future", || call(1000, [0; 6]), Errno(libc::ENOSYS)),
    ("a vsock socket", || call(libc::SYS_socket, [libc::AF_VSOCK.into(), 1, 0, 0, 0, 0]), Errno(libc::EPERM)),
    ("an AF_ALG socket", || call(libc::SYS_socket, [libc::AF_ALG.into(), 5, 0, 0, 0, 0]), Errno(libc::EPERM)),
    // Only the low half of a domain counts in the kernel; the high half must not get one past the filter.
    (
        "a vsock socket in disguise",
        || call(libc::SYS_socket, [i64::from(libc::AF_VSOCK) | (1 << 32), 1, 0, 0, 0, 0]),
        Errno(libc::EPERM),
    ),
    ("personality ADDR_NO_RANDOMIZE", || call(libc::SYS_personality, [0x4_0000, 0, 0, 0, 0, 0]), Errno(libc::EPERM)),
    ("personality, asking", || call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]), Allowed),
    ("an IPv4 socket", || call(libc::SYS_socket, [libc::AF_INET.into(), 1, 0, 0, 0, 0]), Allowed),
    ("a netlink socket", || call(libc::SYS_socket, [libc::AF_NETLINK.into(), 3, 0, 0, 0, 0]), Allowed),
    ("getpid", || call(libc::SYS_getpid, [0; 6]), Allowed),
    ("ptrace traceme", || call(libc::SYS_ptrace, [0; 6]), Allowed),
    ("chroot to nowhere", || call(libc::SYS_chroot, [0; 6]), Errno(libc::EFAULT)),
];

fn main() {
    let file = std::env::args_os().next().expect("a name");
    slipway_sys::exe::shield().expect("root may mount");
    in_child("this program's file cannot be changed through a process", || {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        let error = std::fs::set_permissions("/proc/self/exe", mode).expect_err("read-only");
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        // (Busy first, for as long as it runs.)
        std::fs::OpenOptions::new().write(true).open("/proc/self/exe").expect_err("read-only");
        let named = std::env::args_os().next().expect("a name");
        assert_eq!(slipway_sys::exe::path().expect("it is there"), std::path::PathBuf::from(named));
    });
    assert!(std::path::Path::new(&file).is_absolute(), "the file's path replaces whatever name was used");
    in_child("filtered calls", || {
        Filter::container_default().attach().expect("root may attach a filter without no_new_privs");
        let mut wrong = 0;
        for (name, attempt, expected) in CALLS {
            let result = attempt();
            let errno = io::Error::last_os_error().raw_os_error();
            let right = match expected {
                Allowed => result != -1,
                Errno(wanted) => result == -1 && errno == Some(*wanted),
            };
            if !right {
                wrong += 1;
                eprintln!("{name}: got {result}, errno {errno:?}");
            }
        }
        assert_eq!(wrong, 0);
    });
    in_child("an ordinary program under the filter", || {
        Filter::container_default().attach().expect("attach");
        let output =
            std::process::Command::new("sh").args(["-c", "echo a | cat; ls / | wc -l"]).output().expect("runs");
        assert!(output.status.success() && output.stdout.starts_with(b"a\n"), "{output:?}");
    });
    in_child("capabilities", || {
        caps::bound(caps::DEFAULT).expect("root may");
        caps::limit(caps::DEFAULT).expect("root may");
        let sets = capabilities(None).expect("readable");
        assert_eq!((sets.effective, sets.permitted), (caps::DEFAULT, caps::DEFAULT));
        assert_eq!(sets.inheritable, CapabilitySet::empty());
        assert!(!capability_is_in_bounding_set(CapabilitySet::MKNOD).expect("readable"));
        assert!(capability_is_in_bounding_set(CapabilitySet::NET_RAW).expect("readable"));
        // A program that root executes gets what the bounding set has, and no more.
        let status = std::process::Command::new("cat").arg("/proc/self/status").output().expect("runs").stdout;
        let status = String::from_utf8(status).expect("text");
        let expected = format!("{:016x}", caps::DEFAULT.bits());
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert!(status.contains(&format!("{set}:\t{expected}")), "{status}");
        }
    });
}

/// Runs `check` in a child of its own; a panic there fails the test.
fn in_child(name: &str, check: fn()) {
    let proof = SingleThread::check().expect("no harness, no threads");
    match clone(proof, nix::sched::CloneFlags::empty()).expect("clone") {
        Cloned::Child => {
            let failed = std::panic::catch_unwind(check).is_err();
            std::process::exit(i32::from(failed));
        }
        Cloned::Parent { pidfd, .. } => {
            let status = rustix::process::waitid(
                rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
                rustix::process::WaitIdOptions::EXITED,
            );
            let status = status.expect("our child").expect("ended");
            assert_eq!(status.exit_status(), Some(0), "{name}");
            println!("{name}: ok");
        }
    }
}

//! The system calls of a program in a node: moby's `profiles/seccomp/default_linux.go` (2026) with the capabilities of
//! [`crate::caps::DEFAULT`], read as a table. Left out as there: namespaces, mounts, keyrings, `bpf`,
//! `perf_event_open`, `io_uring`, modules, `kexec`, clocks, NUMA policy, `AF_ALG` and `AF_VSOCK`.

use std::ffi::c_long;

use super::bpf::Verdict;

/// On both processors.
#[rustfmt::skip]
const COMMON: &[c_long] = &[
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_adjtimex, libc::SYS_bind, libc::SYS_brk, libc::SYS_capget,
    libc::SYS_capset, libc::SYS_chdir, libc::SYS_clock_adjtime, libc::SYS_clock_getres, libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep, libc::SYS_close, libc::SYS_close_range, libc::SYS_connect, libc::SYS_copy_file_range,
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit,
    libc::SYS_exit_group, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fadvise64, libc::SYS_fallocate,
    libc::SYS_fanotify_mark, libc::SYS_fchdir, libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown,
    libc::SYS_fchownat, libc::SYS_fcntl, libc::SYS_fdatasync, libc::SYS_fgetxattr, libc::SYS_flistxattr,
    libc::SYS_flock, libc::SYS_fremovexattr, libc::SYS_fsetxattr, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync,
    libc::SYS_ftruncate, libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_getcpu, libc::SYS_getcwd,
    libc::SYS_getdents64, libc::SYS_getegid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getgroups,
    libc::SYS_getitimer, libc::SYS_getpeername, libc::SYS_getpgid, libc::SYS_getpid, libc::SYS_getppid,
    libc::SYS_getpriority, libc::SYS_getrandom, libc::SYS_getresgid, libc::SYS_getresuid, libc::SYS_get_robust_list,
    libc::SYS_getrusage, libc::SYS_getsid, libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_gettid,
    libc::SYS_gettimeofday, libc::SYS_getuid, libc::SYS_getxattr, libc::SYS_inotify_add_watch, libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch, libc::SYS_io_cancel, libc::SYS_ioctl, libc::SYS_io_destroy, libc::SYS_io_getevents,
    libc::SYS_ioprio_get, libc::SYS_ioprio_set, libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_kill,
    libc::SYS_landlock_add_rule, libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self,
    libc::SYS_lgetxattr, libc::SYS_linkat, libc::SYS_listen, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_lremovexattr, libc::SYS_lseek, libc::SYS_lsetxattr, libc::SYS_madvise, libc::SYS_membarrier,
    libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_mincore, libc::SYS_mkdirat, libc::SYS_mknodat,
    libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_mlockall, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify, libc::SYS_mq_open, libc::SYS_mq_timedreceive, libc::SYS_mq_timedsend, libc::SYS_mq_unlink,
    libc::SYS_mremap, libc::SYS_msgctl, libc::SYS_msgget, libc::SYS_msgrcv, libc::SYS_msgsnd, libc::SYS_msync,
    libc::SYS_munlock, libc::SYS_munlockall, libc::SYS_munmap, libc::SYS_name_to_handle_at, libc::SYS_nanosleep,
    libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_openat2, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2, libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_ppoll,
    libc::SYS_prctl, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_prlimit64,
    libc::SYS_process_mrelease, libc::SYS_pselect6, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2,
    libc::SYS_read, libc::SYS_readahead, libc::SYS_readlinkat, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmmsg,
    libc::SYS_recvmsg, libc::SYS_remap_file_pages, libc::SYS_removexattr, libc::SYS_renameat2,
    libc::SYS_restart_syscall, libc::SYS_rseq, libc::SYS_rt_sigaction, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_tgsigqueueinfo, libc::SYS_sched_getaffinity, libc::SYS_sched_getattr,
    libc::SYS_sched_getparam, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getscheduler, libc::SYS_sched_rr_get_interval, libc::SYS_sched_setaffinity, libc::SYS_sched_setattr,
    libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_sched_yield, libc::SYS_seccomp, libc::SYS_semctl,
    libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop, libc::SYS_sendfile, libc::SYS_sendmmsg, libc::SYS_sendmsg,
    libc::SYS_sendto, libc::SYS_setfsgid, libc::SYS_setfsuid, libc::SYS_setgid, libc::SYS_setgroups,
    libc::SYS_setitimer, libc::SYS_setpgid, libc::SYS_setpriority, libc::SYS_setregid, libc::SYS_setresgid,
    libc::SYS_setresuid, libc::SYS_setreuid, libc::SYS_set_robust_list, libc::SYS_setsid, libc::SYS_setsockopt,
    libc::SYS_set_tid_address, libc::SYS_setuid, libc::SYS_setxattr, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_shmdt,
    libc::SYS_shmget, libc::SYS_shutdown, libc::SYS_sigaltstack, libc::SYS_signalfd4, libc::SYS_socketpair,
    libc::SYS_splice, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_sync, libc::SYS_syncfs,
    libc::SYS_sysinfo, libc::SYS_tee, libc::SYS_tgkill, libc::SYS_timer_create, libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun, libc::SYS_timer_gettime, libc::SYS_timer_settime, libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime, libc::SYS_timerfd_settime, libc::SYS_times, libc::SYS_tkill, libc::SYS_truncate,
    libc::SYS_umask, libc::SYS_uname, libc::SYS_unlinkat, libc::SYS_utimensat, libc::SYS_vmsplice, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_write, libc::SYS_writev, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_ptrace, libc::SYS_chroot,
];

/// Newer than the libc crate's tables. From 424 on, numbers are the same on every processor.
const NEW: &[c_long] = &[
    451, // cachestat
    452, // fchmodat2
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    457, // statmount
    458, // listmount
    462, // mseal
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
];

/// Calls that only x86 has, most of them superseded.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OWN: &[c_long] = &[
    libc::SYS_access, libc::SYS_alarm, libc::SYS_chmod, libc::SYS_chown, libc::SYS_creat, libc::SYS_dup2,
    libc::SYS_epoll_create, libc::SYS_epoll_ctl_old, libc::SYS_epoll_wait, libc::SYS_epoll_wait_old, libc::SYS_eventfd,
    libc::SYS_fork, libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp, libc::SYS_getrlimit,
    libc::SYS_get_thread_area, libc::SYS_inotify_init, libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat,
    libc::SYS_mkdir, libc::SYS_mknod, libc::SYS_open, libc::SYS_pause, libc::SYS_pipe, libc::SYS_poll,
    libc::SYS_readlink, libc::SYS_rename, libc::SYS_renameat, libc::SYS_rmdir, libc::SYS_select, libc::SYS_setrlimit,
    libc::SYS_set_thread_area, libc::SYS_signalfd, libc::SYS_stat, libc::SYS_symlink, libc::SYS_sync_file_range,
    libc::SYS_time, libc::SYS_unlink, libc::SYS_utime, libc::SYS_utimes, libc::SYS_vfork,
    libc::SYS_arch_prctl, libc::SYS_modify_ldt,
    333, // io_pgetevents
    335, // uretprobe
];

/// Numbers that the libc crate's table for this processor lacks (`include/uapi/asm-generic/unistd.h`).
#[cfg(target_arch = "aarch64")]
const OWN: &[c_long] = &[
    38,  // renameat
    84,  // sync_file_range
    163, // getrlimit
    164, // setrlimit
    292, // io_pgetevents
];

/// Domains that `socket(2)` may name: all that the kernel still has but `AF_ALG` and `AF_VSOCK`.
#[rustfmt::skip]
const SOCKET_DOMAINS: &[i32] = &[
    libc::AF_UNIX, libc::AF_INET, libc::AF_AX25, libc::AF_IPX, libc::AF_APPLETALK, libc::AF_NETROM, libc::AF_BRIDGE,
    libc::AF_ATMPVC, libc::AF_X25, libc::AF_INET6, libc::AF_ROSE, libc::AF_NETBEUI, libc::AF_SECURITY, libc::AF_KEY,
    libc::AF_NETLINK, libc::AF_PACKET, libc::AF_ASH, libc::AF_RDS, libc::AF_SNA, libc::AF_PPPOX, libc::AF_LLC,
    libc::AF_IB, libc::AF_MPLS, libc::AF_CAN, libc::AF_TIPC, libc::AF_BLUETOOTH, libc::AF_IUCV, libc::AF_RXRPC,
    libc::AF_PHONET, libc::AF_IEEE802154, libc::AF_NFC,
    41, // AF_KCM
    42, // AF_QIPCRTR
    43, // AF_SMC
    libc::AF_XDP,
    45, // AF_MCTP
];

/// `personality(2)`: Linux, Linux with `UNAME26` off or on (`PER_LINUX32`), and the question what it is now.
const PERSONALITIES: &[u32] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

const NEW_NAMESPACE: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// The whole table.
pub(super) fn calls() -> Vec<(u32, Verdict)> {
    let allowed = [COMMON, NEW, OWN].into_iter().flatten().map(|&number| (number, Verdict::Allow));
    let domains = SOCKET_DOMAINS.iter().map(|domain| domain.unsigned_abs()).collect();
    allowed
        .chain([
            (libc::SYS_socket, Verdict::FirstIn(domains)),
            (libc::SYS_personality, Verdict::FirstIn(PERSONALITIES.to_vec())),
            (libc::SYS_clone, Verdict::FirstWithout(NEW_NAMESPACE.cast_unsigned())),
            // Its flags lie behind a pointer, which a filter cannot read; libcs fall back to clone.
            (libc::SYS_clone3, Verdict::Errno(libc::ENOSYS)),
        ])
        // Every number in the tables is positive and small.
        .filter_map(|(number, verdict)| Some((u32::try_from(number).ok()?, verdict)))
        .collect()
}

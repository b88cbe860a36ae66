//! The child's side: from the clone to the program.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sched::{CloneFlags, setns};
use nix::unistd::{AccessFlags, Gid, Uid, access, execve, setgid, setgroups, setsid, setuid};
use rustix::fs::{Gid as FileGroup, Mode, OFlags, Uid as FileOwner, fchown, fcntl_setfl, fstat, open};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, Rlimit, ioctl_tiocsctty, setrlimit};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::Winsize;
use slipway_lab::model::Capability;
use slipway_sys::cgroup::Group;
use slipway_sys::process::end_with;
use slipway_sys::seccomp::Filter;
use slipway_sys::{clone::close_all_but, pty, signals};

use super::image::Image;
use super::message::{self, Failure};
use super::program::{Stream, Streams, User};
use super::pump::is_null;
use crate::confine::Confinement;

/// What the child takes along from its parent.
pub(super) struct Birth<'a> {
    pub(super) init: OwnedFd,
    pub(super) parent: OwnedFd,
    pub(super) link: OwnedFd,
    pub(super) groups: [Option<&'a Group>; 2],
    pub(super) confinement: &'a Confinement,
    /// Whether the node has a user namespace of its own.
    pub(super) own_user: bool,
    /// Beyond a default container's.
    pub(super) capabilities: &'a [Capability],
    /// Calls that wait for the host's router, in a node with bypasses, and whether it may use `io_uring`.
    pub(super) trap: Option<(Filter, bool)>,
    pub(super) files: Rlimit,
    pub(super) image: &'a Image,
    pub(super) streams: Streams<'a>,
}

/// Becomes the program, or says why not and exits. The code is for nobody: the parent hears the reason.
pub(super) fn run(birth: &Birth<'_>) -> ! {
    let Err(failure) = become_program(birth);
    message::send_failure(&birth.link, &failure);
    std::process::exit(1);
}

fn become_program(birth: &Birth<'_>) -> Result<Infallible, Failure> {
    for group in birth.groups.into_iter().flatten() {
        group.join_others().map_err(says("join the control groups"))?;
    }
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWCGROUP;
    setns(&birth.init, namespaces).map_err(says("enter the namespaces"))?;
    if birth.own_user {
        // From here on it has none of its capabilities over anything else than the node's network. The init is there already.
        setns(&birth.init, CloneFlags::CLONE_NEWUSER).map_err(says("enter the node's user namespace"))?;
    }
    match &birth.trap {
        None => birth.confinement.apply(birth.capabilities).map_err(says("drop privileges"))?,
        Some((trap, io_uring)) => {
            let listener = birth.confinement.apply_with(trap, *io_uring).map_err(says("drop privileges"))?;
            message::send_listener(&birth.link, &listener).map_err(says("have its host's router listen"))?;
        }
    }

    setsid().map_err(says("start a session"))?;
    connect_stdio(birth)?;
    if let Some(user) = birth.image.user {
        setgroups(&[]).map_err(says("leave all groups"))?;
        setgid(Gid::from_raw(user.gid)).map_err(says("change group"))?;
        setuid(Uid::from_raw(user.uid)).map_err(says("change user"))?;
    }
    // After the change of user, which would clear it.
    end_with(&birth.parent).map_err(says("tie the program to its caller"))?;
    let workdir = &birth.image.workdir;
    rustix::process::chdir(workdir.as_c_str())
        .map_err(says(&format!("change to folder `{}`", workdir.to_string_lossy())))?;
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    setrlimit(Resource::Nofile, birth.files).map_err(says("limit open files"))?;
    signals::reset().map_err(says("reset signals"))?;
    let kept = birth.streams.kept;
    for socket in kept {
        fcntl_setfd(socket, FdFlags::empty()).map_err(says("keep a socket"))?;
    }
    let numbers = kept.iter().chain([&birth.link]).map(AsRawFd::as_raw_fd);
    let open: Vec<RawFd> = [0, 1, 2].into_iter().chain(numbers).collect();
    close_all_but(&open).map_err(says("close descriptors"))?;
    Err(execute(birth.image))
}

fn connect_stdio(birth: &Birth<'_>) -> Result<(), Failure> {
    let terminal = birth.streams.size.map(|size| open_terminal(birth, size)).transpose()?;
    // Out of the way of 0, 1 and 2 first, since they may be each other's.
    let clear = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, 3).map_err(says("duplicate a descriptor"));
    let mut connected = Vec::with_capacity(3);
    for stream in birth.streams.each {
        connected.push(match (stream, &terminal) {
            (Stream::Pipe(pipe), _) => {
                if let Some(user) = birth.image.user {
                    // It may open /dev/stdout, which stands for this.
                    own(pipe, user).map_err(says("own a pipe"))?;
                }
                clear(pipe)?
            }
            (Stream::Terminal, Some(terminal)) => clear(terminal.as_fd())?,
            (Stream::Null | Stream::Terminal, _) => {
                clear(open_null().map_err(says("open the node's /dev/null"))?.as_fd())?
            }
        });
    }
    let connect = || {
        dup2_stdin(&connected[0])?;
        dup2_stdout(&connected[1])?;
        dup2_stderr(&connected[2])
    };
    connect().map_err(says("connect standard input and output"))
}

/// Opens a terminal of the node's and passes its outside to the parent. One that nothing is typed on only shows.
fn open_terminal(birth: &Birth<'_>, size: Winsize) -> Result<OwnedFd, Failure> {
    let pair = pty::open_here().map_err(says("open a terminal"))?;
    pty::set_size(pair.terminal.as_fd(), size).map_err(says("size the terminal"))?;
    if matches!(birth.streams.each[0], Stream::Terminal) {
        ioctl_tiocsctty(&pair.terminal).map_err(says("take the terminal"))?;
    } else {
        pty::show_only(pair.terminal.as_fd()).map_err(says("set the terminal up"))?;
    }
    if let Some(user) = birth.image.user {
        own(pair.terminal.as_fd(), user).map_err(says("own the terminal"))?;
    }
    message::send_terminal(&birth.link, pair.master.as_fd()).map_err(says("pass the terminal on"))?;
    Ok(pair.terminal)
}

fn own(file: BorrowedFd<'_>, user: User) -> rustix::io::Result<()> {
    fchown(file, Some(FileOwner::from_raw(user.uid)), Some(FileGroup::from_raw(user.gid)))
}

/// The node's own null device. The node may have put anything in its place, so nothing on the way can block, and what was
/// opened is looked at before it is used.
fn open_null() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let null = open("/dev/null", flags, Mode::empty())?;
    if !is_null(&fstat(&null)?) {
        return Err(io::Error::other("it is not the null device"));
    }
    fcntl_setfl(&null, OFlags::empty())?;
    Ok(null)
}

/// Tries each path, as `execvp(3)` does: one that may not be executed counts only if no other can be.
fn execute(image: &Image) -> Failure {
    use nix::errno::Errno;
    let mut denied = None;
    for path in &image.paths {
        let Err(error) = execve(path, &image.argv, &image.env);
        let at = path.to_string_lossy();
        match error {
            Errno::ENOENT | Errno::ENOTDIR if access(path.as_c_str(), AccessFlags::F_OK).is_ok() => {
                return Failure::NotExecutable(format!(
                    "{at} is there, but its interpreter is not\nHint: the node's image lacks what the first line (#!) names, or the program's dynamic loader"
                ));
            }
            Errno::ENOENT | Errno::ENOTDIR => {}
            Errno::EACCES => denied = Some(at.into_owned()),
            Errno::ENOEXEC => {
                return Failure::NotExecutable(format!(
                    "{at} is not a program for this machine\nHint: a script needs a first line such as #!/bin/sh"
                ));
            }
            other => return Failure::NotExecutable(format!("{at}: {}", other.desc())),
        }
    }
    match denied {
        Some(at) => Failure::NotExecutable(format!("{at}: permission denied\nHint: chmod +x, and look for a noexec mount")),
        None if image.paths.len() == 1 => Failure::NotFound(": no such file".to_owned()),
        None => Failure::NotFound(": it is in no folder of the node's PATH\nHint: programs come from the node's image; `slipway exec NODE -- ls /usr/bin` shows what it has".to_owned()),
    }
}

fn says<E: Display>(doing: &str) -> impl FnOnce(E) -> Failure {
    let doing = doing.to_owned();
    move |error| Failure::Start(doing, error.to_string())
}

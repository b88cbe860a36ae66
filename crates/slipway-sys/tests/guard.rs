//! Sockets that were made in a control group and are used outside it. Needs root and a mounted control group hierarchy of
//! version 2.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, connect_unspec, getpeername, getsockname, listen,
    sendto, socket, socketpair,
};
use slipway_sys::bpf::{FreeNumber, FreeOption, FreeOptions, GuardedOptions, SocketGuard, SocketStorage};
use slipway_sys::sockopt::{self, Name};

/// A group of the test's own.
struct Group {
    top: PathBuf,
    path: PathBuf,
    /// The control group that this process came from.
    home: PathBuf,
}

impl Group {
    fn create() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("version 2 is mounted");
        let top = PathBuf::from(mount.split(' ').nth(4).expect("where"));
        let own = fs::read_to_string("/proc/self/cgroup").expect("/proc");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("in version 2").to_owned();
        let path = top.join(format!("slipway-guard-{}", std::process::id()));
        fs::create_dir(&path).expect("root may");
        Self { home: top.join(own), top, path }
    }

    fn enter(&self) {
        join(&self.path);
    }

    fn leave(&self) {
        // With controllers given to its children, a group takes no process back.
        if fs::write(self.home.join("cgroup.procs"), "0").is_err() {
            join(&self.top);
        }
    }
}

fn join(group: &Path) {
    fs::write(group.join("cgroup.procs"), "0").expect("root may");
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leave();
        let _ = fs::remove_dir(&self.path);
    }
}

fn tcp(family: AddressFamily) -> OwnedFd {
    socket(family, SocketType::STREAM, None).expect("a socket")
}

const ANY: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

const OPTIONS: GuardedOptions<'_> =
    GuardedOptions { levels: &[libc::IPPROTO_TCP], names: &[&[libc::SO_MARK], &[libc::SO_PRIORITY]], free: None };

fn set(socket: impl AsFd, level: i32, name: i32) -> io::Result<()> {
    sockopt::set(socket, Name { level, name }, &1_i32.to_ne_bytes())
}

/// One test, because its whole process moves.
#[test]
fn sockets_of_a_group_are_connected_and_bound_by_it_alone() {
    let listeners = ANY.map(|at| TcpListener::bind(at).expect("binds"));
    let addresses = [0, 1].map(|index: usize| listeners[index].local_addr().expect("bound"));
    let families = [AddressFamily::INET, AddressFamily::INET6];

    let group = Group::create();
    let folder = File::open(&group.path).expect("opens");
    group.enter();
    let before = families.map(tcp);
    let guard = SocketGuard::attach(folder.as_fd(), OPTIONS).expect("root may");
    let after = families.map(tcp);
    let (pair, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).expect("a pair");
    // In the group, all goes as ever.
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
    let own_address = own.local_addr().expect("bound");
    let connected = addresses.map(|address| TcpStream::connect(address).expect("connects"));
    group.leave();

    let any: [SocketAddr; 2] = ANY.map(|at| at.parse().expect("an address"));
    let nothing: [SocketAddr; 2] = ["0.0.0.0:0", "[::]:0"].map(|at| at.parse().expect("an address"));
    for index in [0, 1] {
        for socket in [&before[index], &after[index]] {
            assert_eq!(bind(socket, &any[index]), Err(Errno::PERM));
            assert_eq!(connect(socket, &addresses[index]), Err(Errno::PERM));
        }
        let socket = &connected[index];
        let name = getsockname(socket).expect("it has one");
        assert_eq!(SocketAddr::try_from(name).expect("of IP"), nothing[index]);
        let peer = getpeername(socket).expect("it has one").expect("connected");
        assert_eq!(SocketAddr::try_from(peer).expect("of IP"), nothing[index]);
        let denied = Some(libc::EPERM);
        for (level, name) in [(libc::IPPROTO_TCP, libc::TCP_NODELAY), (libc::SOL_SOCKET, libc::SO_PRIORITY)] {
            assert_eq!(set(socket, level, name).expect_err("guarded").raw_os_error(), denied);
        }
        set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE).expect("not guarded");
        // Taken off its connection, a socket gets no other.
        connect_unspec(socket).expect("no hook there");
        assert_eq!(connect(socket, &addresses[index]), Err(Errno::PERM));
        let at_once = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
        assert_eq!(sendto(socket, b"hello", at_once, &addresses[index]), Err(Errno::PERM));
        let copy = socket.try_clone().expect("copies");
        assert_eq!(bind(&copy, &any[index]), Err(Errno::PERM));
    }
    let options = [(libc::SOL_SOCKET, libc::SO_MARK), (libc::SOL_SOCKET, libc::SO_PRIORITY), (libc::IPPROTO_TCP, 1)];
    for (level, name) in options {
        assert_eq!(set(&pair, level, name).expect_err("guarded").raw_os_error(), Some(libc::EPERM));
    }
    // An accepted socket is of its listener's group, whoever accepts.
    let client = TcpStream::connect(own_address).expect("sockets of elsewhere are free");
    let (accepted, _) = own.accept().expect("accepts");
    connect_unspec(&accepted).expect("no hook there");
    assert_eq!(connect(&accepted, &addresses[0]), Err(Errno::PERM));
    connect_unspec(&client).expect("disconnects");
    connect(&client, &addresses[0]).expect("free again");

    // A connected socket can listen, and hears nobody.
    let deaf = [connected[0].as_fd(), connected[1].as_fd(), accepted.as_fd()];
    for socket in deaf {
        listen(socket, 1).expect("no hook there");
    }
    group.enter();
    let places = deaf.map(|socket| SocketAddr::try_from(getsockname(socket).expect("it has one")).expect("of IP"));
    group.leave();
    for place in places {
        let ip: IpAddr = if place.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let refused = TcpStream::connect((ip, place.port())).expect_err("deaf");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    // Back in the group, and without the guard: allowed.
    group.enter();
    connect(&after[0], &addresses[0]).expect("of the group");
    group.leave();
    drop(guard);
    connect(&before[1], &addresses[1]).expect("unguarded");

    free_options(&group, folder.as_fd());

    let nowhere =
        SocketGuard::attach(File::open("/").expect("opens").as_fd(), OPTIONS).expect_err("no group").to_string();
    let bad = io::Error::from_raw_os_error(libc::EBADF).to_string();
    assert!(nowhere.contains(&bad) && nowhere.starts_with("attach BPF program socket_guard"), "{nowhere}");
}

/// Some options of a level that is guarded are not. A pair's are written down.
fn free_options(group: &Group, folder: BorrowedFd<'_>) {
    let storage = SocketStorage::create("test", 16).expect("root may");
    let options = [
        FreeOption { name: libc::TCP_NODELAY, at: 4, number: FreeNumber::Switch },
        FreeOption { name: libc::TCP_KEEPIDLE, at: 12, number: FreeNumber::Within(1, 32767) },
    ];
    let free = FreeOptions { level: libc::IPPROTO_TCP, options: &options, storage: &storage };
    let _guard = SocketGuard::attach(folder, GuardedOptions { free: Some(free), ..OPTIONS }).expect("Linux 5.18");
    group.enter();
    let tcp = tcp(AddressFamily::INET);
    let (known, unknown) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).expect("a pair");
    group.leave();
    storage.set(known.as_fd(), &[9; 16]).expect("set");

    let set = |socket: &OwnedFd, name, value: &[u8]| {
        let set = sockopt::set(socket, Name { level: libc::IPPROTO_TCP, name }, value);
        set.map_err(|error| error.raw_os_error().unwrap_or_default())
    };
    let int = |value: i32| value.to_ne_bytes();
    assert_eq!(set(&known, libc::TCP_NODELAY, &int(-5)), Ok(()));
    assert_eq!(set(&known, libc::TCP_KEEPIDLE, &int(32767)), Ok(()));
    for wrong in [int(0), int(32768), int(-1)] {
        assert_eq!(set(&known, libc::TCP_KEEPIDLE, &wrong), Err(libc::EINVAL));
    }
    assert_eq!(set(&known, libc::TCP_NODELAY, &[1; 3]), Err(libc::EINVAL));
    assert_eq!(set(&known, libc::TCP_MAXSEG, &int(1000)), Err(libc::EPERM));
    let value = [[9; 4], int(1), [9; 4], int(32767)].concat();
    assert_eq!(storage.get(known.as_fd()).expect("read"), Some(value));
    assert_eq!(set(&unknown, libc::TCP_NODELAY, &int(1)), Err(libc::EPERM));

    assert_eq!(set(&tcp, libc::TCP_NODELAY, &int(1)), Ok(()));
    let name = Name { level: libc::IPPROTO_TCP, name: libc::TCP_NODELAY };
    assert_eq!(sockopt::int(&tcp, name).expect("read"), 1, "the kernel has it");
    assert_eq!(set(&tcp, libc::TCP_KEEPIDLE, &int(0)), Err(libc::EINVAL));
    assert_eq!(set(&tcp, libc::TCP_MAXSEG, &int(1000)), Err(libc::EPERM));
}

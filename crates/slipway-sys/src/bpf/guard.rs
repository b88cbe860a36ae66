//! Sockets that only some processes may use as they like.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{LoadError, Object, SocketStorage};

const NAME: &str = "socket_guard";
static OBJECT: Object = Object::new(NAME, include_bytes!("../../bpf/guard.bpf.o"));
/// `MOST` and `MOST_FREE` of the program.
const MOST: usize = 64;
const MOST_FREE: usize = 16;
/// All but the one that refuses options.
const PROGRAMS: [&str; 9] =
    ["connect4", "connect6", "bind4", "bind6", "own_name4", "own_name6", "peer_name4", "peer_name6", "deafen"];

/// Guards every socket that was made in a version 2 control group, or accepted by one, whoever has it by now. Unless the calling
/// process is in that very group itself, `connect(2)` and `bind(2)` of IPv4 and IPv6 fail with `EPERM`, and so does setting
/// [`GuardedOptions`], whatever the socket's family; its names of IPv4 and IPv6 read as zero.
///
/// A socket's group is that of the process that made it, for good (`sk_cgrp_data`). Disconnecting (`AF_UNSPEC`) and
/// `listen(2)` pass: the kernel has no hook that refuses them. (At its security hooks, programs of a group were not asked about a
/// socket of the group that a process outside of it used, Linux 6.1.) But a socket that was connected once is a **deaf** listener:
/// nobody reaches it.
///
/// Lasts as long as this value; the sockets are unguarded afterwards.
#[derive(Debug)]
pub struct SocketGuard {
    _links: Vec<OwnedFd>,
}

/// Options that may not be set.
#[derive(Debug, Clone, Copy)]
pub struct GuardedOptions<'a> {
    /// All of these levels.
    pub levels: &'a [i32],
    /// These names of `SOL_SOCKET`.
    pub names: &'a [&'a [i32]],
    /// But for these.
    pub free: Option<FreeOptions<'a>>,
}

/// Options that anybody may set, though all others of their level are guarded. A socket of IPv4 or IPv6 gets them from the kernel. One
/// of another family, of whose level they are none, has a value in `storage`, in which they are written down; one without a value
/// is refused (`EPERM`). Needs Linux 5.18.
#[derive(Debug, Clone, Copy)]
pub struct FreeOptions<'a> {
    /// E.g. `IPPROTO_TCP`.
    pub level: i32,
    /// Each of them.
    pub options: &'a [FreeOption],
    /// The storage that keeps the options of a socket.
    pub storage: &'a SocketStorage,
}

/// An option that is a number, a C `int`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeOption {
    /// E.g. `TCP_NODELAY`.
    pub name: i32,
    /// Offset of the number in the value, in bytes: a multiple of four.
    pub at: i16,
    /// Values that the option may have.
    pub number: FreeNumber,
}

/// Values that a number may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeNumber {
    /// Any number; the program notes 1 for all but 0.
    Switch,
    /// None but these, the least of which is no less than 0. `EINVAL` otherwise.
    Within(i32, i32),
}

impl SocketGuard {
    /// Guards the sockets of the group whose folder is `group`, those that it has and those that it will have.
    ///
    /// # Errors
    /// [`LoadError`]; needs `CAP_BPF` and `CAP_NET_ADMIN`, and Linux 5.8.
    pub fn attach(group: BorrowedFd<'_>, options: GuardedOptions<'_>) -> Result<Self, LoadError> {
        let [levels, names] = [options.levels.to_vec(), options.names.concat()].map(|numbers| array(&numbers, MOST));
        let (levels, level_count) = levels?;
        let (names, name_count) = names?;
        let free = options.free.map_or(&[][..], |free| free.options);
        let fields: Vec<i32> = free.iter().flat_map(FreeOption::fields).collect();
        let (free_options, _) = array(&fields, FREE_FIELDS * MOST_FREE)?;
        let count = |count: usize| u32::try_from(count).unwrap_or_default().to_ne_bytes();
        let constants = [
            ("group", &number(group)?.to_ne_bytes()[..]),
            ("levels", &levels),
            ("level_count", &level_count),
            ("names", &names),
            ("name_count", &name_count),
            ("free_options", &free_options),
            ("free_count", &count(free.len())),
            ("free_level", &options.free.map_or(0, |free| free.level).to_ne_bytes()),
        ];
        let metadata: Vec<_> = options.free.iter().map(|free| ("notes", free.storage.as_fd())).collect();
        let ready = OBJECT.with(&constants, &metadata)?;
        let of_options = if options.free.is_some() { "set_option_or_note" } else { "set_option" };
        let links = PROGRAMS.iter().chain([&of_options]).map(|program| ready.attach(program, group));
        Ok(Self { _links: links.collect::<Result<_, _>>()? })
    }
}

/// Numbers in `struct free_option`.
const FREE_FIELDS: usize = 5;

impl FreeOption {
    /// `struct free_option`.
    fn fields(&self) -> [i32; FREE_FIELDS] {
        let (is_switch, least, most) = match self.number {
            // Every number, as one without a sign.
            FreeNumber::Switch => (1, 0, -1),
            FreeNumber::Within(least, most) => (0, least, most),
        };
        [self.name, self.at.into(), is_switch, least, most]
    }
}

/// An array of so many numbers, of which the first are these, and their count.
fn array(numbers: &[i32], most: usize) -> Result<(Vec<u8>, [u8; 4]), LoadError> {
    if numbers.len() > most {
        return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {most} guarded options"))));
    }
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.resize(4 * most, 0);
    Ok((bytes, u32::try_from(numbers.len()).unwrap_or_default().to_ne_bytes()))
}

fn refused(error: io::Error) -> LoadError {
    LoadError::Attach { name: NAME.to_owned(), error }
}

/// A group's number is its folder's inode's (`kernfs_id_ino`).
fn number(group: BorrowedFd<'_>) -> Result<u64, LoadError> {
    Ok(rustix::fs::fstat(group).map_err(|errno| refused(errno.into()))?.st_ino)
}

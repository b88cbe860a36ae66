//! Programs that the kernel runs on packets, and the maps through which they are steered (`bpf(2)`).
//!
//! Programs are written in C and compiled ahead ([`Object`]). The kernel checks and translates them when they are loaded, and
//! [`crate::netlink`] attaches them. Nothing is pinned. A program lives as long as its descriptor, or the filter that
//! it is attached as. A map lives as long as its descriptor, or a program that names it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

pub use guard::{FreeNumber, FreeOption, FreeOptions, GuardedOptions, SocketGuard};
pub use interruptions::{Interruptions, ThreadCounts};
pub use object::{Object, Ready};
pub use source::{SourceAddress, SourceAddresses};
pub use storage::SocketStorage;

#[allow(unsafe_code)]
mod call;
mod guard;
mod interruptions;
mod object;
mod source;
mod storage;

/// `BPF_MAP_TYPE_ARRAY_OF_MAPS`.
const ARRAY_OF_MAPS: u32 = 12;

/// Greatest length of the verifier's log, in bytes.
const LOG_BYTES: usize = 256 * 1024;

/// At least the size of `struct __sk_buff`, 192 bytes so far: the kernel takes a larger one whose end is zero, no smaller.
const CONTEXT_BYTES: usize = 256;

/// As an action: drop the packet (`include/uapi/linux/pkt_cls.h`).
pub const TC_ACT_SHOT: i32 = 2;
/// Where `struct __sk_buff` has the packet's mark.
const MARK: usize = 8;

/// The way in which a map finds entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// By keys of any form. An entry's memory is taken when it is made.
    Hash,
    /// By a number (4 bytes) from 0 on. All entries are there from the start, zero.
    Array,
    /// By keys of any form. Where it is full, entries that have not been used for long go. All memory is taken at the start.
    LruHash,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object is none, or does not fit its constants, maps or the kernel's types.
    #[error("read BPF object {name}: {error}")]
    Object {
        /// The object.
        name: String,
        /// The fault.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel does not take it.
    #[error(
        "load BPF program {name}: {error} (hint: this takes CAP_BPF and CAP_NET_ADMIN, at a tracepoint CAP_PERFMON){log}"
    )]
    Refused {
        /// The program.
        name: String,
        /// The error of the kernel.
        error: io::Error,
        /// The verifier's log, on lines of its own; empty where there is none.
        log: String,
    },
    /// The kernel does not attach it.
    #[error(
        "attach BPF program {name}: {error} (hint: this takes CAP_BPF and CAP_NET_ADMIN, at a tracepoint CAP_PERFMON, and Linux 5.7)"
    )]
    Attach {
        /// The program.
        name: String,
        /// The error of the kernel.
        error: io::Error,
    },
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
    hook: call::Hook,
}

/// The result of a program for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The program's return value, e.g. [`TC_ACT_SHOT`].
    pub action: i32,
    /// The packet's mark afterwards.
    pub mark: u32,
}

impl Map {
    /// Makes a map of at most `entries`, whose keys and values have these sizes in bytes. `name` shows in `bpftool map`: at most
    /// 15 letters, digits, `_` or `.`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` (or, before Linux 5.11, where `RLIMIT_MEMLOCK` is too low), `EINVAL` for sizes that the kernel
    /// does not take.
    pub fn create(kind: MapKind, name: &str, key_bytes: usize, value_bytes: usize, entries: u32) -> io::Result<Self> {
        // BPF_MAP_TYPE_HASH without BPF_F_NO_PREALLOC would take the memory of all entries at once, for each of a lab's
        // interfaces.
        let (map_type, map_flags) = match kind {
            MapKind::Hash => (1, 1),
            MapKind::Array => (2, 0),
            MapKind::LruHash => (9, 0),
        };
        let size = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
        let mut attributes = call::MapCreate {
            map_type,
            key_size: size(key_bytes)?,
            value_size: size(value_bytes)?,
            max_entries: entries,
            map_flags,
            map_name: object_name(name)?,
            ..call::MapCreate::default()
        };
        Ok(Self { descriptor: call::create_map(&mut attributes)?, key_bytes, value_bytes })
    }

    /// Makes an array of at most `entries` maps, empty at first. All are like `one`. Programs find them by a number (4 bytes).
    ///
    /// # Errors
    /// As [`Map::create`].
    pub fn create_array_of_maps(name: &str, one: &Self, entries: u32) -> io::Result<Self> {
        let mut attributes = call::MapCreate {
            map_type: ARRAY_OF_MAPS,
            key_size: 4,
            value_size: 4,
            max_entries: entries,
            inner_map_fd: one.descriptor.as_raw_fd().cast_unsigned(),
            map_name: object_name(name)?,
            ..call::MapCreate::default()
        };
        Ok(Self { descriptor: call::create_map(&mut attributes)?, key_bytes: 4, value_bytes: 4 })
    }

    /// Makes an array of one entry, which programs may read, and nobody may write from now on.
    fn constants(name: &str, value: &[u8]) -> io::Result<Self> {
        /// `BPF_F_RDONLY_PROG`.
        const READ_ONLY: u32 = 1 << 7;
        let (key_bytes, value_bytes) = (4, value.len());
        let mut attributes = call::MapCreate {
            map_type: 2,
            key_size: 4,
            value_size: u32::try_from(value_bytes).map_err(|_| io::ErrorKind::InvalidInput)?,
            max_entries: 1,
            map_flags: READ_ONLY,
            map_name: object_name(name)?,
            ..call::MapCreate::default()
        };
        let map = Self { descriptor: call::create_map(&mut attributes)?, key_bytes, value_bytes };
        map.update(&[0; 4], value)?;
        call::freeze(map.as_fd())?;
        Ok(map)
    }

    /// Puts a map into an array of maps, which keeps it.
    ///
    /// # Errors
    /// `E2BIG` where the array has no such entry, `EINVAL` for a map that is not like its others.
    pub fn put(&self, number: u32, map: &Self) -> io::Result<()> {
        self.update(&number.to_ne_bytes(), &map.descriptor.as_raw_fd().to_ne_bytes())
    }

    /// Sets the value of `key`, whatever it was. Programs see the old value or the new; where the value is larger than a
    /// machine word, an array's may be seen half changed, a hash's not.
    ///
    /// # Errors
    /// `InvalidInput` for sizes that are not the map's, `E2BIG` where it is full or, for an array, has no such entry.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key)?;
        if value.len() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        call::update(self.as_fd(), key, value)
    }

    /// Takes the entry of `key` away. False where there was none.
    ///
    /// # Errors
    /// `InvalidInput` for a size that is not the map's; `EINVAL` for an array, which keeps all its entries.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check(key)?;
        found(call::delete(self.as_fd(), key))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `InvalidInput` for a size that is not the map's.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check(key)?;
        let mut value = vec![0; self.value_bytes];
        Ok(found(call::lookup(self.as_fd(), key, &mut value))?.then_some(value))
    }

    fn check(&self, key: &[u8]) -> io::Result<()> {
        if key.len() == self.key_bytes { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Program {
    /// Loads a program. `name` shows in `bpftool prog`: at most 15 letters, digits, `_` or `.`.
    fn load(hook: call::Hook, name: &str, license: &CStr, code: &[u64]) -> Result<Self, LoadError> {
        let load = |log: &mut [u8]| call::load(hook, object_name(name)?, license, code, log);
        // The log costs the verifier time, so it is asked for only where it has something to say.
        load(&mut []).map(|descriptor| Self { descriptor, hook }).map_err(|error| {
            let mut log = vec![0; LOG_BYTES];
            let text = match load(&mut log) {
                Ok(_) => String::new(),
                Err(_) => CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default().into_owned(),
            };
            let log = if text.is_empty() { text } else { format!("; the verifier says:\n{}", text.trim_end()) };
            LoadError::Refused { name: name.to_owned(), error, log }
        })
    }

    /// Runs the program on a packet of its own making, attached or not: to see what it would do. `packet` starts with an
    /// Ethernet header. A redirect is only announced, not done.
    ///
    /// # Errors
    /// `EINVAL` where the packet is shorter than an Ethernet header.
    pub fn run(&self, packet: &[u8], mark: u32) -> io::Result<Outcome> {
        let mut context = [0; CONTEXT_BYTES];
        context[MARK..MARK + 4].copy_from_slice(&mark.to_ne_bytes());
        let action = call::test_run(self.as_fd(), packet, &mut context)?.cast_signed();
        let after = context[MARK..].first_chunk().copied().unwrap_or_default();
        Ok(Outcome { action, mark: u32::from_ne_bytes(after) })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn found(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn object_name(name: &str) -> io::Result<call::Name> {
    let mut padded = call::Name::default();
    // One byte stays zero, which ends the name.
    if name.len() >= padded.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a BPF object's name has at most 15 bytes"));
    }
    padded[..name.len()].copy_from_slice(name.as_bytes());
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    static OBJECT: Object = Object::new("test", include_bytes!("../bpf/test.bpf.o"));
    const TC_ACT_OK: i32 = 0;

    fn map(kind: MapKind, key_bytes: usize) -> Map {
        Map::create(kind, "test", key_bytes, 8, 2).expect("root may make a map")
    }

    #[test]
    fn hash_entries_come_and_go() {
        let map = map(MapKind::Hash, 16);
        let key = [7; 16];
        assert_eq!(map.lookup(&key).expect("looks"), None);
        map.update(&key, &[1; 8]).expect("sets");
        map.update(&key, &[2; 8]).expect("sets again");
        assert_eq!(map.lookup(&key).expect("looks"), Some(vec![2; 8]));
        map.update(&[8; 16], &[0; 8]).expect("a second fits");
        assert_eq!(map.update(&[9; 16], &[0; 8]).expect_err("a third does not").raw_os_error(), Some(libc::E2BIG));
        assert!(map.delete(&key).expect("deletes"));
        assert!(!map.delete(&key).expect("nothing there"));
    }

    #[test]
    fn sizes_are_checked_before_the_kernel_reads() {
        let map = map(MapKind::Array, 4);
        assert_eq!(map.lookup(&[0; 4]).expect("looks"), Some(vec![0; 8]));
        let wrong = [
            map.update(&[0; 3], &[0; 8]).expect_err("short key"),
            map.update(&[0; 4], &[0; 7]).expect_err("short value"),
            map.lookup(&[0; 5]).expect_err("long key"),
            map.delete(&[]).expect_err("no key"),
            Map::create(MapKind::Hash, "a_name_of_16_byt", 4, 4, 1).expect_err("long name"),
        ];
        assert!(wrong.iter().all(|error| error.kind() == io::ErrorKind::InvalidInput), "{wrong:?}");
    }

    #[test]
    fn a_program_reads_packet_and_map_and_writes_the_mark() {
        let denied = map(MapKind::Hash, 1);
        denied.update(&[0xaa], &[0; 8]).expect("sets");
        let ready = OBJECT.with(&[], &[("denied", denied.as_fd())]);
        let program = ready.and_then(|ready| ready.load("mark_unless_denied")).expect("the verifier takes it");
        let mut packet = [0; 64];
        assert_eq!(program.run(&packet, 5).expect("runs"), Outcome { action: TC_ACT_OK, mark: 9 });
        packet[0] = 0xaa;
        assert_eq!(program.run(&packet, 5).expect("runs"), Outcome { action: TC_ACT_SHOT, mark: 5 });
        denied.delete(&[0xaa]).expect("deletes");
        assert_eq!(program.run(&packet, 5).expect("runs").action, TC_ACT_OK, "the map steers a loaded program");
    }

    #[test]
    fn constants_differ_by_instance() {
        for result in [TC_ACT_OK, 1, TC_ACT_SHOT] {
            let program =
                OBJECT.with(&[("result", &result.to_ne_bytes())], &[]).and_then(|ready| ready.load("constant"));
            assert_eq!(program.expect("loads").run(&[0; 64], 0).expect("runs").action, result);
        }
    }

    #[test]
    fn faults_are_told_apart() {
        // The verifier's log comes too.
        let refused = OBJECT.with(&[], &[]).and_then(|ready| ready.load("mark_unless_denied")).expect_err("no map");
        let text = refused.to_string();
        assert!(
            text.starts_with("load BPF program test: ") && text.contains("not pointing to valid bpf_map"),
            "{text}"
        );
        let unknown =
            OBJECT.with(&[], &[]).and_then(|ready| ready.load("none")).expect_err("no such program").to_string();
        assert_eq!(unknown, "read BPF object test: there is no program `none`");
        for wrong in [("none", &[0; 4][..]), ("result", &[0; 8])] {
            assert!(matches!(OBJECT.with(&[wrong], &[]), Err(LoadError::Object { .. })), "{}", wrong.0);
        }
        assert!(matches!(Object::new("test", b"no object").with(&[], &[]), Err(LoadError::Object { .. })));
    }
}

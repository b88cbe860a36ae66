//! Values that are kept on the kernel's objects.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{call, found, object_name};

/// `BPF_F_NO_PREALLOC`: this kind of map knows no other way.
const NO_PREALLOC: u32 = 1;

/// The objects that have values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// `BPF_MAP_TYPE_SK_STORAGE` (`include/uapi/linux/bpf.h`). Named by a descriptor.
    Sockets = 24,
    /// `BPF_MAP_TYPE_TASK_STORAGE`. Named by a pidfd.
    Threads = 29,
}

/// A value on each of the kernel's objects that was given one.
#[derive(Debug)]
pub(super) struct Storage {
    descriptor: OwnedFd,
    bytes: usize,
}

impl Storage {
    pub(super) fn create(of: Of, name: &str, bytes: usize) -> io::Result<Self> {
        let size = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let types = call::load_types(&types(size))?;
        let mut attributes = call::MapCreate {
            map_type: of as u32,
            key_size: 4,
            value_size: size,
            map_flags: NO_PREALLOC,
            map_name: object_name(name)?,
            btf_fd: types.as_raw_fd().cast_unsigned(),
            btf_key_type_id: KEY,
            btf_value_type_id: VALUE,
            ..call::MapCreate::default()
        };
        Ok(Self { descriptor: call::create_map(&mut attributes)?, bytes })
    }

    /// `InvalidInput` where the descriptor is another map's.
    pub(super) fn take_over(of: Of, descriptor: OwnedFd) -> io::Result<Self> {
        let map = call::map_info(descriptor.as_fd())?;
        if map.map_type != of as u32 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a BPF map that is no such storage"));
        }
        Ok(Self { descriptor, bytes: map.value_size as usize })
    }

    pub(super) fn get(&self, object: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.bytes];
        Ok(found(call::lookup(self.as_fd(), &key(object), &mut value))?.then_some(value))
    }
}

impl AsFd for Storage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A value for each socket that got one. Whatever the socket's family, the value lives and is freed with the socket,
/// not with a descriptor of it or a process (`net/core/bpf_sk_storage.c`). Only who holds the storage's descriptor can
/// read or write it.
///
/// When the storage's last descriptor is closed, all its values are gone. Values are not passed on to accepted sockets.
#[derive(Debug)]
pub struct SocketStorage(Storage);

impl SocketStorage {
    /// Makes a storage of values of so many bytes. `name` shows in `bpftool map`: at most 15 letters, digits, `_` or `.`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `EINVAL` or `E2BIG` for a size that the kernel does not take (some 60 KiB is the most).
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        Storage::create(Of::Sockets, name, bytes).map(Self)
    }

    /// Bytes of each value.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The value on a socket.
    ///
    /// # Errors
    /// `ENOTSOCK` where it is none; before Linux 5.19 `EPERM` without `CAP_BPF`.
    pub fn get(&self, socket: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
        self.0.get(socket)
    }

    /// Sets the value on a socket, whatever it was. A reader meanwhile sees the old value or the new one.
    ///
    /// # Errors
    /// `InvalidInput` where the value does not have the storage's size, `ENOTSOCK` where it is no socket, `ENOMEM`
    /// where the socket has no room left (`net.core.optmem_max`). Before Linux 5.19, `EPERM` without `CAP_BPF`.
    pub fn set(&self, socket: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
        if value.len() != self.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        call::update(self.as_fd(), &key(socket), value)
    }

    /// Takes the value off a socket. False where there was none.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        found(call::delete(self.as_fd(), &key(socket)))
    }
}

impl AsFd for SocketStorage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<SocketStorage> for OwnedFd {
    fn from(storage: SocketStorage) -> Self {
        storage.0.descriptor
    }
}

impl TryFrom<OwnedFd> for SocketStorage {
    type Error = io::Error;

    /// Takes over a storage that another process made and passed on; `InvalidInput` where it is none.
    fn try_from(descriptor: OwnedFd) -> io::Result<Self> {
        Storage::take_over(Of::Sockets, descriptor).map(Self)
    }
}

/// An object is named by a descriptor of it, a C `int`.
fn key(object: BorrowedFd<'_>) -> [u8; 4] {
    object.as_raw_fd().to_ne_bytes()
}

// The types of [`types`], by where they stand there.
const KEY: u32 = 1;
const BYTE: u32 = 2;
const VALUE: u32 = 3;

/// The kernel's description of a storage: the types of its keys, `int`, and values, `unsigned char [bytes]`, as BTF
/// (Documentation/bpf/btf.rst).
fn types(bytes: u32) -> Vec<u8> {
    const MAGIC: u16 = 0xeb9f;
    const VERSION: u8 = 1;
    const HEADER: u32 = 24;
    const INT: u32 = 1 << 24;
    const ARRAY: u32 = 3 << 24;
    const SIGNED: u32 = 1 << 24;
    /// Where "int" and "unsigned char" begin.
    const NAMES: [u32; 2] = [1, 5];
    const STRINGS: &[u8; 19] = b"\0int\0unsigned char\0";

    let types = [
        // Name, kind, bytes, encoding and bits.
        [NAMES[0], INT, 4, SIGNED | 32].as_slice(),
        &[NAMES[1], INT, 1, 8],
        // No name, kind, no size; of what, what it is numbered by, how many.
        &[0, ARRAY, 0, BYTE, KEY, bytes],
    ]
    .concat();
    let [type_bytes, string_bytes] =
        [4 * types.len(), STRINGS.len()].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));

    let [magic0, magic1] = MAGIC.to_ne_bytes();
    let mut blob = vec![magic0, magic1, VERSION, 0];
    // After the header's own length: where types and strings lie, counted from its end.
    for number in [HEADER, 0, type_bytes, type_bytes, string_bytes].iter().chain(&types) {
        blob.extend(number.to_ne_bytes());
    }
    blob.extend(STRINGS);
    blob
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::*;

    fn storage() -> SocketStorage {
        SocketStorage::create("test", 8).expect("these tests need root, to make a BPF map")
    }

    fn keeps(storage: &SocketStorage, socket: impl AsFd) {
        let socket = socket.as_fd();
        assert_eq!(storage.get(socket).expect("looks"), None);
        storage.set(socket, &[1; 8]).expect("sets");
        storage.set(socket, &[2; 8]).expect("sets again");
        assert_eq!(storage.get(socket).expect("looks"), Some(vec![2; 8]));
        assert!(storage.remove(socket).expect("removes"));
        assert!(!storage.remove(socket).expect("nothing there"));
        storage.set(socket, &[3; 8]).expect("sets");
    }

    #[test]
    fn a_value_lives_with_its_socket() {
        let storage = storage();
        let (one, other) = UnixStream::pair().expect("a pair");
        keeps(&storage, &one);
        assert_eq!(storage.get(other.as_fd()).expect("looks"), None, "each end is a socket");
        let copy = one.try_clone().expect("copies");
        drop(one);
        assert_eq!(
            storage.get(copy.as_fd()).expect("looks"),
            Some(vec![3; 8]),
            "it is the socket's, not the descriptor's"
        );
    }

    #[test]
    fn a_value_is_gone_with_its_socket() {
        let storage = storage();
        // With descriptors of its own, so that no other test takes the number.
        let alone = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).expect("copies the table");
            let (one, _other) = UnixStream::pair().expect("a pair");
            let number = one.as_raw_fd();
            storage.set(one.as_fd(), &[1; 8]).expect("sets");
            drop(one);
            let mut anew = Vec::new();
            while anew.last().is_none_or(|last: &UnixDatagram| last.as_raw_fd() != number) {
                anew.push(UnixDatagram::unbound().expect("a socket"));
            }
            anew.last().map(|last| storage.get(last.as_fd()).expect("looks"))
        });
        assert_eq!(alone.join().expect("ends"), Some(None), "another socket at the same number");
    }

    #[test]
    fn sockets_of_every_kind_have_values() {
        let storage = storage();
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        keeps(&storage, &listener);
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        keeps(&storage, &client);
        let (accepted, _) = listener.accept().expect("accepts");
        keeps(&storage, &accepted);
        keeps(&storage, UdpSocket::bind("[::1]:0").expect("binds"));
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert_eq!(storage.get(file.as_fd()).expect_err("no socket").raw_os_error(), Some(libc::ENOTSOCK));
        let short = storage.set(client.as_fd(), &[0; 7]).expect_err("short");
        assert_eq!(short.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_storage_is_passed_on() {
        let storage = storage();
        let (one, _other) = UnixStream::pair().expect("a pair");
        storage.set(one.as_fd(), &[1; 8]).expect("sets");
        let copy = SocketStorage::try_from(storage.0.descriptor.try_clone().expect("copies")).expect("it is one");
        drop(storage);
        // A process that receives the descriptor needs no capability of its own.
        let seen = std::thread::spawn(move || {
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
            let seen = copy.get(one.as_fd());
            copy.set(one.as_fd(), &[2; 8])?;
            copy.remove(one.as_fd())?;
            seen
        });
        assert_eq!(seen.join().expect("ends").expect("from Linux 5.19 on"), Some(vec![1; 8]));

        let array = super::super::Map::create(super::super::MapKind::Array, "test", 4, 8, 1).expect("makes");
        let other = SocketStorage::try_from(array.descriptor).expect_err("another kind");
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput);
        SocketStorage::try_from(OwnedFd::from(std::fs::File::open("/dev/null").expect("opens"))).expect_err("no map");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        SocketStorage::create("test", 0).expect_err("nothing to keep");
        SocketStorage::create("test", 1 << 20).expect_err("too much");
        SocketStorage::create("test", 1 << 40).expect_err("far too much");
    }
}

//! `bpf(2)` itself: the one place where addresses are handed to the kernel.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::Program;

/// Where the kernel runs a program, as the section of its C function says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hook {
    /// `enum bpf_prog_type`.
    pub(super) program: u32,
    /// `enum bpf_attach_type`; 0 for programs that it does not tell apart.
    pub(super) attach: u32,
}

/// An object's name (`BPF_OBJ_NAME_LEN`): letters, digits, `_` and `.`, ended by a zero.
pub(super) type Name = [u8; 16];

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;
const LINK_CREATE: libc::c_int = 28;

/// The verifier stops with `EAGAIN` where a signal comes meanwhile (`do_check`, `kernel/bpf/verifier.c`). As often as libbpf tries.
const LOAD_ATTEMPTS: usize = 5;

// The attributes below are the starts of the anonymous structures in `union bpf_attr` (`include/uapi/linux/bpf.h`); the kernel
// takes what is left out as zero. None has padding of the compiler's, whose content would be anything.

/// Arguments of [`create_map`].
#[repr(C)]
#[derive(Default)]
pub(super) struct MapCreate {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) map_flags: u32,
    pub(super) inner_map_fd: u32,
    pub(super) numa_node: u32,
    pub(super) map_name: Name,
    pub(super) map_ifindex: u32,
    pub(super) btf_fd: u32,
    pub(super) btf_key_type_id: u32,
    pub(super) btf_value_type_id: u32,
}

/// The start of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
pub(super) struct MapInfo {
    pub(super) map_type: u32,
    pub(super) id: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
}

#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    btf_log_true_size: u32,
}

#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: Name,
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

/// Makes a map.
pub(super) fn create_map(attributes: &mut MapCreate) -> io::Result<OwnedFd> {
    // SAFETY: the attributes hold no addresses.
    unsafe { descriptor(MAP_CREATE, attributes) }
}

/// The kernel's description of a map. `EINVAL` where the descriptor is none of BPF's.
pub(super) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut info = MapInfo::default();
    let mut attributes = GetInfo {
        bpf_fd: map.as_raw_fd().cast_unsigned(),
        info_len: u32::try_from(size_of::<MapInfo>()).map_err(io::Error::other)?,
        info: (&raw mut info).addr() as u64,
    };
    // SAFETY: the kernel writes at most `info_len` bytes of `info`, which outlives the call. (Of another object of BPF's it writes
    // the same number of bytes, other numbers.)
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(info)
}

/// Loads a description of types (BTF).
pub(super) fn load_types(blob: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes = BtfLoad {
        btf: blob.as_ptr().addr() as u64,
        btf_size: u32::try_from(blob.len()).map_err(io::Error::other)?,
        ..BtfLoad::default()
    };
    // SAFETY: the address is that of the description, with its true length, and outlives the call.
    unsafe { descriptor(BTF_LOAD, &mut attributes) }
}

/// Copies the value of `key` to `value`. Both must have the map's sizes.
pub(super) fn lookup(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let mut element = Element::new(map, key, value.as_mut_ptr().addr());
    // SAFETY: the kernel reads the map's key size at `key` and writes its value size at `value`, which have those sizes.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut element) }.map(drop)
}

/// Sets the value of `key`. Both must have the map's sizes.
pub(super) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut element = Element::new(map, key, value.as_ptr().addr());
    // SAFETY: the kernel reads the map's key size at `key` and its value size at `value`, which have those sizes.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Takes away the entry of `key`, which must have the map's key size.
pub(super) fn delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let mut element = Element::new(map, key, 0);
    // SAFETY: the kernel reads the map's key size at `key`, which has that size.
    unsafe { bpf(MAP_DELETE_ELEM, &mut element) }.map(drop)
}

/// Lets nobody change a map from outside any more.
pub(super) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = map.as_raw_fd().cast_unsigned();
    // SAFETY: the attributes are the map's number alone.
    unsafe { bpf(MAP_FREEZE, &mut attributes) }.map(drop)
}

/// Loads a program; the verifier writes its log to `log` unless that is empty.
pub(super) fn load(hook: Hook, name: Name, license: &CStr, code: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let size = |length: usize| u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput);
    let mut attributes = ProgLoad {
        prog_type: hook.program,
        expected_attach_type: hook.attach,
        insn_cnt: size(code.len())?,
        insns: code.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        prog_name: name,
        ..ProgLoad::default()
    };
    if !log.is_empty() {
        (attributes.log_level, attributes.log_size) = (1, size(log.len())?);
        attributes.log_buf = log.as_mut_ptr().addr() as u64;
    }
    let mut attempts = 1..LOAD_ATTEMPTS;
    loop {
        // SAFETY: the addresses are those of the code, the licence's text with its zero, and the log, each with its true length;
        // all outlive the call.
        match unsafe { descriptor(PROG_LOAD, &mut attributes) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts.next().is_some() => {}
            result => return result,
        }
    }
}

/// Attaches a program to `target` as long as the descriptor that this gives is open.
pub(super) fn link(program: &Program, target: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let [prog_fd, target_fd] = [program.as_fd(), target].map(|descriptor| descriptor.as_raw_fd().cast_unsigned());
    let mut attributes = LinkCreate { prog_fd, target_fd, attach_type: program.hook.attach, flags: 0 };
    // SAFETY: the attributes hold no addresses.
    unsafe { descriptor(LINK_CREATE, &mut attributes) }
}

/// Attaches a program to the tracepoint of this name as long as the descriptor that this gives is open.
pub(super) fn trace(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    let name = tracepoint.as_ptr().addr() as u64;
    let mut attributes = RawTracepoint { name, prog_fd: program.as_raw_fd().cast_unsigned(), padding: 0 };
    // SAFETY: the address is that of a text with its zero, which outlives the call.
    unsafe { descriptor(RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// Runs a program once on `packet`; `context` is the start of its context, before and after. Gives what the program returned.
pub(super) fn test_run(program: BorrowedFd<'_>, packet: &[u8], context: &mut [u8]) -> io::Result<u32> {
    let size = |length: usize| u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput);
    let address = context.as_mut_ptr().addr() as u64;
    let mut attributes = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: size(packet.len())?,
        data_in: packet.as_ptr().addr() as u64,
        ctx_size_in: size(context.len())?,
        ctx_size_out: size(context.len())?,
        ctx_in: address,
        ctx_out: address,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads `packet` and reads, then writes, `context`, each with its true length; both outlive the call.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    Ok(attributes.retval)
}

impl Element {
    fn new(map: BorrowedFd<'_>, key: &[u8], value: usize) -> Self {
        Self {
            map_fd: map.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: key.as_ptr().addr() as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// A command whose answer is a descriptor.
///
/// # Safety
/// As [`bpf`]; `command` is one that gives a descriptor.
#[allow(unsafe_code)]
unsafe fn descriptor<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller says.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: on success the kernel made a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `attributes` is laid out as `command` wants, and the addresses in it are good for what the command does with them.
#[allow(unsafe_code)]
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes `attributes` within the size given; the rest is the caller's word.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(io::Error::other)
}

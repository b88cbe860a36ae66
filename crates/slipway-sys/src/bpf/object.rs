//! Programs compiled from C, `bpf/*.bpf.c`, as the objects that `scripts/bpf.sh` makes of them.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use aya_obj::generated::{bpf_attach_type as At, bpf_insn, bpf_prog_type as Type};
use aya_obj::{EbpfSectionKind, ProgramSection};

use super::call::Hook;
use super::{LoadError, Map, Program, call};

/// A map that is not given: the kernel refuses a program that uses it (`EBADF`).
const NO_MAP: RawFd = -1;

/// A compiled C file, as a static: a process reads it once, when it first needs it, and its children have what it read. It is
/// made [`Ready`] as often as its constants differ.
#[derive(Debug)]
pub struct Object {
    name: &'static str,
    bytes: &'static [u8],
    parsed: OnceLock<aya_obj::Object>,
}

/// An object with its constants and maps, whose programs can be loaded.
#[derive(Debug)]
pub struct Ready {
    name: &'static str,
    parsed: aya_obj::Object,
    /// The constants, which loaded programs keep.
    _constants: Vec<Map>,
}

impl Object {
    /// Of these bytes. `name` shows in `bpftool prog`: at most 15 letters, digits, `_` or `.`.
    #[must_use]
    pub const fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, bytes, parsed: OnceLock::new() }
    }

    /// Reads the object. If it names fields of kernel types, finds their places in the running kernel (CO-RE), which takes
    /// milliseconds.
    fn parsed(&self) -> Result<&aya_obj::Object, LoadError> {
        if let Some(parsed) = self.parsed.get() {
            return Ok(parsed);
        }
        let mut parsed = aya_obj::Object::parse(self.bytes).map_err(|error| wrong(self.name, error))?;
        if parsed.has_btf_relocations() {
            let kernel = aya_obj::btf::Btf::from_sys_fs().map_err(|error| wrong(self.name, error))?;
            parsed.relocate_btf(&kernel).map_err(|error| wrong(self.name, error))?;
        }
        // Loading does not need them, and each instance would copy them.
        (parsed.btf, parsed.btf_ext) = (None, None);
        Ok(self.parsed.get_or_init(|| parsed))
    }

    /// Sets constants (`const volatile` in C) by their names, in the processor's byte order, and maps by theirs. Constants that
    /// are not named stay as they are in C. A program cannot be loaded if a map that it uses is missing.
    ///
    /// # Errors
    /// [`LoadError`] where the bytes are no object, or the kernel does not describe its types (`CONFIG_DEBUG_INFO_BTF`); for
    /// constants that the object does not have in that size; and where the kernel refuses the map that holds them.
    pub fn with(&self, constants: &[(&str, &[u8])], maps: &[(&str, BorrowedFd<'_>)]) -> Result<Ready, LoadError> {
        let name = self.name;
        let mut parsed = self.parsed()?.clone();
        let globals: HashMap<&str, (&[u8], bool)> =
            constants.iter().map(|&(constant, bytes)| (constant, (bytes, true))).collect();
        parsed.patch_map_data(globals).map_err(|error| wrong(name, error))?;
        let parts = std::mem::take(&mut parsed.maps);
        let refused = |error| LoadError::Refused { name: name.to_owned(), error, log: String::new() };
        // The compiler may put some constants into sections of their own.
        let constants = parts.iter().filter(|(_, part)| part.section_kind() == EbpfSectionKind::Rodata);
        let constants: HashMap<&str, Map> = constants
            .map(|(part, map)| Ok((part.as_str(), Map::constants(name, map.data()).map_err(refused)?)))
            .collect::<Result<_, LoadError>>()?;
        let descriptors = parts.iter().map(|(part, map)| {
            let given = maps.iter().find(|(name, _)| name == part).map(|(_, map)| map.as_raw_fd());
            let own = constants.get(part.as_str()).map(|map| map.descriptor.as_raw_fd());
            (part.as_str(), given.or(own).unwrap_or(NO_MAP), map)
        });
        // All functions are inlined, so that no program calls another section.
        let no_text = HashSet::new();
        parsed.relocate_maps(descriptors, &no_text).map_err(|error| wrong(name, error))?;
        Ok(Ready { name, parsed, _constants: constants.into_values().collect() })
    }
}

impl Ready {
    /// Loads the program that this C function is.
    ///
    /// # Errors
    /// [`LoadError`]; with the verifier's log where the kernel refuses it.
    pub fn load(&self, function: &str) -> Result<Program, LoadError> {
        let none = || wrong(self.name, format!("there is no program `{function}`"));
        let program = self.parsed.programs.get(function).ok_or_else(none)?;
        let code = self.parsed.functions.get(&program.function_key()).ok_or_else(none)?;
        let hook =
            hook(&program.section).ok_or_else(|| wrong(self.name, format!("`{function}` is in no known section")))?;
        let code: Vec<u64> = code.instructions.iter().copied().map(encode).collect();
        Program::load(hook, self.name, &program.license, &code)
    }

    /// Loads this program and attaches it to the control group whose folder is `group`, as long as the descriptor is open.
    pub(super) fn attach(&self, function: &str, group: BorrowedFd<'_>) -> Result<OwnedFd, LoadError> {
        let program = self.load(function)?;
        call::link(&program, group).map_err(|error| LoadError::Attach { name: self.name.to_owned(), error })
    }
}

/// Kinds of programs that this crate can attach; `None` for another one.
fn hook(section: &ProgramSection) -> Option<Hook> {
    let (program, attach) = match *section {
        ProgramSection::SchedClassifier => (Type::BPF_PROG_TYPE_SCHED_CLS, None),
        ProgramSection::RawTracePoint => (Type::BPF_PROG_TYPE_RAW_TRACEPOINT, None),
        ProgramSection::SockOps => (Type::BPF_PROG_TYPE_SOCK_OPS, Some(At::BPF_CGROUP_SOCK_OPS)),
        ProgramSection::CgroupSock { attach_type } => (Type::BPF_PROG_TYPE_CGROUP_SOCK, Some(attach_type.into())),
        ProgramSection::CgroupSockAddr { attach_type } => {
            (Type::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, Some(attach_type.into()))
        }
        ProgramSection::CgroupSockopt { attach_type } => (Type::BPF_PROG_TYPE_CGROUP_SOCKOPT, Some(attach_type.into())),
        _ => return None,
    };
    Some(Hook { program: program as u32, attach: attach.map_or(0, |attach| attach as u32) })
}

/// `struct bpf_insn` as a number, from its lowest byte on: opcode, registers, offset and immediate.
fn encode(insn: bpf_insn) -> u64 {
    let [o0, o1] = insn.off.to_ne_bytes();
    let [i0, i1, i2, i3] = insn.imm.to_ne_bytes();
    // Two bit fields, whose order follows the processor's: little-endian on all that are supported.
    u64::from_ne_bytes([insn.code, insn.src_reg() << 4 | insn.dst_reg(), o0, o1, i0, i1, i2, i3])
}

fn wrong(name: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LoadError {
    LoadError::Object { name: name.to_owned(), error: error.into() }
}

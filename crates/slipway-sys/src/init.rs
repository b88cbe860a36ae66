//! The program that PID 1 of a node executes: some hundred bytes of machine code in an ELF file without a name.
//!
//! An exec takes away the memory, the environment and the mappings that a process had. So an init that is cloned from a larger
//! program executes this one before anything else lives in its PID namespace. The program
//! has no data, no libraries and no input. It hides itself (`PR_SET_DUMPABLE`), enters seccomp's strict mode, says one byte
//! on descriptor 0, and reads descriptor 1 for ever, to which nobody writes. A process under a filter cannot enter that mode: it
//! stays under the filter. The kernel collects children, since `SIGCHLD` is
//! ignored (`wait(2)`, NOTES).
//!
//! All inits of a lab share the file's only page. It is sealed, so nobody changes it, whoever comes to hold it.

#[allow(unsafe_code)]
mod code;

use std::convert::Infallible;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::fcntl::AtFlags;
use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use crate::clone::close_all_but;
use code::code;

/// The name of init in `ps`.
const NAME: &CStr = c"slipway-init";

/// The program, to be executed by any number of processes.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
    /// An event that never comes. All inits of a lab wait for the same.
    never: OwnedFd,
}

impl Program {
    /// The program that says `word` once it runs.
    ///
    /// # Errors
    /// As `memfd_create(2)`: `EACCES` where this machine forbids to execute such files (`vm.memfd_noexec` is 2).
    pub fn new(word: u8) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
            // Before Linux 6.3 every such file may be executed.
            Err(Errno::INVAL) => memfd_create(NAME, flags)?,
            made => made?,
        };
        let mut file = File::from(file);
        file.write_all(&elf(code(), word))?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self { file: file.into(), never: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// The descriptors that a process keeps to become the program.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.file.as_raw_fd(), self.never.as_raw_fd()]
    }

    /// Becomes the program, with no environment. It says its word on `link`, and keeps it. A process that is under
    /// a seccomp filter stays there, and any other ends up in strict mode.
    ///
    /// To be called by a process that is PID 1 of a namespace, or the kernel would collect the children of another program.
    ///
    /// # Errors
    /// As `execveat(2)`; `link` is descriptor 0 then.
    #[allow(unsafe_code)]
    pub fn become_it(&self, link: BorrowedFd<'_>) -> io::Result<Infallible> {
        rustix::stdio::dup2_stdin(link)?;
        rustix::stdio::dup2_stdout(&self.never)?;
        close_all_but(&[0, 1, self.file.as_raw_fd()])?;
        // SAFETY: no handler is installed.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
        let Err(error) = nix::unistd::execveat(&self.file, c"", &[NAME], &[] as &[&CStr], AtFlags::AT_EMPTY_PATH);
        Err(error.into())
    }
}

/// Where the code is in memory: any multiple of the largest page (64 KiB on some 64-bit ARM) above `vm.mmap_min_addr`.
const BASE: u64 = 0x40_0000;
/// Sizes of an ELF file's header and of a program header (`elf(5)`), 64-bit.
const HEADER: u16 = 64;
const SEGMENT: u16 = 56;
const SEGMENTS: u16 = 2;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62; // EM_X86_64
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183; // EM_AARCH64

/// An executable of one segment that nobody may write to, and a stack that nobody may execute (`elf(5)`).
fn elf(code: &[u8], word: u8) -> Vec<u8> {
    let head = u64::from(HEADER + SEGMENTS * SEGMENT);
    let size = head + code.len() as u64;
    let mut file = Vec::with_capacity(1024);
    // 64-bit, little endian, version 1, System V.
    file.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    // ET_EXEC, the processor, version 1.
    put(&2u16.to_le_bytes());
    put(&MACHINE.to_le_bytes());
    put(&1u32.to_le_bytes());
    // Where it begins, where program headers are; no sections, no flags.
    put(&(BASE + head).to_le_bytes());
    put(&u64::from(HEADER).to_le_bytes());
    put(&0u64.to_le_bytes());
    put(&0u32.to_le_bytes());
    for number in [HEADER, SEGMENT, SEGMENTS, 64, 0, 0] {
        put(&number.to_le_bytes());
    }
    // PT_LOAD, read and execute: the whole file. PT_GNU_STACK, read and write.
    for (kind, flags, at, size, align) in [(1u32, 5u32, BASE, size, 0x1_0000u64), (0x6474_e551, 6, 0, 0, 16)] {
        put(&kind.to_le_bytes());
        put(&flags.to_le_bytes());
        for number in [0, at, at, size, size, align] {
            put(&number.to_le_bytes());
        }
    }
    put(code);
    if let Some(last) = file.last_mut() {
        *last = word;
    }
    file
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn it_says_its_word_and_sleeps_with_nothing() {
        let program = Program::new(7).expect("a file");
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let mut command = Command::new("/nowhere");
        command.env("SECRET", "of the parent");
        // SAFETY: the closure calls nothing that allocates or locks but on its way to a failure.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || program.become_it(theirs.as_fd()).map(|_| ()));
        }
        let mut child = command.spawn().expect("it is executed");
        drop(command);
        let mut said = [0];
        ours.read_exact(&mut said).expect("it says something");
        let proc = std::path::Path::new("/proc").join(child.id().to_string());
        let read = |name: &str| fs::read(proc.join(name)).expect("root may");
        let (name, line, environment) = (read("comm"), read("cmdline"), read("environ"));
        let open = fs::read_dir(proc.join("fd")).expect("root may").count();
        let maps = String::from_utf8(read("maps")).expect("text");
        let mode = crate::process::status(i32::try_from(child.id()).expect("a pid"), "Seccomp").expect("it lives");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(said, [7]);
        assert_eq!((name, line, environment, open), (b"slipway-init\n".into(), b"slipway-init\0".into(), vec![], 2));
        assert_eq!(mode, "1", "strict");
        for line in maps.lines() {
            let known = ["/memfd:slipway-init", "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"];
            assert!(known.iter().any(|name| line.contains(name)), "{maps}");
            assert!(!line.contains("wx"), "{maps}");
        }
    }

    #[test]
    fn the_file_cannot_be_changed() {
        let program = Program::new(1).expect("a file");
        let mut file = File::from(program.file);
        assert_eq!(file.write(b"x").expect_err("sealed").kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(file.set_len(0).expect_err("sealed").kind(), io::ErrorKind::PermissionDenied);
    }
}

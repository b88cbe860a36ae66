//! Functions that libibverbs imports, and where it keeps their addresses (ELF-64 object file format; `elf(5)`).

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Kinds of relocations of a function's address: `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u64; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u64; 2] = [1025, 1026];

/// `Elf64_Dyn`.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    rest: [u8; 20],
}

/// A search in the objects of the program.
struct Search<'a> {
    name: &'a CStr,
    by: *mut c_void,
    is_done: bool,
}

/// Has libibverbs call this function in the place of the one with that name. False where it does not import it.
pub(super) fn replace(name: &CStr, by: *mut c_void) -> bool {
    let mut search = Search { name, by, is_done: false };
    // SAFETY: the callback gets this structure, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.is_done
}

unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's structures, which it keeps locked through the call.
    unsafe {
        let (object, search) = (&*object, &mut *search.cast::<Search<'_>>());
        let path = if object.dlpi_name.is_null() { c"" } else { CStr::from_ptr(object.dlpi_name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if !file.starts_with(b"libibverbs.so") {
            return 0;
        }
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        let size = |value: u64| usize::try_from(value).unwrap_or(0);
        let base = size(object.dlpi_addr);
        let at =
            |kind| headers.iter().find(|it| it.p_type == kind).map(|it| (base + size(it.p_vaddr), size(it.p_memsz)));
        let sealed = at(libc::PT_GNU_RELRO);
        if let Some((dynamic, _)) = at(libc::PT_DYNAMIC) {
            search.is_done = in_object(base, dynamic as *const Entry, sealed, search);
        }
        1
    }
}

/// Looks through an object's relocations.
///
/// # Safety
/// The object is loaded, and its tables are whole.
unsafe fn in_object(base: usize, mut entry: *const Entry, sealed: Option<(usize, usize)>, search: &Search<'_>) -> bool {
    let (mut symbols, mut names, mut tables) = (0, 0, [(0, 0); 2]);
    // Addresses in the table are the object's own, or those that the loader has put there.
    let place = |value: usize| if value < base { base + value } else { value };
    // SAFETY: the table ends with an entry that is zero.
    unsafe {
        while (*entry).tag != 0 {
            let value = (*entry).value;
            match (*entry).tag {
                2 => tables[0].1 = value,
                5 => names = place(value),
                6 => symbols = place(value),
                7 => tables[1].0 = place(value),
                8 => tables[1].1 = value,
                23 => tables[0].0 = place(value),
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    let mut is_done = false;
    for (start, bytes) in tables.into_iter().filter(|(start, _)| *start != 0 && symbols != 0 && names != 0) {
        for number in 0..bytes / size_of::<Relocation>() {
            // SAFETY: the tables are whole, and relocations name symbols that have names.
            unsafe {
                let relocation = &*(start as *const Relocation).add(number);
                if !ADDRESSES.contains(&(relocation.info & 0xffff_ffff)) {
                    continue;
                }
                let symbol = &*(symbols as *const Symbol).add((relocation.info >> 32) as usize);
                if CStr::from_ptr((names + symbol.name as usize) as *const _) == search.name {
                    is_done |= set(base + relocation.offset, search.by, sealed);
                }
            }
        }
    }
    is_done
}

/// Writes an address where the object keeps it. The loader may have made the place read-only.
///
/// # Safety
/// The place is one of an address that the object calls.
unsafe fn set(place: usize, to: *mut c_void, sealed: Option<(usize, usize)>) -> bool {
    const PAGE: usize = 4096;
    let page = (place / PAGE * PAGE) as *mut c_void;
    let is_sealed = sealed.is_some_and(|(start, length)| (start..start + length).contains(&place));
    // SAFETY: the page is the object's, and an aligned address in it is written as one.
    unsafe {
        if is_sealed && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        AtomicPtr::from_ptr(place as *mut *mut c_void).store(to, Ordering::Release);
        if is_sealed {
            libc::mprotect(page, PAGE, libc::PROT_READ);
        }
    }
    true
}

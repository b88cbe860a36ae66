//! The machine code, for each processor.

use std::arch::global_asm;

// Each call's number and constants come from the C library's headers, so that a mistake in them is none of ours.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .rodata.slipway_init, \"a\"",
    ".globl slipway_init_begin, slipway_init_end",
    ".hidden slipway_init_begin, slipway_init_end",
    "slipway_init_begin:",
    "mov edi, {dumpable}",
    "xor esi, esi",
    "mov eax, {prctl}",
    "syscall",
    "test eax, eax",
    "jnz 3f",
    "mov edi, {name}",
    "lea rsi, [rip + 4f]",
    "mov eax, {prctl}",
    "syscall",
    "xor edi, edi",
    "lea rsi, [rip + 5f]",
    "mov edx, 1",
    "mov eax, {write}",
    "syscall",
    "cmp eax, 1",
    "jne 3f",
    "xor edi, edi",
    "mov eax, {close}",
    "syscall",
    "2:",
    "xor edi, edi",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov eax, {ppoll}",
    "syscall",
    "jmp 2b",
    "3:",
    "mov edi, 1",
    "mov eax, {exit}",
    "syscall",
    "ud2",
    "4: .asciz \"slipway-init\"",
    "5: .byte 0",
    "slipway_init_end:",
    ".popsection",
    dumpable = const libc::PR_SET_DUMPABLE,
    name = const libc::PR_SET_NAME,
    prctl = const libc::SYS_prctl,
    write = const libc::SYS_write,
    close = const libc::SYS_close,
    ppoll = const libc::SYS_ppoll,
    exit = const libc::SYS_exit_group,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .rodata.slipway_init, \"a\"",
    ".balign 4",
    ".globl slipway_init_begin, slipway_init_end",
    ".hidden slipway_init_begin, slipway_init_end",
    "slipway_init_begin:",
    "mov x0, #{dumpable}",
    "mov x1, #0",
    "mov x8, #{prctl}",
    "svc #0",
    "cbnz x0, 3f",
    "mov x0, #{name}",
    "adr x1, 4f",
    "mov x8, #{prctl}",
    "svc #0",
    "mov x0, #0",
    "adr x1, 5f",
    "mov x2, #1",
    "mov x8, #{write}",
    "svc #0",
    "cmp x0, #1",
    "b.ne 3f",
    "mov x0, #0",
    "mov x8, #{close}",
    "svc #0",
    "2:",
    "mov x0, #0",
    "mov x1, #0",
    "mov x2, #0",
    "mov x3, #0",
    "mov x8, #{ppoll}",
    "svc #0",
    "b 2b",
    "3:",
    "mov x0, #1",
    "mov x8, #{exit}",
    "svc #0",
    "brk #0",
    "4: .asciz \"slipway-init\"",
    "5: .byte 0",
    "slipway_init_end:",
    ".popsection",
    dumpable = const libc::PR_SET_DUMPABLE,
    name = const libc::PR_SET_NAME,
    prctl = const libc::SYS_prctl,
    write = const libc::SYS_write,
    close = const libc::SYS_close,
    ppoll = const libc::SYS_ppoll,
    exit = const libc::SYS_exit_group,
);

unsafe extern "C" {
    static slipway_init_begin: u8;
    static slipway_init_end: u8;
}

/// The machine code. Its last byte is the one that it says.
pub(super) fn code() -> &'static [u8] {
    let (begin, end) = (&raw const slipway_init_begin, &raw const slipway_init_end);
    // SAFETY: both labels are of one section above, `end` after `begin`, and what is between them is never written to.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

//! Whatever a program in a node writes as a control command of RDMA, it is a command or refused; nothing panics.

#![cfg_attr(fuzzing, no_main)]

use slipway_fast::rdma_wire::{is_command, is_message};

slipway_fuzz::target!(|bytes: &[u8]| {
    let _ = is_command(bytes);
    let _ = is_message(bytes);
});

//! The operations of requests.

use super::memory::Atomic;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Send,
    Write,
    Read,
    Atomic(Atomic),
}

impl Operation {
    /// `enum ibv_wc_opcode`.
    pub(super) fn completion(self) -> i32 {
        match self {
            Self::Send => 0,
            Self::Write => 1,
            Self::Read => 2,
            Self::Atomic(Atomic::Swap { .. }) => 3,
            Self::Atomic(Atomic::Add(_)) => 4,
        }
    }
}

//! Layout of the memory that the two ends of a connection share.
//!
//! The first page holds a block of words for each end. Four rings follow: requests and responses, each in both directions.
//! An end writes its own block, the rings that it produces, and a peer's [`BELL`]. Responses have rings of their own, so that
//! a ring full of requests never holds up the answers that would empty it.

use rustix::fs::SealFlags;

/// Bytes of a ring of requests: a power of two.
pub const REQUESTS: usize = 256 << 10;
/// Bytes of a ring of responses: a power of two.
pub const RESPONSES: usize = 256 << 10;
/// Bytes of an end's block.
pub const BLOCK: usize = 512;
/// Offset of the first ring, in bytes.
pub const RINGS: usize = 4096;
/// Bytes in all.
pub const MEMORY: usize = RINGS + 2 * REQUESTS + 2 * RESPONSES;

/// Word of a block (64 bits): how many bytes of requests this end has produced.
pub const REQUEST_TAIL: usize = 0;
/// Word (64 bits): how many bytes of responses this end has produced.
pub const RESPONSE_TAIL: usize = 8;
/// Word (64 bits): how many bytes of the peer's requests this end has consumed.
pub const REQUEST_HEAD: usize = 64;
/// Word (64 bits): how many bytes of the peer's responses this end has consumed.
pub const RESPONSE_HEAD: usize = 72;
/// Word (32 bits): status that ended the request at [`REQUEST_HEAD`]; 0 while none did.
pub const FAILED: usize = 80;
/// Word (32 bits): 1 while the request at the head waits for a receive request.
pub const NOT_READY: usize = 84;
/// Word (32 bits): 1 where this end sleeps, and wants its socket rung. The peer swaps it for 0 when it rings.
pub const BELL: usize = 128;
/// Word (32 bits): 1 where this end waits for its own requests to be consumed.
pub const WANTS_HEAD: usize = 192;
/// Word (32 bits): 1 where this end's queue pair has ended or failed.
pub const CLOSED: usize = 196;
/// Word (32 bits): changes when this end ends a registration.
pub const EPOCH: usize = 200;

/// Bytes of the counts of one end of a connection, in the page that its program shares with the broker alone.
pub const COUNTS: usize = 128;

/// Words of an end's counts (64 bits): the number of operations, and after it that of their bytes.
pub mod count {
    /// Messages sent.
    pub const SENDS: usize = 0;
    /// Writes into the peer's memory.
    pub const WRITES: usize = 16;
    /// Reads of the peer's memory.
    pub const READS: usize = 32;
    /// Atomic operations on the peer's memory.
    pub const ATOMICS: usize = 48;
    /// Messages received.
    pub const RECEIVES: usize = 64;
}

/// Seals of a file whose length a peer relies on: an access past its end would be a `SIGBUS`.
pub const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

//! Layouts of libibverbs: those of `infiniband/verbs.h`, and of the private interface of providers, number 34.
//!
//! Names are the header's, without prefix. The private structures are those of rdma-core's `libibverbs/driver.h`, equal from
//! release 39 to 56. [`interface`] has the differences of later ones. `tests/abi.rs` compares sizes and offsets with the header.

#![allow(unsafe_code)]
// Fields are the header's, which documents them.
#![allow(missing_docs)]

mod device;
mod interface;
mod management;
mod objects;
mod operations;
mod work;

pub use device::*;
pub use interface::*;
pub use management::*;
pub use objects::*;
pub use operations::*;
pub use work::*;

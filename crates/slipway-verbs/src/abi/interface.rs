//! Numbers of the private interface, and how each differs from number 34.
//!
//! The numbers stand in `CMakeLists.txt` of rdma-core (`IBVERBS_PABI_VERSION`), the structures in its `libibverbs/driver.h` and
//! `verbs.h`. Releases 39 to 56 have number 34, release 57 has number 57, and release 59 has number 59.

use std::ffi::CStr;

use super::{Context, VerbsContext};

/// A private interface that the plug-in knows.
#[derive(Debug)]
pub struct Interface {
    /// Version of its symbols.
    pub version: &'static CStr,
    /// Its function that takes a plug-in on.
    pub register: &'static CStr,
    /// Places in its table of operations that the table of number 34 does not have, in ascending order.
    pub added: &'static [usize],
    /// Pointers that its `struct verbs_context` begins with, beyond those of number 34.
    pub context_grew: usize,
}

/// All interfaces that the plug-in knows.
pub const INTERFACES: [Interface; 3] = [
    Interface { version: c"IBVERBS_PRIVATE_34", register: c"verbs_register_driver_34", added: &[], context_grew: 0 },
    Interface { version: c"IBVERBS_PRIVATE_57", register: c"verbs_register_driver_57", added: &[], context_grew: 0 },
    // `alloc_dmah`, `dealloc_dmah` and `reg_mr_ex`, in both structures.
    Interface {
        version: c"IBVERBS_PRIVATE_59",
        register: c"verbs_register_driver_59",
        added: &[2, 26, 71],
        context_grew: 3,
    },
];

impl Interface {
    /// Bytes of `struct verbs_context` before its last member, the context that programs see.
    #[must_use]
    pub const fn before_context(&self) -> usize {
        std::mem::offset_of!(VerbsContext, context) + self.context_grew * size_of::<usize>()
    }

    /// Bytes of `struct verbs_context`.
    #[must_use]
    pub const fn context(&self) -> usize {
        self.before_context() + size_of::<Context>()
    }

    /// The table of operations as this interface has it. Those that number 34 does not have are absent.
    #[must_use]
    pub fn table(&self, of_34: &[usize]) -> Vec<usize> {
        let mut table = of_34.to_vec();
        for place in self.added {
            table.insert(*place, 0);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_where_each_header_has_them() {
        // Places of `alloc_mw`, `attach_mcast`, `dealloc_mw`, `reg_mr`, `req_notify_cq` and the last operation.
        let of_34 = [2, 9, 25, 68, 69, 75];
        let of_59 = [3, 10, 27, 70, 72, 78];
        let table: Vec<usize> = (1..=76).collect();
        let made = INTERFACES[2].table(&table);
        assert_eq!((made.len(), of_59.map(|at| made[at])), (79, of_34.map(|at| table[at])));
        assert_eq!([2, 26, 71].map(|at| made[at]), [0; 3]);
        assert_eq!(INTERFACES[0].table(&table), table);
    }
}

//! Places of a lab as types: numbers that cannot be taken for each other.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::list::List;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident of $list:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub usize);

        impl $name {
            #[doc = concat!("The position in ", $list, ".")]
            #[must_use]
            pub fn index(self) -> usize {
                self.0
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                Self(index)
            }
        }

        impl From<$name> for usize {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A node, by its position in [`Lab::nodes`](crate::model::Lab::nodes).
    NodeId of "`Lab::nodes`"
}
id! {
    /// A virtual host, by its position in [`Lab::hosts`](crate::model::Lab::hosts).
    HostId of "`Lab::hosts`"
}
id! {
    /// A network, by its position in [`Lab::networks`](crate::model::Lab::networks).
    NetworkId of "`Lab::networks`"
}
id! {
    /// A machine that runs a part of a lab, by its position in [`Lab::machines`](crate::model::Lab::machines). 0 in a lab
    /// on this machine alone.
    MachineId of "`Lab::machines`"
}

//! Values that hold where a lab file leaves them out, for those who write lab files.

pub use crate::resolve::{
    DEFAULT_NETWORK, HOST_IMAGE, default_ipv4, default_ipv6, default_underlay, derived_mac, first_ipv4, first_ipv6,
};

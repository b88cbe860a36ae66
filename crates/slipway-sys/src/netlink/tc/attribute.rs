//! Attributes of traffic control, byte by byte.

/// Appends an attribute with its padding (`struct nlattr`, netlink(7)).
pub(super) fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest is a jitter table of 8 KiB.
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The numbers of a structure of the kernel's, one after the other.
pub(super) fn numbers<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_ne_bytes).collect()
}

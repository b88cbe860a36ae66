//! The group that a datagram was sent to, in the header of its record.

use crate::wire::Gid;

/// A group's identifier as a datagram's header carries it.
pub(super) fn operands(group: &Gid) -> [u64; 2] {
    let word = |at: usize| group[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    [word(0), word(8)]
}

/// The group of a header; none where the datagram was sent to this queue pair alone.
pub(super) fn group(operands: [u64; 2]) -> Option<Gid> {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&operands[0].to_be_bytes());
    gid[8..].copy_from_slice(&operands[1].to_be_bytes());
    (operands != [0; 2]).then_some(gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_group_is_read_as_it_was_written(gid: Gid) {
            proptest::prop_assert_eq!(group(operands(&gid)), (gid != [0; 16]).then_some(gid));
        }
    }
}

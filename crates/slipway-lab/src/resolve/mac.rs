//! Ethernet addresses, the same in every run and on every machine.

use std::collections::HashSet;

/// Addresses in use in the lab.
#[derive(Default)]
pub(super) struct Macs(HashSet<[u8; 6]>);

impl Macs {
    /// False where it is already in use.
    pub(super) fn take(&mut self, mac: [u8; 6]) -> bool {
        self.0.insert(mac)
    }

    /// An address out of the names: locally administered, unicast.
    pub(super) fn derive(&mut self, lab: &str, network: &str, node: &str) -> [u8; 6] {
        let hash = fnv1a([lab, network, node].join("/").as_bytes());
        // Of 2^40 addresses, 10,000 nodes meet in one of 22,000 labs; then the next free one is as good.
        let candidates = (0u64..).map(|again| {
            let [_, _, mut mac @ ..] = hash.wrapping_add(again).to_be_bytes();
            mac[0] = 0x02;
            mac
        });
        candidates.into_iter().find(|mac| self.0.insert(*mac)).unwrap_or_default()
    }
}

/// The address that [`Macs::derive`] gives where no other interface has it.
#[must_use]
pub fn derived(lab: &str, network: &str, node: &str) -> [u8; 6] {
    Macs::default().derive(lab, network, node)
}

/// FNV-1a, 64 bits (draft-eastlake-fnv). Written out because the standard library's hash may change with its version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_collision_gives_the_next_one() {
        let mut macs = Macs::default();
        let first = macs.derive("lab", "net", "n1");
        let second = macs.derive("lab", "net", "n1");
        assert_ne!(first, second);
        assert_eq!(first[0], 0x02);
        assert_eq!(second[0], 0x02);
    }
}

//! Pulses: what the anchors of a lab's machines tell each other, so that each knows that the others are there.
//!
//! A pulse is one datagram: the lab's number, the machine that sends it, a number that grows, and whether the lab is kept.
//! A MAC of all four follows (HMAC-SHA-256, RFC 2104), with a key from the lab's secret. Programs of nodes on driver `host`
//! share the network that pulses take, so a pulse without the right MAC, or one that came before, says nothing.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use slipway_fast::channel::Key;
use slipway_lab::id::MachineId;

/// Bytes of four numbers.
const BODY: usize = 32;
/// Bytes of a pulse.
pub(super) const LENGTH: usize = BODY + 32;

/// The content of a pulse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pulse {
    /// The machine that sent it.
    pub(super) from: MachineId,
    /// Whether all parts of the lab are made, and it stays.
    pub(super) is_kept: bool,
}

/// Writes and reads the pulses of one lab.
pub(super) struct Pulses {
    key: Key,
    lab: u64,
    /// The greatest number that each machine has sent.
    seen: BTreeMap<MachineId, u64>,
}

impl Pulses {
    /// Those of the lab with this key and number.
    pub(super) fn new(lab_key: &Key, lab: u64) -> Self {
        Self { key: lab_key.derived("pulses"), lab, seen: BTreeMap::new() }
    }

    /// The bytes of a pulse. `number` is greater than in all before.
    pub(super) fn write(&self, Pulse { from, is_kept }: Pulse, number: u64) -> [u8; LENGTH] {
        let mut pulse = [0; LENGTH];
        let machine = from.index() as u64;
        for (at, word) in [self.lab, machine, number, is_kept.into()].into_iter().enumerate() {
            pulse[at * 8..at * 8 + 8].copy_from_slice(&word.to_be_bytes());
        }
        let mac = self.mac(&pulse[..BODY]).finalize().into_bytes();
        pulse[BODY..].copy_from_slice(&mac);
        pulse
    }

    /// Reads a pulse. `None` for all other bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<Pulse> {
        let (body, mac) = bytes.split_first_chunk::<BODY>()?;
        self.mac(body).verify_slice(mac).ok()?;
        let word = |at: usize| body[at..].first_chunk().map(|word| u64::from_be_bytes(*word));
        let from = MachineId(usize::try_from(word(8)?).ok()?);
        let number = word(16)?;
        if word(0)? != self.lab || self.seen.get(&from).is_some_and(|&last| number <= last) {
            return None;
        }
        let is_kept = word(24)? == 1;
        self.seen.insert(from, number);
        Some(Pulse { from, is_kept })
    }

    fn mac(&self, body: &[u8]) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(self.key.bytes()).expect("HMAC takes keys of every length");
        keyed.chain_update(body)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pulse_counts_once_and_for_its_own_lab_alone() {
        let from = |machine| Pulse { from: MachineId(machine), is_kept: machine == 2 };
        let mut pulses = Pulses::new(&Key::take(&mut [7; 32]), 5);
        let (first, second) = (pulses.write(from(1), 10), pulses.write(from(1), 11));
        assert_eq!(pulses.read(&second), Some(from(1)));
        assert_eq!(pulses.read(&second), None, "again");
        assert_eq!(pulses.read(&first), None, "an older one");
        let other = pulses.write(from(2), 3);
        assert_eq!(pulses.read(&other), Some(from(2)));
        assert_eq!(Pulses::new(&Key::take(&mut [8; 32]), 5).read(&first), None, "another secret");
        assert_eq!(Pulses::new(&Key::take(&mut [7; 32]), 6).read(&first), None, "another lab");
    }

    proptest! {
        #[test]
        fn other_bytes_say_nothing(bytes in prop::collection::vec(any::<u8>(), 0..80), at in 0..LENGTH, bit in 0..8_u32) {
            let mut pulses = Pulses::new(&Key::take(&mut [7; 32]), 5);
            prop_assert_eq!(pulses.read(&bytes), None);
            let mut pulse = pulses.write(Pulse { from: MachineId(1), is_kept: true }, 1);
            pulse[at] ^= 1_u8 << bit;
            prop_assert_eq!(pulses.read(&pulse), None);
        }
    }
}

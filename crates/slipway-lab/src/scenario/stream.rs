//! Random streams: one for each thing that is drawn, named by what it is drawn for, so that no draw depends on another.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// A random stream. The same seed and name give the same numbers on every machine.
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    /// `ChaCha8`, seeded with the SHA-256 of the seed and the name's parts, each with its length before it.
    pub(crate) fn new(seed: u64, name: &[&str]) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        for part in name {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(ChaCha8Rng::from_seed(hash.finalize().into()))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Between 0 and 1, and neither: the middles of 2^52 equal intervals, which binary fractions are exact for.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.word() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

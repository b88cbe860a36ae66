//! Seeded draws, a stream for each kind of event.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// The use of a random stream. Each kind has its own, so one condition does not change the draws of another.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(crate) enum Kind {
    Loss = 1,
    Corrupt = 2,
    Duplicate = 3,
    Reorder = 4,
    Delay = 5,
}

/// Words of 32 bits for each packet, whether it takes them all or not.
const WORDS: u128 = 4;

/// A `ChaCha8` stream in which every packet has its place. The n-th packet's draw depends on seed, kind and n alone,
/// not on when drawing began.
#[derive(Debug)]
pub(crate) struct Stream {
    seed: [u8; 32],
    kind: Kind,
    /// The next packet.
    at: u64,
    /// The packet whose draw the generator gives next.
    generator_at: u64,
    /// Made when first used: most streams never are, and there is one for each kind and pair.
    generator: Option<Box<ChaCha8Rng>>,
}

impl Stream {
    pub(crate) fn new(seed: [u8; 32], kind: Kind) -> Self {
        Self { seed, kind, at: 0, generator_at: 0, generator: None }
    }

    /// Goes past packets for which nothing is drawn.
    pub(crate) fn skip(&mut self, packets: u32) {
        self.at += u64::from(packets);
    }

    /// Two numbers for the next packet, at least 0 and below 1, all 53 bits of which are random.
    pub(crate) fn draw(&mut self) -> [f64; 2] {
        let generator = self.generator.get_or_insert_with(|| {
            let mut generator = ChaCha8Rng::from_seed(self.seed);
            generator.set_stream(self.kind as u64);
            Box::new(generator)
        });
        if self.generator_at != self.at {
            generator.set_word_pos(u128::from(self.at) * WORDS);
        }
        self.at += 1;
        self.generator_at = self.at;
        [unit(generator.next_u64()), unit(generator.next_u64())]
    }
}

fn unit(bits: u64) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 53) as f64;
    (bits >> 11) as f64 * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(drawn: [f64; 2]) -> [u64; 2] {
        drawn.map(f64::to_bits)
    }

    #[test]
    fn a_packets_draw_depends_on_its_place_alone() {
        let mut all = Stream::new([7; 32], Kind::Loss);
        let all: Vec<_> = (0..100).map(|_| bits(all.draw())).collect();
        let mut some = Stream::new([7; 32], Kind::Loss);
        for (place, drawn) in all.iter().enumerate() {
            if place % 7 == 3 || place > 60 {
                assert_eq!(bits(some.draw()), *drawn);
            } else {
                some.skip(1);
            }
        }
    }

    #[test]
    fn kinds_and_seeds_draw_apart() {
        let first = |seed, kind| bits(Stream::new([seed; 32], kind).draw());
        assert_ne!(first(1, Kind::Loss), first(1, Kind::Delay));
        assert_ne!(first(1, Kind::Loss), first(2, Kind::Loss));
    }
}

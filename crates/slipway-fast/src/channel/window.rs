//! A set of numbers that each appear once, in any order.

use std::collections::VecDeque;

/// Numbers that one word of the bitmap holds.
const BITS: u64 = u64::BITS as u64;
/// Words of the bitmap. A connection sends its number at once, so a number far behind was lost and sent again. At 10,000
/// connections a second, the window covers the last 0.4 s; TCP retransmits after 0.2.
const WORDS: usize = 64;

/// An anti-replay window as that of ESP (RFC 4303, section 3.4.3), kept as in RFC 6479: it moves by whole words. It is
/// exact for the words that it holds, and takes earlier numbers for used. Zero is used from the beginning.
#[derive(Debug)]
pub(super) struct Window {
    /// The index of the first word here, which holds the highest number.
    last: u64,
    words: VecDeque<u64>,
}

impl Default for Window {
    fn default() -> Self {
        Self { last: 0, words: VecDeque::from([1]) }
    }
}

impl Window {
    /// Whether a number is new; from then on it is used. Ask only about authenticated numbers: a high one makes all far
    /// below it old.
    pub(super) fn admit(&mut self, number: u64) -> bool {
        let word = number / BITS;
        if word > self.last {
            (0..(word - self.last).min(WORDS as u64)).for_each(|_| self.words.push_front(0));
            self.words.truncate(WORDS);
            self.last = word;
        }
        let place = usize::try_from(self.last - word).ok();
        let Some(seen) = place.and_then(|place| self.words.get_mut(place)) else { return false };
        let bit = 1 << (number % BITS);
        let new = *seen & bit == 0;
        *seen |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Steps from each number to the next: near by, around the window's end, anywhere.
    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let edge = BITS * WORDS as u64;
        let step = prop_oneof![
            6 => -200..200_i64,
            2 => edge.cast_signed() - 100..edge.cast_signed() + 100,
            2 => -edge.cast_signed() - 100..100 - edge.cast_signed(),
            1 => any::<i64>(),
        ];
        prop::collection::vec(step, 1..400).prop_map(|steps| {
            let mut at = 0_u64;
            let walk = steps.into_iter().map(|step| {
                at = at.saturating_add_signed(step);
                at
            });
            walk.collect()
        })
    }

    proptest! {
        #[test]
        fn each_number_is_admitted_once_unless_it_is_too_old(numbers in numbers()) {
            let (mut window, mut used, mut highest) = (Window::default(), BTreeSet::from([0]), 0);
            for number in numbers {
                let admitted = window.admit(number);
                highest = highest.max(number);
                let kept = highest / BITS - number / BITS < WORDS as u64;
                // The window keeps as many as promised, and no more.
                prop_assert!(kept || highest - number > BITS * (WORDS as u64 - 1));
                prop_assert_eq!(admitted, kept && used.insert(number), "{} after {}", number, highest);
                prop_assert!(window.words.len() <= WORDS);
            }
        }
    }

    #[test]
    fn what_is_too_old_is_refused_although_it_never_came() {
        let mut window = Window::default();
        assert!(!window.admit(0));
        let last = BITS * WORDS as u64;
        assert!(window.admit(last));
        assert!(!window.admit(1) && !window.admit(BITS - 1));
        assert!(window.admit(BITS) && !window.admit(BITS));
        assert!(window.admit(u64::MAX) && !window.admit(last + 1) && window.admit(u64::MAX - 1));
        assert!(!window.admit(u64::MAX));
    }
}

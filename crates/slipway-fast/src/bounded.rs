//! A map of bounded size. An entry beyond the bound pushes out the oldest.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, in the order in which they came.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    most: usize,
    all: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    came: u64,
}

impl<K: Copy + Eq + Hash, V> BoundedMap<K, V> {
    /// A map with room for this many entries.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, all: HashMap::new(), order: BTreeMap::new(), came: 0 }
    }

    /// Inserts an entry, and returns the one that it replaces: that with the same key, or the oldest of a full map.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(key);
        self.came += 1;
        self.order.insert(self.came, key);
        self.all.insert(key, (self.came, value));
        if self.all.len() <= self.most {
            return before;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.all.remove(&oldest).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (came, value) = self.all.remove(&key)?;
        self.order.remove(&came);
        Some(value)
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.all.get(&key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.all.get_mut(&key).map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.all.contains_key(&key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.order.clear();
    }

    /// Keeps the entries for which `keeps` is true.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&V) -> bool) {
        let Self { all, order, .. } = self;
        all.retain(|_, (came, value)| {
            let stays = keeps(value);
            if !stays {
                order.remove(came);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_the_oldest_goes() {
        let mut latest = BoundedMap::new(2);
        assert_eq!(latest.insert(1, 'a'), None);
        assert_eq!(latest.insert(2, 'b'), None);
        assert_eq!(latest.insert(1, 'c'), Some('a'));
        assert_eq!(latest.insert(3, 'd'), Some('b'));
        assert_eq!([1, 2, 3].map(|key| latest.get(key).copied()), [Some('c'), None, Some('d')]);
        latest.retain(|value| *value != 'c');
        assert_eq!((latest.remove(3), latest.is_empty()), (Some('d'), true));
        assert!(latest.order.is_empty());
    }
}

//! Lists whose elements are named by ids, so that no place of one kind finds an element of another kind.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A list whose elements have an `I` each: its position. In JSON it is a plain list.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct List<I, T> {
    items: Vec<T>,
    #[serde(skip)]
    by: PhantomData<fn(I) -> I>,
}

impl<I: From<usize>, T> List<I, T> {
    /// The ids of all elements, in order.
    #[must_use]
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + Clone + use<I, T> {
        (0..self.items.len()).map(I::from)
    }

    /// All elements with their ids, in order.
    #[must_use]
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator + Clone {
        self.items.iter().enumerate().map(|(index, item)| (I::from(index), item))
    }

    /// The id of the first element that fits.
    pub fn position(&self, fits: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(fits).map(I::from)
    }
}

impl<I, T> List<I, T>
where
    usize: From<I>,
{
    /// The element with this id, if there is one.
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(usize::from(id))
    }

    /// As [`get`](Self::get), to change it.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(usize::from(id))
    }
}

impl<I, T> Index<I> for List<I, T>
where
    usize: From<I>,
{
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[usize::from(id)]
    }
}

impl<I, T> IndexMut<I> for List<I, T>
where
    usize: From<I>,
{
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[usize::from(id)]
    }
}

impl<I, T> List<I, T> {
    /// A list of nothing.
    #[must_use]
    pub fn new() -> Self {
        Vec::new().into()
    }

    /// Adds an element at the end.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }
}

impl<I, T: fmt::Debug> fmt::Debug for List<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}

impl<I, T> Default for List<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, T> Deref for List<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> DerefMut for List<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<I, T> From<Vec<T>> for List<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, by: PhantomData }
    }
}

impl<I, T> FromIterator<T> for List<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<I, T> IntoIterator for List<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, I, T> IntoIterator for &'a List<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut List<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;

    #[test]
    fn ids_name_elements_and_json_is_a_plain_list() {
        let list: List<NodeId, &str> = vec!["a", "b"].into();
        assert_eq!(
            list.enumerate().map(|(id, item)| (id, *item)).collect::<Vec<_>>(),
            [(NodeId(0), "a"), (NodeId(1), "b")]
        );
        let b = list.position(|item| *item == "b").expect("it is there");
        assert_eq!((list[b], list.get(b), list.get(NodeId(2))), ("b", Some(&"b"), None));
        assert!(list.ids().eq([NodeId(0), NodeId(1)]));
        let json = serde_json::to_string(&list).expect("plain data");
        assert_eq!(json, r#"["a","b"]"#);
        assert_eq!(serde_json::from_str::<List<NodeId, String>>(&json).expect("read again").len(), 2);
    }
}

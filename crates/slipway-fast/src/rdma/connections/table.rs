//! The identifiers of a host by number, each with a record for the next router.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::saved::Saved;
use super::Identifier;
use crate::records::{Record, Records};

/// Identifiers by number.
#[derive(Debug)]
pub(super) struct Identifiers {
    all: HashMap<u32, (Identifier, Option<Record>)>,
    /// Those that have changed since they were written down.
    changed: Vec<u32>,
    records: Arc<Records>,
}

impl Identifiers {
    pub(super) fn new(records: Arc<Records>) -> Self {
        Self { all: HashMap::new(), changed: Vec::new(), records }
    }

    /// A number for an identifier.
    pub(super) fn number(&self) -> u64 {
        self.records.number()
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Identifier> {
        self.all.get(&id).map(|(one, _)| one)
    }

    /// An identifier, to be changed. The caller has it written down before others hear of the change.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Identifier> {
        let (one, _) = self.all.get_mut(&id)?;
        if self.changed.last() != Some(&id) {
            self.changed.push(id);
        }
        Some(one)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Identifier)> {
        self.all.iter().map(|(&id, (one, _))| (id, one))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Identifier> {
        self.all.values().map(|(one, _)| one)
    }

    pub(super) fn insert(&mut self, id: u32, one: Identifier) {
        let record = self.records.add(one.node);
        self.all.insert(id, (one, record));
        self.changed.push(id);
    }

    /// Adds an identifier of the router before, as its record has it.
    pub(super) fn keep(&mut self, id: u32, one: Identifier, record: Record) {
        self.all.insert(id, (one, Some(record)));
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Identifier> {
        self.all.remove(&id).map(|(one, _)| one)
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Identifier) -> bool) {
        self.all.retain(|_, (one, _)| is_kept(one));
    }

    /// Writes down what has changed.
    pub(super) fn save(&mut self) {
        for id in self.changed.drain(..) {
            if let Some((one, Some(record))) = self.all.get(&id) {
                record.write(&Saved::identifier(id, one));
            }
        }
    }
}

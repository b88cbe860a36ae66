//! From tree to types, with every error rather than the first.
//!
//! serde's derived readers stop at an error. So an error is reported, what caused it is marked void, and the tree is read
//! again, until it can be read. The types, and with them the JSON Schema, stay the only word on what a file is.

mod error;
mod reader;
mod spanned;

use std::cell::RefCell;

use serde::Deserialize;

use self::reader::Reader;
pub use self::spanned::{Entry, Named, Spanned};
use crate::errors::Report;
use crate::tree::{State, Tree};

/// Reads the whole tree. `None` where what is left of it after the errors is no `T`.
pub fn read<'de, T: Deserialize<'de>>(tree: &'de Tree, report: &mut Report) -> Option<T> {
    let shared = RefCell::new(std::mem::take(report));
    let value = read_until_good(tree, &shared);
    *report = shared.into_inner();
    value
}

fn read_until_good<'de, T: Deserialize<'de>>(tree: &'de Tree, report: &RefCell<Report>) -> Option<T> {
    loop {
        let reader = Reader { tree, report, id: Tree::ROOT };
        let error = match T::deserialize(reader) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let blamed = error.node.unwrap_or(Tree::ROOT);
        let mut id = blamed;
        // The reader has reported a void value. Without it, a value that needs it cannot be read either.
        while tree.node(id).state.get() != State::Good {
            id = tree.node(id).parent?;
        }
        if id == blamed {
            let help = error.help.unwrap_or_else(|| tree.kind().unfit.to_owned());
            report.borrow_mut().add(tree.node(id).at, error.message, help);
        }
        tree.node(id).state.set(State::Void);
        if id == Tree::ROOT || report.borrow().is_full() {
            return None;
        }
    }
}

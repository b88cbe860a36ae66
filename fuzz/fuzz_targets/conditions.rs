//! Whatever a matrix of delays or a change of conditions holds, it is read, or refused with the next step; and what is
//! read is written as what reads back.
#![cfg_attr(fuzzing, no_main)]

use std::path::Path;
use std::sync::LazyLock;

use slipway_lab::change::{Change, Keys, LinkChange, NodeChange};
use slipway_lab::matrix;
use slipway_lab::model::Lab;

static LAB: LazyLock<Lab> =
    LazyLock::new(|| slipway_lab::parse("lab.yaml", "nodes: {n: {count: 4}}", Path::new("/")).expect("a lab"));

slipway_fuzz::target!(|text: &str| {
    match matrix::parse(text, &LAB) {
        Ok(matrix) => assert_eq!(matrix.delays.len(), matrix.senders.len() * matrix.receivers.len()),
        Err(error) => assert!(!error.help.is_empty()),
    }
    reads_back(text.parse::<LinkChange>().ok());
    reads_back(text.parse::<NodeChange>().ok());
});

fn reads_back<T: Keys + PartialEq + std::fmt::Debug>(change: Option<Change<T>>) {
    let Some(change) = change else { return };
    assert_eq!(change.to_string().parse::<Change<T>>().as_ref(), Ok(&change));
}

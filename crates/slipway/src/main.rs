//! The slipway command.
fn main() {}

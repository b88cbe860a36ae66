//! The lab that `slipway init` writes.

/// A commented lab file, ready to run.
#[must_use]
pub fn template() -> &'static str {
    include_str!("template.yaml")
}

//! The lab file as a kind of document.

use slipway_document::tree::FileKind;

/// Bounds of lab files, and of the scenarios and policies that stand in files of their own.
pub const LAB_FILE: FileKind = FileKind {
    max_bytes: 1 << 20,
    // The deepest key is at 5.
    max_depth: 16,
    too_long: "check that this is the right file; use `count` for many nodes of a kind",
    too_deep: "a lab file nests five levels at most; check the brackets",
    empty: "write `nodes:` and below it a name, or let `slipway init` write a lab to start from",
    repeated: "write the value out where it is used; `count` makes many nodes of a kind",
    second: "one file is one lab: put the other in its own file",
    unfit: "compare with the commented lab that `slipway init` writes",
};

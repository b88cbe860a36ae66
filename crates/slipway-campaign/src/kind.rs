//! The campaign file as a kind of document.

use slipway_document::tree::FileKind;

/// Bounds of campaign files.
pub const CAMPAIGN_FILE: FileKind = FileKind {
    max_bytes: 4 << 20,
    // The deepest key is at 5.
    max_depth: 16,
    too_long: "check that this is the right file; put a long list of points into a CSV file, and name it in `design`",
    too_deep: "a campaign file nests five levels at most; check the brackets",
    empty: "write `run:` and a command, or let `slipway campaign init` write a campaign to start from",
    repeated: "write the value out where it is used",
    second: "one file is one campaign: put the other in its own file",
    unfit: "compare with the commented campaign that `slipway campaign init` writes",
};

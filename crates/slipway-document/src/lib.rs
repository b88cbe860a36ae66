//! Documents that people write, in YAML: every value knows its line and column, and all errors come at once, each with
//! help. Pure: no I/O.
//!
//! A [`Tree`](tree::Tree) holds the text. [`de::read`] turns it into types, which are the file's whole grammar. Types with a
//! unit are in [`units`], and texts with a form of their own in [`form`].
//!
//! ```
//! use serde::Deserialize;
//! use slipway_document::de::{self, Spanned};
//! use slipway_document::errors::Report;
//! use slipway_document::tree::{FileKind, Tree};
//! use slipway_document::units::Seconds;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields, expecting = "a sweep: a map of `program` and `pause`")]
//! struct Sweep {
//!     program: Spanned<String>,
//!     pause: Option<Seconds>,
//! }
//!
//! const SWEEP: FileKind = FileKind {
//!     max_bytes: 1 << 20,
//!     max_depth: 16,
//!     too_long: "check that this is the right file",
//!     too_deep: "check the brackets",
//!     empty: "write `program:` and the program's path",
//!     repeated: "write the value out where it is used",
//!     second: "put the other sweep in its own file",
//!     unfit: "compare with the guide's sweep",
//! };
//!
//! let text = "progam: ./solve\nprogram: ./solve\npause: 20\n";
//! let mut report = Report::default();
//! let sweep: Option<Sweep> = Tree::parse(SWEEP, text, &mut report).and_then(|tree| de::read(&tree, &mut report));
//!
//! // What could be read is there, so that later steps find their errors too.
//! assert_eq!(sweep.map(|sweep| (sweep.program.value, sweep.pause)), Some(("./solve".to_owned(), None)));
//! assert_eq!(
//!     report.finish("sweep.yaml", text).plain(),
//!     "\
//! sweep.yaml:1:1: there is no key `progam` here
//!   1 | progam: ./solve
//!     | ^^^^^^
//!   help: did you mean `program`? There are: program, pause
//!
//! sweep.yaml:3:8: `20` has no unit
//!   3 | pause: 20
//!     |        ^^
//!   help: write `20ms` or `1.5s` (units: us, ms, s, min, h)
//! "
//! );
//! ```

pub mod cpus;
pub mod de;
pub mod errors;
mod file_error;
pub mod form;
pub mod names;
pub mod packages;
#[doc(hidden)]
pub mod shape;
mod suggest;
pub mod text;
pub mod tree;
pub mod units;

pub use file_error::FileError;
pub use suggest::{closest, suggest};

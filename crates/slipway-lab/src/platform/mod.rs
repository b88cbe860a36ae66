//! Platform files: a lab as a lab file, and other emulators' and simulators' platforms as labs. Pure: texts in, texts out.

mod live;
mod slipway;
mod yaml;

pub use self::live::{LiveInterface, with_live};
pub use self::slipway::{ExportError, to_slipway};

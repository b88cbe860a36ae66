//! Settings of the machine: each has a [`Key`] and a value as text. Data flows one way:
//!
//! ```text
//! wishes ──plan──▶ plan ──apply──▶ journal ──rollback──▶ the values of before
//! ```
//!
//! A [`Kernel`] reads and writes values; [`Machine`] is the real one. The journal has a setting's former value on disk before the
//! kernel gets the new one (docs/adr/0053).

mod apply;
mod journal;
mod kernel;
mod key;
mod machine;
mod owner;
mod persist;
mod persisted;
mod plan;
mod rollback;
mod scope;
mod status;

pub use apply::{Applied, ApplyError, apply};
pub use journal::{Entry, Journal, JournalError, Life, State, is_journal};
pub use kernel::{Kernel, SettingError, accepts, unchanged};
pub use key::{BlockKnob, Key, KeyError, NicKnob};
pub use machine::Machine;
pub use owner::{Owner, Owners};
pub use persist::{PersistError, TunedProfile, persist, tuned_profile, unpersist};
pub use persisted::Persisted;
pub use plan::{Change, Plan, Refusal, Wish, plan};
pub use rollback::{Fate, Outcome, rollback};
pub use scope::Scope;
pub use status::{Drift, Standing, drift};

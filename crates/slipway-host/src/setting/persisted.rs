//! Files that set values again after a reboot, as the journal has them.

use serde::{Deserialize, Serialize};

/// The files, below the root, that Slipway may write.
pub(super) const FILES: [&str; 5] = [
    "etc/sysctl.d/90-slipway.conf",
    "etc/udev/rules.d/90-slipway.rules",
    "etc/tmpfiles.d/90-slipway.conf",
    "etc/modules-load.d/90-slipway.conf",
    TUNED,
];
/// The profile of tuned.
pub(super) const TUNED: &str = "etc/tuned/slipway/tuned.conf";
/// Largest file, bytes.
pub(super) const LARGEST: usize = 1 << 20;

/// A file that Slipway wrote, or was about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Persisted {
    /// Path below the root.
    pub path: String,
    /// The text.
    pub text: String,
    /// The text that Slipway gave it before, which a command that ended in the middle may have left there.
    pub before: Option<String>,
    /// The text of somebody else's file of that name, which comes back.
    pub former: Option<String>,
}

impl Persisted {
    /// Whether it is a file that Slipway may write. A journal is not trusted with others.
    pub(super) fn check(&self) -> Result<(), String> {
        let texts = [Some(&self.text), self.before.as_ref(), self.former.as_ref()];
        if !FILES.contains(&self.path.as_str()) {
            return Err("it names a file that Slipway does not write".to_owned());
        }
        if texts.into_iter().flatten().any(|text| text.len() > LARGEST) {
            return Err(format!("the text of {} has more than {LARGEST} bytes", self.path));
        }
        Ok(())
    }
}

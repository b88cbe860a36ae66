//! Other tools that set the same things: a setting that one of them has a word on is its setting.

mod files;
mod tuned;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::key::{BlockKnob, Key, NicKnob};

/// A tool, or a file, that sets a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The tool.
    pub who: String,
    /// The file in which it is told to, where there is one.
    pub file: Option<PathBuf>,
    /// The value that it sets, where that is known.
    pub value: Option<String>,
    /// After a reboot it sets the setting later than Slipway's files do, so its word is the last.
    pub later: bool,
}

/// All that others claim on a machine.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    claims: Vec<Claim>,
}

/// A claim of one tool on some settings.
#[derive(Debug, Clone)]
struct Claim {
    what: Claimed,
    owner: Owner,
}

/// The settings that a claim is on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Claimed {
    /// Parameters whose name is this one; a part that is `*` stands for any.
    Sysctl(String),
    /// A kind of knob of one interface, or of any.
    Nic(Option<String>, &'static str),
    /// A knob of any block device.
    Block(BlockKnob),
    /// All interrupts.
    Irq,
    /// The governor.
    CpuGovernor,
    /// Transparent huge pages.
    TransparentHugePages,
}

impl Owners {
    /// Nobody: for places where no tool of the machine's sets anything, such as a network namespace.
    #[must_use]
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Reads the files below `root`: sysctl.d, systemd's link and network files, connections of `NetworkManager`, the active
    /// profile of tuned. Looks for a running irqbalance in its `proc`. A file that cannot be read claims nothing.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let mut claims = files::sysctl(root);
        claims.extend(files::networkd(root));
        claims.extend(files::network_manager(root));
        claims.extend(tuned::claims(root));
        claims.extend(files::irqbalance(root));
        Self { claims }
    }

    /// Those who set `key`.
    #[must_use]
    pub fn of(&self, key: &Key) -> Vec<Owner> {
        self.claims.iter().filter(|claim| claim.what.covers(key)).map(|claim| claim.owner.clone()).collect()
    }
}

impl Claimed {
    fn covers(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Sysctl(pattern), Key::Sysctl(name)) => {
                let (mut pattern, mut name) = (pattern.split('.'), name.split('.'));
                loop {
                    match (pattern.next(), name.next()) {
                        (None, None) => return true,
                        (Some(one), Some(other)) if one == "*" || one == other => {}
                        _ => return false,
                    }
                }
            }
            (Self::Nic(of, kind), Key::Nic { name, what }) => {
                *kind == kind_of(what) && of.as_ref().is_none_or(|of| of == name)
            }
            (Self::Block(knob), Key::Block { what, .. }) => knob == what,
            (Self::Irq, Key::Irq { .. })
            | (Self::CpuGovernor, Key::CpuGovernor)
            | (Self::TransparentHugePages, Key::TransparentHugePages) => true,
            _ => false,
        }
    }
}

/// The kind of a knob, as configuration files group them.
fn kind_of(knob: &NicKnob) -> &'static str {
    match knob {
        NicKnob::RingRx | NicKnob::RingTx => "ring",
        NicKnob::CoalesceRxUsecs
        | NicKnob::CoalesceTxUsecs
        | NicKnob::CoalesceAdaptiveRx
        | NicKnob::CoalesceAdaptiveTx => "coalesce",
        NicKnob::Feature(_) => "feature",
        NicKnob::ChannelsCombined => "channels",
        NicKnob::TxQueueLen => "queue length",
        NicKnob::Mtu => "mtu",
        NicKnob::Qdisc => "qdisc",
        NicKnob::Rps(_) | NicKnob::RpsFlows(_) | NicKnob::Xps(_) => "steering",
    }
}

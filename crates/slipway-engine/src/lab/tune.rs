//! Profiles of virtual hosts become kernel settings, by the rules that `slipway tune check` holds a machine against
//! (docs/adr/0062).
//!
//! A lab file is the same on every machine, and the values are not: they depend on the kernel and on its memory. So the
//! lab keeps the word, and its state has the values.

use std::fmt::Display;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use slipway_document::units::{Rate, Seconds};
use slipway_host::check::{Target, check};
use slipway_host::facts::{Facts, Source};
use slipway_host::rules::{self, Rules};
use slipway_host::setting::{Key, Scope, Wish};
use slipway_lab::model::{DriverKind, Host, Lab, Profile, ProfileWord};
use slipway_sys::ns::{OwnedNet, create_net, with_net};

use crate::node::user::make_net;
use crate::sysctl::{Verdict, attempt};
use crate::tuning::{Chosen, LeftOut, Tuning, Tunings};

/// A profile that cannot be turned into settings.
#[derive(Debug, thiserror::Error)]
#[error("find the kernel settings of a profile: {0}")]
pub struct TuningError(String);

impl TuningError {
    fn of(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

/// Finds the settings of each host. Nothing is changed: values are tried in namespaces that are gone afterwards.
///
/// # Errors
/// When this machine's facts cannot be read, or no namespace can be made.
pub fn tunings(lab: &Lab) -> Result<Tunings, TuningError> {
    if lab.hosts.iter().all(|host| host.profile.is_none()) {
        return Ok(lab.hosts.iter().map(|_| None).collect());
    }
    let ground = Ground::survey()?;
    let of_host = |host: &Host| host.profile.as_ref().map(|profile| ground.tuning(profile, host)).transpose();
    lab.hosts.iter().map(of_host).collect()
}

/// The lab with these settings among those of its hosts and nodes.
pub(super) fn lay(lab: &Lab, tunings: &Tunings) -> Lab {
    let mut lab = lab.clone();
    let shares: Vec<bool> =
        lab.nodes.iter().map(|node| node.networks(&lab).any(|network| network.driver == DriverKind::Host)).collect();
    for (host, tuning) in tunings.enumerate() {
        for chosen in tuning.iter().flat_map(|tuning| &tuning.settings) {
            lab.hosts[host].tune.insert(chosen.name.clone(), chosen.value.clone());
            let nodes = lab.nodes.iter_mut().zip(&shares).filter(|(node, shares)| node.host == host && !**shares);
            for (node, _) in nodes.filter(|_| chosen.in_nodes) {
                node.sysctls.entry(chosen.name.clone()).or_insert_with(|| chosen.value.clone());
            }
        }
    }
    lab
}

/// Facts that rules are held against, and namespaces to try values in.
struct Ground {
    facts: Facts,
    rules: Rules,
    host: OwnedFd,
    /// As most nodes have it. `None` where nodes have the same as hosts.
    node: Option<OwnedNet>,
}

impl Ground {
    fn survey() -> Result<Self, TuningError> {
        let source = Source::machine().map_err(TuningError::of)?;
        let host = create_net().map_err(TuningError::of)?;
        let mut facts = Facts::gather(&source);
        // A new namespace has values of its own, and lacks those that belong to the machine.
        facts.sysctls = with_net(host.as_fd(), || Facts::sysctls(&source)).map_err(TuningError::of)?;
        Ok(Self { facts, rules: Rules::built_in().map_err(TuningError::of)?, host, node: make_net().ok() })
    }

    fn tuning(&self, profile: &Profile, host: &Host) -> Result<Tuning, TuningError> {
        let word = match profile.word {
            ProfileWord::Dtn => rules::Profile::Dtn,
            ProfileWord::Hpc => rules::Profile::Hpc,
            ProfileWord::Server => rules::Profile::Server,
        };
        let rtt = profile.rtt.unwrap_or_else(|| Seconds(word.usual_rtt()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a link's rate in bit/s")]
        let rate = profile.rate.unwrap_or_else(|| Rate(Target::usual_rate(&self.facts) as u64));
        #[expect(clippy::cast_precision_loss, reason = "rules compare orders of magnitude")]
        let target = Target { profile: word, rtt: rtt.0, rate: rate.0 as f64 };
        let mut tuning = Tuning { profile: profile.word, rtt, rate, settings: Vec::new(), left_out: Vec::new() };
        for advice in check(&self.facts, &self.rules, &target).advised() {
            let Some(Wish { key: Key::Sysctl(name), want, rule, why }) = advice.wish() else { continue };
            if !self.belongs(&name)? {
                continue;
            }
            let reason = match host.tune.get(&name) {
                Some(own) => Some(format!("the lab file sets it to `{own}`")),
                None => fault(self.host.as_fd(), &name, &want)?,
            };
            if let Some(reason) = reason {
                tuning.left_out.push(LeftOut { name, value: want, rule, reason });
                continue;
            }
            let in_nodes = match &self.node {
                Some(node) => fault(node.net.as_fd(), &name, &want)?.is_none(),
                None => true,
            };
            let former = advice.is.clone().unwrap_or_default();
            tuning.settings.push(Chosen { name, former, value: want, rule, why, in_nodes });
        }
        Ok(tuning)
    }

    /// Whether each network namespace has its own value.
    fn belongs(&self, name: &str) -> Result<bool, TuningError> {
        let scope = Scope::Namespace("a virtual host is a network namespace".to_owned());
        let is_own = || scope.allows(&Key::Sysctl(name.to_owned())).is_ok();
        with_net(self.host.as_fd(), is_own).map_err(TuningError::of)
    }
}

/// The reason why the kernel does not take a value there.
fn fault(net: BorrowedFd<'_>, name: &str, value: &str) -> Result<Option<String>, TuningError> {
    Ok(match with_net(net, || attempt(name, value)).map_err(TuningError::of)? {
        Verdict::Good => None,
        Verdict::Missing => Some("this kernel has no such setting in a namespace".to_owned()),
        Verdict::Refused(error) => Some(format!("this kernel does not take the value: {error}")),
    })
}

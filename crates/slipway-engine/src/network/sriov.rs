//! Driver `sriov`: each node has a virtual function of a real network card, moved into its namespace.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::{DriverKind, Lab};
use slipway_sys::netlink::{Request, SetLink};

use super::driver::{Driver, End, Port, Probed, members, mtu};
use super::error::{NetworkError, Unsupported};
use super::macvlan::set_inside;
use super::site::Sites;

/// Where the kernel lists network devices (Documentation/ABI/testing/sysfs-class-net).
const CLASS_NET: &str = "/sys/class/net";
/// A virtual function in a node is back in the machine's namespace when the node's namespace ends: the kernel's own doing.
const HINT: &str = "sriov needs a card with SR-IOV switched on in firmware, and functions made: \
                    echo 4 > /sys/class/net/CARD/device/sriov_numvfs";

#[derive(Debug, Default)]
pub(super) struct Sriov {
    /// Free functions of each network's card.
    free: BTreeMap<NetworkId, Vec<String>>,
    nodes: BTreeMap<NodeId, OwnedFd>,
}

/// A card that can have virtual functions.
#[derive(Debug, PartialEq, Eq)]
struct Card {
    name: String,
    /// The number of functions that it could have.
    total: u32,
    /// Those that are network devices in this namespace, so nobody's yet.
    free: Vec<String>,
}

/// The cards below `class_net`, in order of name.
fn cards(class_net: &Path) -> Vec<Card> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let card = |name: String| {
        let device = class_net.join(&name).join("device");
        let total =
            fs::read_to_string(device.join("sriov_totalvfs")).ok()?.trim().parse().ok().filter(|&total| total > 0)?;
        let functions = names(&device).into_iter().filter(|entry| entry.starts_with("virtfn"));
        let free = functions.flat_map(|function| names(&device.join(function).join("net"))).collect();
        Some(Card { name, total, free })
    };
    names(class_net).into_iter().filter_map(card).collect()
}

/// The verdict on these cards.
fn verdict(cards: &[Card]) -> Result<Probed, Unsupported> {
    let cannot = |missing: String| Unsupported { driver: DriverKind::Sriov.into(), missing, hint: HINT.to_owned() };
    if cards.is_empty() {
        return Err(cannot("no network card here has SR-IOV".to_owned()));
    }
    if cards.iter().all(|card| card.free.is_empty()) {
        let could: Vec<_> = cards.iter().map(|card| format!("{} could have {}", card.name, card.total)).collect();
        return Err(cannot(format!("no virtual function is free ({})", could.join(", "))));
    }
    let has: Vec<_> = cards.iter().map(|card| format!("{} free on {}", card.free.len(), card.name)).collect();
    let mechanism = format!("virtual functions of a network card ({})", has.join(", "));
    Ok(Probed { driver: DriverKind::Sriov.into(), mechanism, notes: Vec::new() })
}

impl Driver for Sriov {
    fn probe(&self) -> Result<Probed, Unsupported> {
        verdict(&cards(Path::new(CLASS_NET)))
    }

    fn check(&self, lab: &Lab, network: NetworkId) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let needed = members(lab, network).count();
        let free = functions(of.parent.as_deref(), Path::new(CLASS_NET));
        if free.len() < needed {
            let reason = format!(
                "its {needed} nodes need a virtual function each, and {} are free on {}\nHint: {HINT}",
                free.len(),
                of.parent.as_deref().unwrap_or("any card")
            );
            return Err(NetworkError::impossible(&of.name, reason));
        }
        Ok(())
    }

    fn prepare(&mut self, lab: &Lab, network: NetworkId, _sites: &mut Sites) -> Result<(), NetworkError> {
        let taken: Vec<&String> = self.free.values().flatten().collect();
        let mut free = functions(lab.networks[network].parent.as_deref(), Path::new(CLASS_NET));
        free.retain(|name| !taken.contains(&name));
        free.truncate(members(lab, network).count());
        self.free.insert(network, free);
        Ok(())
    }

    fn attach(
        &mut self,
        lab: &Lab,
        network: NetworkId,
        sites: &mut Sites,
        ends: &[End<'_>],
    ) -> Result<(), NetworkError> {
        let of = &lab.networks[network];
        let links = sites.machine.netlink.links()?;
        for &End { port, interface, netns } in ends {
            let gone = || NetworkError::impossible(&of.name, "a virtual function that was free is not any more");
            let function = self.free.get_mut(&network).and_then(Vec::pop).ok_or_else(gone)?;
            let index = links.iter().find(|link| link.name == function).ok_or_else(gone)?.index;
            let mtu = Some(mtu(lab, network));
            let down = SetLink { index, up: Some(false), mac: Some(interface.mac), mtu, ..SetLink::default() };
            let give = SetLink { index, name: Some(interface.name.clone()), net: Some(netns), ..SetLink::default() };
            sites
                .machine
                .make(Some(network), &[Request::SetLink(down), Request::SetLink(give)])
                .map_err(NetworkError::of(&of.name))?;
            let kept = netns.try_clone_to_owned().map_err(NetworkError::system("keep a node's namespace"))?;
            self.nodes.insert(port.node, kept);
        }
        Ok(())
    }

    fn set_carrier(&mut self, lab: &Lab, port: Port, _sites: &mut Sites, up: bool) -> Result<(), NetworkError> {
        let Some(net) = self.nodes.get(&port.node) else { return Ok(()) };
        set_inside(net, &lab.nodes[port.node].interfaces[port.slot].name, up)
    }
}

/// Free functions, of one card or of all.
fn functions(card: Option<&str>, class_net: &Path) -> Vec<String> {
    let wanted = |of: &Card| card.is_none_or(|name| of.name == name);
    cards(class_net).into_iter().filter(wanted).flat_map(|card| card.free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel shows it: `card0` with three functions, the second in use; `eth0` without SR-IOV.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        let device = root.path().join("card0/device");
        for folder in ["virtfn0/net/vf0", "virtfn1/net", "virtfn2/net/vf2"] {
            fs::create_dir_all(device.join(folder)).expect("a folder");
        }
        fs::write(device.join("sriov_totalvfs"), "8\n").expect("a file");
        fs::create_dir_all(root.path().join("eth0/device")).expect("a folder");
        root
    }

    #[test]
    fn finds_cards_and_their_free_functions() {
        let root = sysfs();
        let free = vec!["vf0".to_owned(), "vf2".to_owned()];
        assert_eq!(cards(root.path()), [Card { name: "card0".to_owned(), total: 8, free: free.clone() }]);
        assert_eq!(functions(None, root.path()), free);
        assert_eq!(functions(Some("card0"), root.path()), free);
        assert!(functions(Some("eth0"), root.path()).is_empty());
    }

    #[test]
    fn what_is_missing_is_said() {
        let refusal = verdict(&[]).expect_err("no card").to_string();
        let expected = "driver sriov cannot run on this machine: no network card here has SR-IOV\nHint: ";
        assert!(refusal.starts_with(expected), "{refusal}");
        let full = Card { name: "card0".to_owned(), total: 8, free: Vec::new() };
        let refusal = verdict(&[full]).expect_err("nothing free").missing;
        assert_eq!(refusal, "no virtual function is free (card0 could have 8)");
        let some = Card { name: "card0".to_owned(), total: 8, free: vec!["vf0".to_owned()] };
        assert_eq!(
            verdict(&[some]).expect("one is free").mechanism,
            "virtual functions of a network card (1 free on card0)"
        );
    }
}

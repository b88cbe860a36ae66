//! The device as a node's `/sys/class` shows it: files that libibverbs and librdmacm read
//! (`Documentation/ABI/stable/sysfs-class-infiniband`).

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use slipway_lab::id::NodeId;
use slipway_lab::model::{Interface, Lab};

use crate::state::LabDir;

/// The device's name.
pub(crate) const NAME: &str = "slipway0";

/// The folder of a node's own that lies over its `/sys/class`.
pub(super) const CLASS: &str = "class";

/// Folders of that one which nodes see without the kernel's own devices: a machine may have a real one.
pub(super) const ALONE: [&str; 3] = ["infiniband", "infiniband_verbs", "misc/rdma_cm"];

/// Its device files in a node. Each swallows what is written: the plug-in and the router answer for them.
pub(super) const NODES: [&str; 2] = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"];

/// The number of `/dev/null` (`Documentation/admin-guide/devices.txt`), which these files are clones of.
const NUMBER: &str = "1:3";

/// Files of a node's device on this machine.
pub(super) fn folder(dir: &LabDir, node: NodeId) -> PathBuf {
    dir.join("verbs").join(node.index().to_string())
}

/// The interfaces of a node on networks with RDMA.
pub(super) fn interfaces(lab: &Lab, node: NodeId) -> impl Iterator<Item = &Interface> {
    lab.nodes[node].interfaces.iter().filter(|interface| lab.networks[interface.network].bypasses.rdma)
}

/// The node's addresses on networks with RDMA, each with the name of its interface. A port lists them in this order.
pub(super) fn addresses(lab: &Lab, node: NodeId) -> Vec<(IpAddr, &str)> {
    let v4 = interfaces(lab, node).map(|one| (IpAddr::V4(one.ipv4), one.name.as_str()));
    let v6 = interfaces(lab, node).filter_map(|one| Some((IpAddr::V6(one.ipv6?), one.name.as_str())));
    // The plug-in knows as many, in this order.
    v4.chain(v6).take(MOST).collect()
}

/// Most identifiers of a port (`slipway_verbs::wire::Reply::Node`).
const MOST: usize = 4;

/// Writes the files of a node's device.
pub(super) fn write(dir: &LabDir, lab: &Lab, node: NodeId) -> io::Result<()> {
    let class = folder(dir, node).join(CLASS);
    for (path, text) in files(&guid(node), &addresses(lab, node)) {
        put(&class.join(path), &text)?;
    }
    Ok(())
}

/// A file of a device that nodes read, whatever this process's mask of modes is.
fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

/// The device's number, as sysfs writes it.
fn guid(node: NodeId) -> String {
    words(&slipway_fast::rdma_wire::guid(node))
}

/// Bytes as sysfs writes identifiers.
fn words(bytes: &[u8]) -> String {
    let word = |two: &[u8]| format!("{:02x}{:02x}", two.first().unwrap_or(&0), two.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).collect::<Vec<String>>().join(":")
}

/// An address as a port's identifier, as sysfs writes it.
fn gid(address: IpAddr) -> String {
    words(&slipway_verbs::broker::gid(address))
}

/// All files, by their paths below `/sys/class`.
fn files(guid: &str, addresses: &[(IpAddr, &str)]) -> Vec<(PathBuf, String)> {
    let mut all: Vec<(PathBuf, String)> = Vec::new();
    let mut add = |path: String, text: &str| all.push((path.into(), format!("{text}\n")));
    // IB_USER_VERBS_ABI_VERSION and RDMA_USER_CM_ABI_VERSION (`include/uapi/rdma`). The driver's own is ours to choose.
    add("infiniband_verbs/abi_version".into(), "6");
    add("infiniband_verbs/uverbs0/abi_version".into(), "1");
    add("infiniband_verbs/uverbs0/dev".into(), NUMBER);
    add("infiniband_verbs/uverbs0/ibdev".into(), NAME);
    add("misc/rdma_cm/abi_version".into(), "4");
    add("misc/rdma_cm/dev".into(), NUMBER);
    let device = format!("infiniband/{NAME}");
    for (name, text) in [
        ("node_type", "1: CA"),
        ("node_guid", guid),
        ("sys_image_guid", guid),
        ("node_desc", "slipway"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hca_type", "slipway"),
        ("board_id", "slipway"),
        ("hw_rev", "0"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/rate", "100 Gb/sec (4X EDR)"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/lid", "0x0"),
        ("ports/1/sm_lid", "0x0"),
        ("ports/1/lid_mask_count", "0"),
        ("ports/1/sm_sl", "0"),
        ("ports/1/cap_mask", "0x04010000"),
        ("ports/1/pkeys/0", "0xffff"),
    ] {
        add(format!("{device}/{name}"), text);
    }
    for (index, (address, interface)) in addresses.iter().enumerate() {
        add(format!("{device}/ports/1/gids/{index}"), &gid(*address));
        add(format!("{device}/ports/1/gid_attrs/types/{index}"), "RoCE v2");
        add(format!("{device}/ports/1/gid_attrs/ndevs/{index}"), interface);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_kernel_writes_them() {
        assert_eq!(guid(NodeId(0x10203)), "0253:4cff:fe01:0203");
        assert_eq!(gid("10.64.0.2".parse().expect("an address")), "0000:0000:0000:0000:0000:ffff:0a40:0002");
        assert_eq!(gid("fd00::1".parse().expect("an address")), "fd00:0000:0000:0000:0000:0000:0000:0001");
    }

    #[test]
    fn a_port_lists_addresses_of_both_families() {
        let addresses = ["10.64.0.2", "fd00::1"].map(|text| (text.parse().expect("an address"), "eth0"));
        let files = files("1", &addresses);
        let of = |path: &str| files.iter().find(|(at, _)| at.ends_with(path)).map(|(_, text)| text.as_str());
        assert_eq!(of("gid_attrs/types/1"), Some("RoCE v2\n"));
        assert_eq!(of("gid_attrs/ndevs/0"), Some("eth0\n"));
        assert_eq!(of("gids/2"), None);
        assert_eq!(of("uverbs0/dev"), Some("1:3\n"));
    }
}

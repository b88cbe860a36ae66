//! What every driver must do: all pairs, both families, on one host and across hosts.

use slipway_engine::network::wait_until_gone;
use slipway_lab::id::{HostId, NetworkId};

use super::lab::{Up, machine_links};

fn across(driver: &str, hosts: u32) -> Up {
    Up::new(&format!("hosts: {hosts}\nnetworks:\n  net: {driver}\nnodes:\n  n:\n    count: 4\n"))
}

#[test]
fn bridge() {
    for hosts in [1, 2] {
        let up = across("bridge", hosts);
        up.all_reach_all();
        assert_eq!(up.fabric.mechanisms()[NetworkId(0)].probed.mechanism, "veth pairs on a Linux bridge");
    }
}

#[test]
fn vxlan() {
    for hosts in [1, 2, 3] {
        let up = across("vxlan", hosts);
        up.all_reach_all();
        assert_eq!(up.fabric.mechanisms()[NetworkId(0)].mtu, 1450);
        assert_eq!(up.links(0)["eth0"].mtu, 1450);
        // The largest packet passes whole, and a larger one is refused by the node itself.
        let target = up.ipv4(1);
        up.must(0, &format!("ping -n -c 1 -W 60 -M do -s {} {target}", 1450 - 28));
        let larger = up.run(0, &format!("ping -n -c 1 -W 60 -M do -s {} {target}", 1450 - 27));
        assert!(String::from_utf8_lossy(&larger.stderr).contains("message too long, mtu=1450"), "{larger:?}");
        if hosts > 1 {
            assert!(
                up.switch_links(HostId(0))["vxlan0"].counters.tx_packets > 0,
                "what crosses hosts crosses the tunnel"
            );
        }
    }
}

#[test]
fn macvlan() {
    for hosts in [1, 2] {
        across("macvlan", hosts).all_reach_all();
    }
}

#[test]
fn host() {
    for hosts in [1, 2] {
        let up = across("host", hosts);
        up.all_reach_all();
        assert!(up.iperf(0, 1) > 100.0);
    }
}

#[test]
fn ovs() {
    for hosts in [1, 2] {
        let up = across("ovs", hosts);
        up.all_reach_all();
        // A userspace datapath that passed on checksums left to hardware would stall TCP.
        let rate = up.iperf(0, 1);
        assert!(rate > 10.0, "{rate} Mb/s over {hosts} hosts");
        assert!(up.place().join("ovs/host1/conf.db").exists(), "everything it keeps is in the lab's folder");
    }
}

#[test]
fn private_macvlan_siblings_do_not_see_each_other() {
    let up = Up::new(
        "hosts: 2\nnetworks:\n  net:\n    driver: macvlan\n    macvlan_mode: private\nnodes:\n  n:\n    count: 3\n",
    );
    // The first and the last are on one host, and reach what is on the other.
    assert!(up.is_silent(0, up.ipv4(2), up.ipv4(1)));
    assert!(!up.is_silent(0, up.ipv4(1), up.ipv4(1)));
}

#[test]
fn tcp_is_right_and_fast_on_a_bridge_with_offloads_and_right_without() {
    let network = |offloads: bool| {
        format!("networks:\n  net:\n    driver: bridge\n    offloads: {offloads}\nnodes:\n  n:\n    count: 2\n")
    };
    let (with, without) = (Up::new(&network(true)), Up::new(&network(false)));
    let features = without.must(0, "ethtool -k eth0");
    for feature in [
        "tx-checksumming: off",
        "tx-tcp-segmentation: off",
        "generic-segmentation-offload: off",
        "generic-receive-offload: off",
    ] {
        assert!(features.contains(feature), "{feature}");
    }
    assert!(with.must(0, "ethtool -k eth0").contains("tcp-segmentation-offload: on"));
    assert!(with.iperf(0, 1) > 10.0);
    assert!(without.iperf(0, 1) > 10.0);
}

#[test]
fn a_gateway_joins_networks_of_different_drivers() {
    let up = Up::new(
        "hosts: 2\nnetworks:\n  left: bridge\n  right: vxlan\nnodes:\n  a:\n    networks: [left]\n  b:\n    networks: [right]\n  \
         gw:\n    networks: [left, right]\n    gateway: true\n",
    );
    let index = |name: &str| up.lab.nodes.position(|node| node.name == name).expect("a node");
    let (a, b) = (index("a"), index("b"));
    assert!(up.ping(a, up.ipv4(b)), "{}", up.must(a, "ip route"));
    assert!(up.ping(a, up.ipv6(b)), "{}", up.must(a, "ip -6 route"));
    assert!(up.ping(b, up.ipv4(a)));
    assert!(up.ping(b, up.ipv6(a)));
}

#[test]
fn several_networks_each_with_their_settings() {
    let up = Up::new(
        "networks:\n  front:\n    driver: bridge\n    mtu: 9000\n  back:\n    driver: bridge\n    ipv6: false\nnodes:\n  n:\n    count: 3\n    \
         networks: [front, back]\n",
    );
    up.all_reach_all();
    assert_eq!((up.links(0)["eth0"].mtu, up.links(0)["eth1"].mtu), (9000, 1500));
    up.must(0, &format!("ping -n -c 1 -W 60 -M do -s {} {}", 9000 - 28, up.ipv4(1)));
    assert_eq!(up.must(0, "ip -6 -o address show dev eth1"), "", "without IPv6 there is not even a link-local address");
}

#[test]
fn the_machines_own_network_is_left_as_it_was() {
    let before = machine_links();
    for driver in ["host", "bridge", "ovs", "macvlan", "vxlan"] {
        drop(across(driver, 2));
    }
    let up = Up::new("hosts: machine\nnetworks:\n  net: host\nnodes:\n  n:\n    count: 2\n");
    up.all_reach_all();
    assert_eq!(machine_links().len(), before.len() + 2, "a device holds each node's addresses");
    drop(up);
    wait_until_gone(std::process::id(), std::time::Duration::from_mins(1)).expect("they go");
    assert_eq!(machine_links(), before);
}

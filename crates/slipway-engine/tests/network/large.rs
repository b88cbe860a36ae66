//! More nodes than a bridge has ports, and than a node can know.

use super::lab::Up;

#[test]
fn a_network_of_1100_nodes() {
    let up = Up::new("hosts: 1\nnodes:\n  n:\n    count: 1100\n");
    assert!(
        up.fabric.mechanisms()[0].devices.len() > 2,
        "more than one bridge: {:?}",
        up.fabric.mechanisms()[0].devices
    );
    // Same bridge, next bridge, both ways, both families.
    for (from, to) in [(0, 1), (0, 1099), (1099, 0), (500, 1050)] {
        assert!(up.ping(from, up.ipv4(to)), "{from} to {to}");
        assert!(up.ping(from, up.ipv6(to)), "{from} to {to} by IPv6");
    }
}

#[test]
fn the_bridge_answers_for_nodes_that_cannot_know_all() {
    for hosts in [1, 2] {
        for driver in ["bridge", "vxlan"] {
            let up = Up::new(&format!(
                "hosts: {hosts}\nnetworks:\n  net:\n    driver: {driver}\n    ipv6: false\nnodes:\n  n:\n    count: 300\n"
            ));
            let bystander = 150;
            let before = up.links(bystander)["eth0"].counters.rx_packets;
            for to in [1, 2, 100, 299] {
                assert!(up.ping(0, up.ipv4(to)), "{driver} on {hosts} hosts: reaches {to}");
            }
            assert!(up.must(0, "ip neigh show").contains("lladdr"), "it asked, and was answered");
            assert_eq!(
                up.links(bystander)["eth0"].counters.rx_packets,
                before,
                "{driver} on {hosts} hosts: nobody else was asked"
            );
        }
    }
}

//! Links cut and given back, and what cannot be made.

use slipway_engine::network::{plan, survey};
use slipway_lab::id::{NetworkId, NodeId};
use slipway_lab::model::DriverWord;
use slipway_sys::netlink::Netlink;

use super::lab::{Up, build, parse};

#[test]
fn a_cut_link_keeps_the_nodes_addresses_and_routes() {
    for driver in ["bridge", "vxlan", "ovs"] {
        let mut up = Up::new(&format!("hosts: 2\nnetworks:\n  net: {driver}\nnodes:\n  n:\n    count: 3\n"));
        // The link-local address is ready a moment later than the others.
        // Nor does the node see its link come and go before the kernel acts on it.
        let state = |up: &Up| {
            up.inside(NodeId(0), || Netlink::open()?.has_carrier("eth0")).expect("looks");
            (up.must(0, "ip -o address").replace(" tentative", ""), up.must(0, "ip route"))
        };
        let before = state(&up);
        up.fabric.set_carrier(&up.lab, NodeId(0), false).expect("cuts");
        assert!(up.is_silent(1, up.ipv4(0), up.ipv4(2)), "{driver}");
        up.fabric.set_carrier(&up.lab, NodeId(0), true).expect("gives back");
        assert_eq!(state(&up), before);
        up.all_reach_all();
    }
}

#[test]
fn a_node_that_was_stopped_is_configured_again() {
    for driver in ["bridge", "macvlan"] {
        let mut up = Up::new(&format!("networks:\n  net: {driver}\nnodes:\n  n:\n    count: 3\n"));
        up.fabric.set_carrier(&up.lab, NodeId(0), false).expect("cuts");
        assert!(up.is_silent(1, up.ipv4(0), up.ipv4(2)), "{driver}");
        up.must(0, "ip address flush dev eth0");
        up.fabric.set_carrier(&up.lab, NodeId(0), true).expect("gives back");
        up.configure(NodeId(0));
        up.all_reach_all();
    }
}

#[test]
fn nothing_passes_before_the_network_is_opened() {
    let up = Up::new("nodes:\n  n:\n    count: 2\n");
    // Attached and configured, and no packet sent: no probe, no report, no solicitation.
    let sent = up.links(0)["eth0"].counters.tx_packets;
    assert!(sent <= 2, "{sent} packets by itself");
    up.all_reach_all();
}

#[test]
fn an_mtu_too_large_for_the_tunnel_names_the_number() {
    let mut lab = parse("hosts: 2\nnetworks:\n  net: vxlan\nnodes:\n  n:\n    count: 2\n");
    lab.networks[NetworkId(0)].mtu = Some(1500);
    let error = plan(&lab).expect_err("1500 and 50 is more than 1500").to_string();
    assert!(error.contains("ask for 1450 or less") && error.contains("an mtu of 1550 or more"), "{error}");
}

#[test]
fn what_is_missing_is_said() {
    let lab = parse(
        "hosts: machine\nnetworks:\n  net:\n    driver: macvlan\n    parent: nothere0\nnodes:\n  n:\n    count: 2\n",
    );
    let error = build(&lab).expect_err("no such interface").to_string();
    assert!(error.contains("this machine has no interface nothere0\nHint: "), "{error}");
}

#[test]
fn the_survey_names_every_driver() {
    use DriverWord::{Bridge, Fast, Host, Macvlan, Ovs, Sriov, Vxlan};
    let kinds: Vec<_> = survey().into_iter().map(|one| one.map_or_else(|no| no.driver, |yes| yes.driver)).collect();
    assert_eq!(kinds, [Host, Bridge, Ovs, Macvlan, Vxlan, Sriov, Fast]);
}

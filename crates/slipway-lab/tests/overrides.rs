//! One file under several drivers, as `slipway compare` resolves it.

use std::path::Path;

use slipway_document::errors::DocumentErrors;
use slipway_lab::id::NetworkId;
use slipway_lab::model::{DriverKind, DriverWord, Lab, ProfileWord};
use slipway_lab::{Overrides, TuneChoice, parse_with};

const WIRED: &str = "
hosts: 2
networks: {wire: {driver: macvlan, parent: eth0, macvlan_mode: private}, tunnel: {driver: vxlan, vni: 9}}
nodes: {a: {networks: [wire]}, b: {networks: [tunnel]}}
";

fn under(driver: DriverWord, text: &str) -> Result<Lab, DocumentErrors> {
    let overrides =
        Overrides { driver: Some(driver), name: Some(format!("compare-{driver}")), tune: None, machines: None };
    parse_with("lab.yaml", text, Path::new("/"), &overrides)
}

#[test]
fn every_network_has_the_driver_and_only_its_settings() {
    for driver in [DriverWord::Host, DriverWord::Bridge, DriverWord::Ovs, DriverWord::Macvlan, DriverWord::Vxlan] {
        let lab = under(driver, WIRED).unwrap_or_else(|errors| panic!("{driver}: {}", errors.plain()));
        assert_eq!(lab.name, format!("compare-{driver}"));
        for network in &lab.networks {
            assert_eq!(network.word(), driver);
            assert_eq!(network.vni.is_some(), driver == DriverWord::Vxlan);
        }
        assert_eq!(lab.networks[NetworkId(0)].parent.is_some(), driver == DriverWord::Macvlan);
    }
    let vnis: Vec<_> = under(DriverWord::Vxlan, WIRED).unwrap().networks.iter().map(|network| network.vni).collect();
    assert_eq!(vnis, [Some(1), Some(9)]);
}

/// The same lab, faster: what is beneath follows from the hosts, and takes what was written for it.
#[test]
fn a_fast_network_has_a_bridge_beneath_or_vxlan_across_hosts() {
    let beneath = |text| {
        let lab = under(DriverWord::Fast, text).unwrap_or_else(|errors| panic!("{}", errors.plain()));
        lab.networks.iter().map(|network| (network.word(), network.driver, network.vni)).collect::<Vec<_>>()
    };
    let fast = DriverWord::Fast;
    assert_eq!(beneath(WIRED), [(fast, DriverKind::Vxlan, Some(1)), (fast, DriverKind::Vxlan, Some(9))]);
    assert_eq!(beneath("nodes: {n: }"), [(fast, DriverKind::Bridge, None)]);
    assert_eq!(beneath("networks: {v: {driver: vxlan, vni: 9}}\nnodes: {n: }"), [(fast, DriverKind::Bridge, None)]);
    assert!(under(fast, "hosts: machine\nnetworks: {a: host}\nnodes: {n: }").is_err());
}

#[test]
fn addresses_stay_the_same_under_every_driver() {
    let addresses = |driver| {
        let lab = under(driver, WIRED).unwrap();
        lab.nodes.into_iter().flat_map(|node| node.interfaces).map(|i| (i.ipv4, i.ipv6)).collect::<Vec<_>>()
    };
    assert_eq!(addresses(DriverWord::Host), addresses(DriverWord::Vxlan));
}

#[test]
fn what_a_driver_cannot_do_is_refused() {
    let two = "networks: {a: bridge, b: bridge}\nnodes:\n  r: {networks: [a, b], gateway: true}\n";
    let errors = under(DriverWord::Host, two).unwrap_err();
    assert!(errors.plain().starts_with("lab.yaml:3:18: a node on network `a` (driver host) cannot be on others too"));
    let machine = "hosts: machine\nnetworks: {a: host}\nnodes: {n: }";
    assert!(under(DriverWord::Bridge, machine).is_err());
    let sriov = under(DriverWord::Sriov, "nodes: {n: }").unwrap_err();
    assert!(sriov.plain().contains("driver sriov needs a parent interface"), "{}", sriov.plain());
}

/// Conditions are never left aside: under a driver that cannot make them the file has no meaning.
#[test]
fn conditions_and_driver_host_exclude_each_other() {
    for conditions in ["networks: {net: {conditions: {delay: 5ms}}}", "links: [{between: [n1, n2], delay: 5ms}]"] {
        let text = format!("{conditions}\nnodes: {{n: {{count: 2}}}}");
        assert!(under(DriverWord::Vxlan, &text).is_ok());
        let errors = under(DriverWord::Host, &text).unwrap_err();
        assert!(errors.plain().contains("driver host cannot make conditions"), "{}", errors.plain());
        assert!(errors.plain().contains("leave driver host out of the comparison"), "{}", errors.plain());
    }
}

/// A host that has the profile keeps its path and its own settings, and all are tuned so.
#[test]
fn every_host_has_the_profile_that_is_chosen() {
    let text = "
hosts: {a: , b: {tune: {profile: dtn, rtt: 80ms, net.ipv4.tcp_sack: 0}}, c: {tune: {net.ipv4.tcp_sack: 0}}}
nodes: {n: {count: 3}}
";
    let hosts = |choice| {
        let overrides = Overrides { tune: Some(choice), ..Overrides::default() };
        let lab = parse_with("lab.yaml", text, Path::new("/"), &overrides).unwrap();
        let word = |host: &slipway_lab::model::Host| host.profile.map(|profile| (profile.word, profile.rtt.is_some()));
        lab.hosts.iter().map(|host| (word(host), host.tune.len())).collect::<Vec<_>>()
    };
    let (dtn, hpc) = (ProfileWord::Dtn, ProfileWord::Hpc);
    assert_eq!(hosts(TuneChoice::File), [(None, 0), (Some((dtn, true)), 1), (None, 1)]);
    assert_eq!(hosts(TuneChoice::None), [(None, 0), (None, 0), (None, 0)]);
    assert_eq!(
        hosts(TuneChoice::Profile(dtn)),
        [(Some((dtn, false)), 0), (Some((dtn, true)), 1), (Some((dtn, false)), 0)]
    );
    assert_eq!(
        hosts(TuneChoice::Profile(hpc)),
        [(Some((hpc, false)), 0), (Some((hpc, true)), 0), (Some((hpc, false)), 0)]
    );
}

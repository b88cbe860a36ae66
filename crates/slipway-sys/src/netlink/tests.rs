//! On real namespaces that each test makes: run as root.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::ns::{create_net, with_net};

fn namespace() -> (OwnedFd, Netlink) {
    let net = create_net().expect("these tests need root, to make network namespaces");
    let netlink = with_net(net.as_fd(), Netlink::open).expect("entering works").expect("a socket opens");
    (net, netlink)
}

fn named(name: &str, index: u32) -> NewLink {
    NewLink { name: name.to_owned(), index: Some(index), up: true, ..NewLink::default() }
}

fn veth(near: NewLink, far: &str) -> Request<'static> {
    Request::AddVeth(Veth { link: near, peer: Peer { name: far.to_owned(), ..Peer::default() } })
}

#[test]
fn one_message_makes_a_port_and_its_peer_elsewhere() {
    let (_host, mut host) = namespace();
    let (node, mut inside) = namespace();
    let mac = [2, 0, 0, 0, 0, 7];
    let peer =
        Peer { name: "eth0".into(), mac: Some(mac), mtu: Some(1400), net: Some(node.as_fd()), ..Peer::default() };
    let port = NewLink { mtu: Some(1400), master: Some(10), ..named("n1.0", 11) };
    host.run(&[Request::AddBridge(Bridge { link: named("br", 10) }), Request::AddVeth(Veth { link: port, peer })])
        .expect("the kernel makes them");

    let port = host.link("n1.0").expect("the near end is here");
    assert_eq!(
        (port.index, port.master, port.mtu, port.up, port.kind.as_deref()),
        (11, Some(10), 1400, true, Some("veth"))
    );
    let eth0 = inside.link("eth0").expect("the peer is there");
    inside
        .run(&[Request::SetLink(SetLink { index: eth0.index, up: Some(true), ..SetLink::default() })])
        .expect("it goes up");
    let eth0 = inside.link("eth0").expect("the peer is there");
    assert_eq!((eth0.mac, eth0.mtu, eth0.up, eth0.carrier), (Some(mac), 1400, true, true));

    host.run(&[Request::SetLink(SetLink { index: 11, up: Some(false), ..SetLink::default() })])
        .expect("a port goes down");
    let eth0 = inside.link("eth0").expect("still there");
    assert!(eth0.up && !eth0.carrier, "the peer keeps its state and loses its carrier");

    host.run(&[Request::DeleteLink(11)]).expect("deletes");
    assert!(inside.link("eth0").is_err(), "a peer goes with its other end");
}

#[test]
fn a_namespace_keeps_its_first_number() {
    let (_host, mut host) = namespace();
    let (node, _inside) = namespace();
    let number = |number| Request::NumberNet { net: node.as_fd(), number };
    host.run(&[number(7), number(6)]).expect("the second changes nothing");
}

#[test]
fn a_refusal_names_the_request_and_the_rest_still_runs() {
    let (_net, mut netlink) = namespace();
    let requests = [veth(named("a", 10), "b"), veth(named("a", 11), "c"), veth(named("d", 12), "e")];
    let NetlinkError::Refused(refused) = netlink.run(&requests).expect_err("the name is taken") else {
        panic!("the kernel refuses")
    };
    assert_eq!(refused.len(), 1);
    assert!(refused[0].to_string().starts_with("create veth a and its peer c: File exists"), "{}", refused[0]);
    assert!(netlink.link("d").is_ok());
    assert!(netlink.link("c").is_err());
}

#[test]
fn the_kernels_own_words_are_kept() {
    let (_net, mut netlink) = namespace();
    netlink.run(&[veth(named("a", 10), "b")]).expect("makes");
    let bad = Request::SetLink(SetLink { index: 10, mtu: Some(70_000), ..SetLink::default() });
    let error = netlink.run(&[bad]).expect_err("too large for veth").to_string();
    assert!(error.contains("the kernel says: mtu greater than device maximum"), "{error}");
}

#[test]
fn thousands_of_requests_and_of_refusals_fit() {
    let (_net, mut netlink) = namespace();
    netlink.run(&[veth(named("a", 10), "b")]).expect("makes");
    let neighbours = |index| -> Vec<_> {
        (0..5_000u32)
            .map(|i| Request::AddNeighbour {
                index,
                address: Ipv4Addr::from(0x0a00_0000 + i).into(),
                mac: [2, 0, 0, 0, 0, 1],
            })
            .collect()
    };
    netlink.run(&neighbours(10)).expect("permanent entries are not limited");
    netlink.run(&neighbours(10)).expect("they replace what is there");
    let NetlinkError::Refused(refused) = netlink.run(&neighbours(99)).expect_err("no such device") else {
        panic!("the kernel refuses")
    };
    assert_eq!(refused.len(), 5_000);
    assert_eq!(netlink.links().expect("the socket is in step").len(), 3);
}

#[test]
fn addresses_and_routes_are_usable_at_once() {
    let (net, mut netlink) = namespace();
    let watch = with_net(net.as_fd(), AddressWatch::open).expect("entering works").expect("a socket opens");
    let v4: IpAddr = "10.64.0.1".parse().expect("address");
    let v6: IpAddr = "fd53:6c69:7000::1".parse().expect("address");
    netlink
        .run(&[
            veth(named("a", 10), "b"),
            Request::AddAddress { index: 10, address: v4, prefix: 16, subnet_route: true },
            Request::AddAddress { index: 10, address: v6, prefix: 64, subnet_route: true },
            Request::AddRoute {
                to: "0.0.0.0".parse().expect("any"),
                prefix: 0,
                via: Some("10.64.0.9".parse().expect("address")),
                index: None,
                source: None,
            },
            Request::AddRoute {
                to: "::".parse().expect("any"),
                prefix: 0,
                via: Some("fd53:6c69:7000::9".parse().expect("a")),
                index: Some(10),
                source: None,
            },
            Request::AddNeighbour {
                index: 10,
                address: "fd53:6c69:7000::9".parse().expect("a"),
                mac: [2, 0, 0, 0, 0, 9],
            },
        ])
        .expect("all accepted");
    watch.wait(vec!["fd53:6c69:7000::1".parse().expect("address")]).expect("the kernel announces it");
    for address in [v4, v6] {
        with_net(net.as_fd(), || std::net::UdpSocket::bind((address, 0)))
            .expect("enters")
            .expect("an address without DAD can be bound at once");
    }
}

#[test]
fn overlay_and_macvlan_devices() {
    let (_net, mut netlink) = namespace();
    let (node, mut inside) = namespace();
    let remote = Forward::Remote("10.63.0.2".parse().expect("address"));
    let other = Forward::Remote("10.63.0.3".parse().expect("address"));
    let vxlan = Vxlan {
        link: named("vx", 20),
        vni: 77,
        local: "10.63.0.1".parse().expect("address"),
        port: 4789,
        lower: 10,
        net: None,
    };
    let macvlan = Macvlan {
        link: NewLink { name: "eth0".into(), up: true, ..NewLink::default() },
        parent: 10,
        mode: MacvlanMode::Bridge,
        net: Some(node.as_fd()),
    };
    netlink
        .run(&[
            veth(named("uplink", 10), "b"),
            Request::AddAddress {
                index: 10,
                address: "10.63.0.1".parse().expect("address"),
                prefix: 16,
                subnet_route: true,
            },
            Request::AddVxlan(vxlan),
            Request::AddForwarding { index: 20, mac: [2, 0, 0, 0, 0, 1], to: remote },
            Request::AddForwarding { index: 20, mac: [0; 6], to: remote },
            Request::AddForwarding { index: 20, mac: [0; 6], to: other },
            Request::DeleteForwarding { index: 20, mac: [2, 0, 0, 0, 0, 1], to: remote },
            Request::AddBridge(Bridge { link: named("br", 21) }),
            Request::SetLink(SetLink { index: 20, master: Some(21), ..SetLink::default() }),
            Request::AddForwarding { index: 20, mac: [2, 0, 0, 0, 0, 2], to: Forward::Port },
            Request::SetBridgePort(BridgePort {
                index: 20,
                neigh_suppress: Some(true),
                learning: Some(false),
                ..BridgePort::default()
            }),
            Request::AddMacvlan(macvlan),
        ])
        .expect("all accepted");
    assert_eq!(netlink.link("vx").expect("there").kind.as_deref(), Some("vxlan"));
    assert_eq!(inside.link("eth0").expect("made in the other namespace").kind.as_deref(), Some("macvlan"));
}

#[test]
fn offloads_switch() {
    let (_net, mut netlink) = namespace();
    netlink.run(&[veth(named("a", 10), "b")]).expect("makes");
    for offload in Offload::ALL {
        for on in [false, true] {
            netlink.set_offload("a", offload, on).expect("veth can");
            assert_eq!(netlink.offload("a", offload).expect("reads"), on, "{offload:?}");
        }
    }
    let error = netlink.set_offload("nothing", Offload::Tso, false).expect_err("no such device");
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}

//! On real namespaces that each test makes: run as root.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::bpf::Object;
use crate::netlink::{NewLink, Peer, Request, SetLink, Veth};
use crate::ns::{create_net, with_net};

const DEVICE: u32 = 10;

fn namespace() -> (OwnedFd, Netlink) {
    let net = create_net().expect("these tests need root, to make network namespaces");
    let mut netlink = with_net(net.as_fd(), Netlink::open).expect("entering works").expect("a socket opens");
    let link = NewLink { name: "eth0".into(), index: Some(DEVICE), up: true, ..NewLink::default() };
    let peer = Peer { name: "far".into(), ..Peer::default() };
    netlink.run(&[Request::AddVeth(Veth { link, peer })]).expect("makes a device");
    (net, netlink)
}

fn at_root(qdisc: Qdisc) -> Request<'static> {
    Request::ReplaceQdisc(ReplaceQdisc { index: DEVICE, parent: Handle::ROOT, handle: 1, qdisc })
}

#[test]
fn programs_are_put_replaced_and_taken_away() {
    let (_net, mut netlink) = namespace();
    let object = Object::new("test", include_bytes!("../../../bpf/test.bpf.o"));
    let program = |result: i32| {
        let ready = object.with(&[("result", &result.to_ne_bytes())], &[]);
        ready.and_then(|ready| ready.load("constant")).expect("loads")
    };
    let (first, second) = (program(0), program(2));
    let filter = |direction, program: &'static str, fd| {
        Request::AddBpfFilter(BpfFilter { index: DEVICE, direction, order: 1, program: fd, name: program })
    };
    let error = netlink.run(&[filter(Direction::Egress, "gate", first.as_fd())]).expect_err("no place yet");
    assert!(error.to_string().starts_with("run program gate on egress of device 10: "), "{error}");
    netlink
        .run(&[
            Request::AddClsact(DEVICE),
            filter(Direction::Egress, "gate", first.as_fd()),
            filter(Direction::Ingress, "gate", first.as_fd()),
            filter(Direction::Egress, "gate", second.as_fd()),
        ])
        .expect("the kernel takes them");
    let kinds = |netlink: &mut Netlink| -> Vec<String> {
        netlink.qdiscs(DEVICE).expect("lists").into_iter().map(|qdisc| qdisc.kind).collect()
    };
    assert!(kinds(&mut netlink).contains(&"clsact".to_owned()));
    assert!(netlink.run(&[Request::AddClsact(DEVICE)]).is_err(), "what is there was not made by us");
    netlink.run(&[Request::DeleteClsact(DEVICE)]).expect("takes it away");
    assert!(!kinds(&mut netlink).contains(&"clsact".to_owned()));
    netlink
        .run(&[Request::AddIngress(DEVICE), filter(Direction::Ingress, "gate", first.as_fd())])
        .expect("the kernel takes a program on ingress alone");
    assert!(kinds(&mut netlink).contains(&"ingress".to_owned()));
}

#[test]
fn a_token_bucket_takes_its_place_and_is_changed_in_it() {
    let (_net, mut netlink) = namespace();
    for rate in [125_000, 12_500_000_000] {
        let tbf = Tbf { rate, burst: 10_000, limit: 100_000 };
        netlink.run(&[at_root(Qdisc::Tbf(tbf))]).expect("this kernel has tbf");
        let found = netlink.qdiscs(DEVICE).expect("lists");
        assert_eq!(found.iter().map(|qdisc| qdisc.kind.as_str()).collect::<Vec<_>>(), ["tbf"]);
        assert_eq!((found[0].handle, found[0].drops), (Handle { major: 1, minor: 0 }, 0));
    }
    let tbf = Tbf { rate: 125_000, burst: 0, limit: 100_000 };
    let before = netlink.qdiscs(DEVICE).expect("lists");
    let error = netlink.run(&[at_root(Qdisc::Tbf(tbf))]).expect_err("no burst").to_string();
    assert!(error.starts_with("put qdisc tbf at root of device 10: Invalid argument"), "{error}");
    assert_eq!(netlink.qdiscs(DEVICE).expect("lists"), before);
    netlink.run(&[Request::DeleteQdisc { index: DEVICE, parent: Handle::ROOT }]).expect("takes it away");
    assert!(netlink.qdiscs(DEVICE).expect("lists").iter().all(|qdisc| qdisc.kind != "tbf"));
}

/// The kernel says either that it takes every option, or that it has no netem at all; nothing else.
#[test]
fn netem_is_taken_or_unknown() {
    let (_net, mut netlink) = namespace();
    let distributions = [Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal];
    let losses = [
        Loss::Random(0.01),
        Loss::GilbertElliott { p: 0.01, r: 0.1, one_minus_h: 0.7, one_minus_k: 0.001 },
        Loss::FourState { p13: 0.01, p31: 0.1, p32: 0.05, p23: 0.5, p14: 0.001 },
    ];
    for (distribution, loss) in distributions.into_iter().zip(losses) {
        let netem = Netem {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(1),
            distribution: Some(distribution),
            loss,
            reorder: 0.1,
            rate: Some(12_500_000_000),
            seed: Some(7),
            ..Netem::default()
        };
        match netlink.run(&[at_root(Qdisc::Netem(netem))]) {
            Ok(()) => assert!(netlink.qdiscs(DEVICE).expect("lists").iter().any(|qdisc| qdisc.kind == "netem")),
            Err(error) => assert!(error.to_string().contains("Specified qdisc kind is unknown"), "{error}"),
        }
    }
}

#[test]
fn functional_blocks_and_segment_limits() {
    let (_net, mut netlink) = namespace();
    let link = NewLink { name: "ifb0".into(), index: Some(11), up: true, ..NewLink::default() };
    let set = SetLink { index: DEVICE, gso_max_segs: Some(1), tx_queue_len: Some(4096), ..SetLink::default() };
    assert_eq!(Request::SetLink(set.clone()).to_string(), "set device 10 gso_max_segs 1 txqueuelen 4096");
    netlink.run(&[Request::AddIfb(link), Request::SetLink(set)]).expect("this kernel has ifb");
    assert_eq!(netlink.link("ifb0").expect("there").kind.as_deref(), Some("ifb"));
}

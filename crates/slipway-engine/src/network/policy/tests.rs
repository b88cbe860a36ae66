//! The programs decide as a reader of the rules would.

use std::collections::HashSet;
use std::path::Path;

use proptest::prelude::*;
use slipway_fast::policy::{Decision, Policy};
use slipway_lab::id::NodeId;
use slipway_lab::policy::{Rates, Verdict};

use super::*;

const NODES: usize = 4;
const TC_ACT_SHOT: i32 = slipway_sys::bpf::TC_ACT_SHOT;

fn lab() -> Lab {
    let text = format!("networks: {{net: fast}}\nnodes: {{n: {{count: {NODES}}}}}\n");
    slipway_lab::parse("lab.yaml", &text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()))
}

fn mac(lab: &Lab, node: usize) -> Mac {
    lab.nodes[NodeId(node)].interfaces[0].mac
}

/// What a packet carries.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Tcp {
        from: u16,
        to: u16,
        flags: u8,
    },
    Udp {
        from: u16,
        to: u16,
    },
    Ping(u16),
    Pong(u16),
    /// That one node could not reach another.
    Error {
        by: usize,
        about: usize,
    },
    /// Says which way to send.
    Leads,
    Sctp,
    /// Not the first of a datagram.
    Fragment,
    /// Of TCP, behind a header that says nothing.
    Behind {
        to: u16,
    },
    Discovery,
    /// A tag within a tag, and in it TCP.
    Tagged {
        to: u16,
    },
}

const SYN: u8 = 2;
const ACK: u8 = 0x10;

fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
    header.extend([0; 8]);
    header.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    header
}

impl What {
    /// Protocol and content, of IPv4 or IPv6.
    fn content(&self, ipv6: bool) -> (u8, Vec<u8>) {
        let icmp = if ipv6 { 58 } else { 1 };
        let message = |kind: u8, number: u16| {
            let [high, low] = number.to_be_bytes();
            (icmp, vec![kind, 0, 0, 0, high, low, 0, 0])
        };
        match *self {
            Self::Tcp { from, to, flags } => (6, tcp(from, to, flags)),
            Self::Udp { from, to } => (17, [from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat()),
            Self::Ping(number) => message(if ipv6 { 128 } else { 8 }, number),
            Self::Pong(number) => message(if ipv6 { 129 } else { 0 }, number),
            Self::Error { by, about } => {
                let (icmp, mut content) = message(if ipv6 { 1 } else { 3 }, 0);
                // The quoted packet, up to its addresses.
                content.extend(vec![0; if ipv6 { 8 } else { 12 }]);
                for node in [by, about] {
                    let interface = &lab().nodes[NodeId(node)].interfaces[0];
                    match interface.ipv6.filter(|_| ipv6) {
                        Some(address) => content.extend(address.octets()),
                        None => content.extend(interface.ipv4.octets()),
                    }
                }
                (icmp, content)
            }
            Self::Leads => message(if ipv6 { 134 } else { 5 }, 0),
            Self::Discovery => message(135, 0),
            Self::Sctp => (132, tcp(80, 80, SYN)),
            Self::Fragment => (if ipv6 { 44 } else { 17 }, vec![17, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
            // Eight bytes of padding as destination options (RFC 8200, 4.6).
            Self::Behind { to } => (60, [vec![6, 0, 1, 4, 0, 0, 0, 0], tcp(5, to, SYN)].concat()),
            Self::Tagged { to } => (6, tcp(5, to, SYN)),
        }
    }

    fn frame(&self, from: Mac, to: Mac, ipv6: bool) -> Vec<u8> {
        let (protocol, content) = self.content(ipv6);
        let mut frame = [to, from].concat();
        if matches!(self, Self::Tagged { .. }) {
            frame.extend([0x88, 0xa8, 0, 0, 0x81, 0, 0, 0]);
        }
        if ipv6 {
            let length = u16::try_from(content.len()).expect("short").to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
            frame.extend([0xfd; 32]);
        } else {
            let fragment = if *self == Self::Fragment { [0, 1] } else { [0x40, 0] };
            // With an option, for it to be passed over: two no-operations and the end.
            frame.extend([8, 0, 0x46, 0, 0, 0, 0, 0, fragment[0], fragment[1], 64, protocol, 0, 0]);
            frame.extend([10; 8]);
            frame.extend([1, 1, 0, 0]);
        }
        frame.extend(content);
        frame
    }
}

/// The rules as they read, and what was asked and may be answered.
struct Reader {
    rules: Vec<Rule>,
    policy: Policy,
    /// Rules about all ports, which are all that is about what has none.
    whole: Policy,
    asked: HashSet<(NodeId, NodeId, u16, u16, u8)>,
}

impl Reader {
    fn new(rules: Vec<Rule>) -> Self {
        let whole: Vec<Rule> = rules.iter().filter(|rule| rule.ports.is_empty()).cloned().collect();
        let policy = Policy::new(&rules, NODES);
        Self { policy, whole: Policy::new(&whole, NODES), rules, asked: HashSet::new() }
    }

    fn about(&self, client: NodeId, server: NodeId) -> impl Iterator<Item = &Rule> {
        let is_in = |nodes: &Option<Vec<NodeId>>, node| nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
        self.rules.iter().filter(move |rule| is_in(&rule.from, client) && is_in(&rule.to, server))
    }

    fn opens_any(&self, client: NodeId, server: NodeId) -> bool {
        let mut about = self.about(client, server);
        about
            .find_map(|rule| if rule.is_free() { Some(true) } else { rule.ports.is_empty().then_some(false) })
            .unwrap_or(true)
    }

    /// Whether no rule about the two needs to see a port.
    fn shows_all(&self, from: NodeId, to: NodeId) -> bool {
        self.about(from, to).all(|rule| rule.ports.is_empty())
    }

    fn lets_pass(&mut self, from: NodeId, to: NodeId, what: &What, ipv6: bool) -> bool {
        let free = |decision: Decision| matches!(decision, Decision::Allow(terms) if terms.is_free());
        if self.about(from, to).chain(self.about(to, from)).all(Rule::is_free) {
            return true;
        }
        let whole = free(self.whole.decide(from, to, 0));
        let opens = |port: u16| if port == 0 { whole } else { free(self.policy.decide(from, to, port)) };
        let icmp = if ipv6 { 58 } else { 1 };
        match *what {
            What::Tcp { to: port, flags, .. } if flags & (SYN | ACK) == SYN => opens(port),
            What::Tcp { from: back, to: port, .. } => {
                let reverse =
                    if back == 0 { self.whole.decide(to, from, 0) } else { self.policy.decide(to, from, back) };
                opens(port) || free(reverse)
            }
            What::Udp { from: back, to: port } if opens(port) => {
                self.asked.insert((from, to, back, port, 17));
                true
            }
            What::Udp { from: back, to: port } => self.asked.contains(&(to, from, port, back, 17)),
            What::Ping(number) if whole => {
                self.asked.insert((from, to, number, 0, icmp));
                true
            }
            What::Pong(number) => whole || self.asked.contains(&(to, from, number, 0, icmp)),
            What::Error { .. } => self.opens_any(from, to) || self.opens_any(to, from),
            What::Discovery | What::Leads if ipv6 => true,
            What::Fragment | What::Tagged { .. } | What::Behind { .. } | What::Sctp => {
                self.shows_all(from, to) && whole
            }
            // A neighbour solicitation's number means nothing in IPv4.
            What::Ping(_) | What::Discovery | What::Leads => whole,
        }
    }
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0_u16..8, 1 => any::<u16>()]
}

fn what() -> impl Strategy<Value = What> {
    let flags = prop_oneof![Just(SYN), Just(SYN | ACK), Just(ACK), Just(SYN | 1), Just(4), any::<u8>()];
    prop_oneof![
        4 => (port(), port(), flags).prop_map(|(from, to, flags)| What::Tcp { from, to, flags }),
        4 => (port(), port()).prop_map(|(from, to)| What::Udp { from, to }),
        1 => (0_u16..3).prop_map(What::Ping),
        1 => (0_u16..3).prop_map(What::Pong),
        1 => (0..NODES, 0..NODES).prop_map(|(by, about)| What::Error { by, about }),
        1 => Just(What::Leads),
        1 => Just(What::Sctp),
        1 => Just(What::Fragment),
        1 => port().prop_map(|to| What::Behind { to }),
        1 => Just(What::Discovery),
        1 => port().prop_map(|to| What::Tagged { to }),
    ]
}

/// Ports begin at 1, as the lab file has it.
fn rule() -> impl Strategy<Value = Rule> {
    let nodes = || {
        prop::option::of(
            prop::collection::btree_set(0..NODES, 1..NODES).prop_map(|set| set.into_iter().map(NodeId).collect()),
        )
    };
    let low = (1_u16..8, 1_u16..8).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let ports = prop::collection::vec(low, 0..3);
    (nodes(), nodes(), ports, 0..3).prop_map(|(from, to, ports, kind)| Rule {
        name: String::new(),
        from,
        to,
        ports,
        verdict: if kind == 0 { Verdict::Deny } else { Verdict::Allow },
        rates: Rates::default(),
        priority: None,
        connections: (kind == 1).then_some(5),
    })
}

/// Rules enough for several words in one case of four.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    prop_oneof![3 => prop::collection::vec(rule(), 0..7), 1 => prop::collection::vec(rule(), 60..140)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn as_a_reader_of_the_rules_would_say(
        rules in rules(),
        pair in (0..NODES, 1..NODES).prop_map(|(one, further)| [one, (one + further) % NODES]),
        sent in prop::collection::vec((any::<bool>(), what(), any::<bool>()), 1..60),
    ) {
        let lab = lab();
        let mac = |node: NodeId| lab.nodes[node].interfaces[0].mac;
        let pair = pair.map(NodeId);
        let table = Table::new(&lab, &rules).expect("these tests need root, to make BPF maps");
        let gates = pair.map(|node| table.gate(&lab, node, 0).expect("the verifier takes it"));
        let mut reader = Reader::new(rules);
        for (there, what, ipv6) in sent {
            let (at, [from, to]) = if there { (1, pair) } else { (0, [pair[1], pair[0]]) };
            let frame = what.frame(mac(from), mac(to), ipv6);
            let passed = gates[at].received.run(&frame, 0).expect("runs").action != TC_ACT_SHOT;
            let expected = reader.lets_pass(from, to, &what, ipv6);
            prop_assert_eq!(passed, expected, "{:?} from {} to {}, IPv6 {}", what, from, to, ipv6);
        }
    }
}

fn deny(from: Option<usize>, to: Option<usize>) -> Rule {
    Rule {
        name: String::new(),
        from: from.map(|node| vec![NodeId(node)]),
        to: to.map(|node| vec![NodeId(node)]),
        ports: Vec::new(),
        verdict: Verdict::Deny,
        rates: Rates::default(),
        priority: None,
        connections: None,
    }
}

#[test]
fn nobody_sends_in_anothers_name() {
    let lab = lab();
    let macs = [0, 1].map(|node| mac(&lab, node));
    let gate =
        Table::new(&lab, &[deny(None, None)]).expect("root").gate(&lab, NodeId(0), 0).expect("the verifier takes it");
    let arp = |from: Mac| [&macs[1][..], &from, &[8, 6], &[0; 28]].concat();
    let outcome = |from| gate.sent.run(&arp(from), 0).expect("runs").action;
    assert_ne!(outcome(macs[0]), TC_ACT_SHOT);
    assert_eq!(outcome(macs[1]), TC_ACT_SHOT);
    let mut near = macs[0];
    for byte in 0..6 {
        near[byte] ^= 0x80;
        assert_eq!(outcome(near), TC_ACT_SHOT, "another in byte {byte}");
        near[byte] ^= 0x80;
    }
}

/// Else who gets it answers another with an error of ICMP or a reset.
#[test]
fn nobody_but_a_gateway_sends_from_anothers_address() {
    let text = "networks: {net: fast, back: fast}\nnodes:\n  n: {count: 2, networks: [net, back]}\n  g: {networks: [net, back], gateway: true}\n";
    let lab =
        slipway_lab::parse("lab.yaml", text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    let table = Table::new(&lab, &[deny(Some(0), Some(1))]).expect("root");
    let gate = |node| table.gate(&lab, NodeId(node), 0).expect("the verifier takes it");
    let (node, gateway) = (gate(0), gate(2));
    let passes = |gate: &Gate, sender: usize, source: Ipv6Addr| {
        let mut frame = What::Ping(1).frame(mac(&lab, sender), [2; 6], source.to_ipv4_mapped().is_none());
        match source.to_ipv4_mapped() {
            Some(ipv4) => frame[26..30].copy_from_slice(&ipv4.octets()),
            None => frame[22..38].copy_from_slice(&source.octets()),
        }
        gate.sent.run(&frame, 0).expect("runs").action != TC_ACT_SHOT
    };
    let own: Vec<_> = addresses(&lab).filter(|&(of, _)| of == NodeId(0)).map(|(_, address)| address).collect();
    assert_eq!(own.len(), 6, "of two interfaces, with those of links");
    for address in own {
        assert!(passes(&node, 0, address), "{address}");
    }
    for (of, address) in addresses(&lab).filter(|&(of, _)| of != NodeId(0)) {
        assert!(!passes(&node, 0, address), "{address} of {of}");
        assert!(passes(&gateway, 2, address), "{address} of {of}");
    }
    for nobody in ["::", "2001:db8::1", "::ffff:0.0.0.0", "::ffff:192.0.2.1"] {
        assert!(passes(&node, 0, nobody.parse().expect("an address")), "{nobody}");
    }
}

#[test]
fn between_two_that_are_closed_to_each_other_only_neighbours_are_found() {
    let lab = lab();
    let macs = [0, 1].map(|node| mac(&lab, node));
    let rules = [deny(Some(0), Some(1)), deny(Some(1), Some(0))];
    let gate = Table::new(&lab, &rules).expect("root").gate(&lab, NodeId(1), 0).expect("the verifier takes it");
    let passes = |frame: &[u8]| gate.received.run(frame, 0).expect("runs").action != TC_ACT_SHOT;
    for what in [
        What::Tcp { from: 1, to: 2, flags: ACK },
        What::Udp { from: 1, to: 2 },
        What::Pong(1),
        What::Error { by: 1, about: 0 },
        What::Sctp,
    ] {
        for ipv6 in [false, true] {
            assert!(!passes(&what.frame(macs[0], macs[1], ipv6)), "{what:?}");
        }
    }
    assert!(passes(&What::Discovery.frame(macs[0], macs[1], true)));
    assert!(passes(&[&macs[1][..], &macs[0], &[8, 6], &[0; 28]].concat()), "ARP");
    let stranger = [2, 0, 0, 0, 0, 9];
    assert!(!passes(&What::Pong(1).frame(stranger, macs[1], false)), "nobody's");
    // Too short to be what it says that it is.
    let whole = What::Tcp { from: 1, to: 2, flags: ACK }.frame(macs[0], macs[1], false);
    let open = Table::new(&lab, &[Rule { ports: vec![1..=1], ..deny(Some(0), Some(1)) }]).expect("root");
    let open = open.gate(&lab, NodeId(1), 0).expect("the verifier takes it");
    // The kernel tries none whose header is cut.
    for length in 14 + 20..whole.len() {
        let outcome = open.received.run(&whole[..length], 0).expect("runs");
        assert_eq!(outcome.action != TC_ACT_SHOT, length >= 14 + 24 + 14, "{length} bytes");
    }
}

#[test]
fn a_node_that_asks_without_end_forgets_its_own_flows_alone() {
    let lab = lab();
    let macs = [0, 1, 2].map(|node| mac(&lab, node));
    // The first two may ask the last one, which may open nothing.
    let table = Table::new(&lab, &[deny(Some(2), None)]).expect("root");
    let gates = [0, 1, 2].map(|node| table.gate(&lab, NodeId(node), 0).expect("the verifier takes it"));
    let passes = |from: usize, to: usize, what: &What| {
        let frame = what.frame(macs[from], macs[to], false);
        gates[to].received.run(&frame, 0).expect("runs").action != TC_ACT_SHOT
    };
    let (ask, answer) = (What::Udp { from: 9, to: 53 }, What::Udp { from: 53, to: 9 });
    assert!(passes(0, 2, &ask));
    for from in 1..=20_000 {
        assert!(passes(1, 2, &What::Udp { from, to: 53 }));
    }
    assert!(passes(2, 0, &answer), "another node's flow");
    let answered = |to: u16| passes(2, 1, &What::Udp { from: 53, to });
    assert!(answered(20_000), "its last flow");
    assert!(!answered(1), "its first flow");
}

#[test]
fn other_rules_know_nothing_of_what_was_asked_under_the_last() {
    let lab = lab();
    let macs = [0, 1].map(|node| mac(&lab, node));
    let rules = [deny(Some(1), Some(0))];
    let (ask, answer) = (What::Udp { from: 9, to: 53 }, What::Udp { from: 53, to: 9 });
    let asked = |table: &Table| {
        let gates = [0, 1].map(|node| table.gate(&lab, NodeId(node), 0).expect("the verifier takes it"));
        let passes = |at: usize, what: &What| {
            gates[at].received.run(&what.frame(macs[1 - at], macs[at], false), 0).expect("runs").action != TC_ACT_SHOT
        };
        (passes(0, &answer), passes(1, &ask), passes(0, &answer))
    };
    assert_eq!(asked(&Table::new(&lab, &rules).expect("root")), (false, true, true));
    assert_eq!(asked(&Table::new(&lab, &rules).expect("root")), (false, true, true));
}

/// A lab of nodes 0 to 2, and of a gateway.
fn guarded() -> (Lab, Guard) {
    let text = "networks: {net: fast, back: fast}\nnodes:\n  n: {count: 3, networks: [net]}\n  g: {networks: [net, back], gateway: true}\n";
    let lab =
        slipway_lab::parse("lab.yaml", text, Path::new("/")).unwrap_or_else(|errors| panic!("{}", errors.plain()));
    let guard = Guard::of(&lab).expect("root, and the verifier takes it");
    (lab, guard)
}

fn is_let_through(guard: &Guard, frame: &[u8]) -> bool {
    guard.0.run(frame, 0).expect("runs").action != TC_ACT_SHOT
}

#[test]
fn the_guard_drops_advertisements_and_redirects_behind_any_header() {
    let (lab, guard) = guarded();
    let macs: Vec<Mac> = (0..4).map(|node| mac(&lab, node)).collect();
    let behind = |headers: &[u8], first: u8| {
        let frame = What::Leads.frame(macs[1], macs[0], true);
        let mut longer = [&frame[..54], headers, &frame[54..]].concat();
        longer[20] = first;
        longer
    };
    let hops = [58, 0, 1, 4, 0, 0, 0, 0];
    let twice = [&[60, 0, 1, 4, 0, 0, 0, 0][..], &hops].concat();
    let fragment = [58, 0, 0, 1, 0, 0, 0, 9];
    let frames = [
        What::Leads.frame(macs[1], macs[0], false),
        What::Leads.frame(macs[1], macs[0], true),
        behind(&hops, 0),
        behind(&hops, 60),
        behind(&twice, 0),
        behind(&fragment, 44),
    ];
    for frame in &frames {
        assert!(!is_let_through(&guard, frame), "{frame:x?}");
    }
    for ipv6 in [false, true] {
        for what in [What::Ping(1), What::Tcp { from: 1, to: 2, flags: SYN }, What::Fragment, What::Behind { to: 3 }] {
            assert!(is_let_through(&guard, &what.frame(macs[1], macs[0], ipv6)), "{what:?}");
        }
    }
}

#[test]
fn the_guard_drops_errors_about_packets_between_others() {
    let (lab, guard) = guarded();
    let macs: Vec<Mac> = (0..4).map(|node| mac(&lab, node)).collect();
    let quote = |ipv6: bool| if ipv6 { 14 + 40 + 8 + 24 } else { 14 + 24 + 8 + 16 };
    for ipv6 in [false, true] {
        let kinds: &[u8] = if ipv6 { &[1, 2, 3, 4] } else { &[3, 4, 11, 12] };
        for &kind in kinds {
            for (by, about, expected) in
                [(0, 1, true), (0, 2, false), (0, 0, false), (0, 3, false), (1, 1, false), (2, 1, false)]
            {
                let mut frame = What::Error { by, about }.frame(macs[1], macs[0], ipv6);
                frame[if ipv6 { 54 } else { 38 }] = kind;
                assert_eq!(is_let_through(&guard, &frame), expected, "{kind} about {about}, IPv6 {ipv6}");
                // Cut within the quoted address.
                assert!(!is_let_through(&guard, &frame[..quote(ipv6) + 3]), "{kind} about {about}, IPv6 {ipv6}");
                let stranger = [&frame[..6], &[2, 0, 0, 0, 0, 9], &frame[12..]].concat();
                assert!(!is_let_through(&guard, &stranger), "no node's Ethernet address");
            }
        }
        // A gateway passes errors on.
        let frame = What::Error { by: 0, about: 1 }.frame(macs[1], macs[3], ipv6);
        assert!(is_let_through(&guard, &frame), "by way of a gateway, IPv6 {ipv6}");
        for at in [quote(ipv6), quote(ipv6) - if ipv6 { 16 } else { 4 }] {
            let mut nobodys = What::Error { by: 0, about: 1 }.frame(macs[1], macs[0], ipv6);
            nobodys[at] ^= 0x40;
            assert!(!is_let_through(&guard, &nobodys), "about no node's packet, or to no node, IPv6 {ipv6}");
        }
    }
}

/// The first tag of a frame is off when a program at a port looks; a trial run takes none off.
#[test]
fn the_guard_drops_a_second_tag_of_number_0() {
    let (lab, guard) = guarded();
    let frame = What::Ping(1).frame(mac(&lab, 1), mac(&lab, 0), false);
    for (tag, expected) in [([0x81, 0, 0, 0], false), ([0x88, 0xa8, 0xe0, 0], false), ([0x81, 0, 0, 5], true)] {
        let tagged = [&frame[..12], &tag, &frame[12..]].concat();
        assert_eq!(is_let_through(&guard, &tagged), expected, "{tag:x?}");
    }
}

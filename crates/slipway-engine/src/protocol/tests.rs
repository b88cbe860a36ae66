//! Messages go and come back as they were, and a peer that breaks the rules is refused.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Uid, geteuid};
use slipway_lab::id::{HostId, NetworkId, NodeId};
use slipway_lab::scenario::{self, LinkAction, Order, Pair};
use tempfile::TempDir;

use super::frame::framed;
use super::*;

fn node() -> impl Strategy<Value = NodeId> {
    (0..20_000_usize).prop_map(NodeId)
}

fn nodes() -> impl Strategy<Value = Vec<NodeId>> {
    proptest::collection::vec(node(), 0..9)
}

fn places() -> impl Strategy<Value = Vec<(NodeId, usize)>> {
    proptest::collection::vec((node(), 0..4_usize), 0..9)
}

fn action() -> impl Strategy<Value = LinkAction> {
    let change = prop_oneof![Just("delay=20ms loss=0.5%"), Just("rate=none"), Just("rate=1gbit jitter=1us")]
        .prop_map(|words| words.parse().expect("a change"));
    let direction = prop_oneof![Just(scenario::Direction::Egress), Just(scenario::Direction::Ingress)];
    prop_oneof![
        (places(), direction, change.clone()).prop_map(|(interfaces, direction, change)| LinkAction::Link {
            interfaces,
            direction,
            change
        }),
        (nodes(), nodes(), proptest::option::of((0..9_usize).prop_map(NetworkId)), change)
            .prop_map(|(from, to, network, change)| { LinkAction::Pair(Pair { from, to, network, change }) }),
        places().prop_map(|interfaces| LinkAction::Cut { interfaces }),
        places().prop_map(|interfaces| LinkAction::Heal { interfaces }),
        proptest::collection::vec(nodes(), 0..4).prop_map(|groups| LinkAction::Partition { groups }),
        Just(LinkAction::Join),
    ]
}

fn kill() -> impl Strategy<Value = scenario::Kill> {
    prop_oneof![
        (0..1_000_000_u32).prop_map(|grace| scenario::Kill::Graceful {
            grace: serde_json::from_value(format!("{grace}ms").into()).expect("a time"),
        }),
        Just(scenario::Kill::Soft),
        Just(scenario::Kill::Hard),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        (nodes(), Just("cpu=50% memory=none"))
            .prop_map(|(nodes, words)| Order::Node { nodes, change: words.parse().expect("a change") }),
        (nodes(), kill()).prop_map(|(nodes, how)| Order::Kill { nodes, how }),
        nodes().prop_map(|nodes| Order::Start { nodes }),
        nodes().prop_map(|nodes| Order::Freeze { nodes }),
        nodes().prop_map(|nodes| Order::Thaw { nodes }),
        action().prop_map(Order::Links),
    ]
}

fn rules() -> impl Strategy<Value = Vec<slipway_lab::policy::Rule>> {
    let rule = ("[a-z]{1,8}", proptest::option::of(nodes()), any::<bool>(), proptest::option::of(0..8_u8)).prop_map(
        |(name, from, allow, priority)| slipway_lab::policy::Rule {
            name,
            from,
            to: None,
            ports: std::iter::once(1..=1024).collect(),
            verdict: if allow { slipway_lab::policy::Verdict::Allow } else { slipway_lab::policy::Verdict::Deny },
            rates: slipway_lab::policy::Rates::default(),
            priority,
            connections: None,
        },
    );
    proptest::collection::vec(rule, 0..5)
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (order(), proptest::option::of(0..99_usize)).prop_map(|(order, overlay)| Change { order, overlay }.into()),
        order().prop_map(|order| Prepare { order }.into()),
        (0..99_usize).prop_map(|overlay| Lift { overlay }.into()),
        Just(Settle {}.into()),
        Just(Keep {}.into()),
        nodes().prop_map(|nodes| Halt { nodes }.into()),
        nodes().prop_map(|nodes| HoldAnswers { nodes }.into()),
        (node(), 0..9_usize).prop_map(|(node, host)| Relocate { node, host: HostId(host) }.into()),
        Just(RestoreLinks {}.into()),
        Just(ReadLinks {}.into()),
        rules().prop_map(|rules| SetPolicy { rules }.into()),
        Just(ReadPolicy {}.into()),
        Just(ReadGraph {}.into()),
        node().prop_map(|node| HearProgram { node }.into()),
        Just(ReadFast {}.into()),
        Just(ReadSockets {}.into()),
        Just(ReadState {}.into()),
        (node(), any::<u64>()).prop_map(|(node, from)| ReadLog { node, from }.into()),
        node().prop_map(|node| FollowLog { node }.into()),
    ]
}

proptest! {
    #[test]
    fn requests_survive_the_way_in_whatever_pieces(request in request(), piece in 1..200_usize) {
        let text = serde_json::to_vec(&request).expect("plain data");
        let bytes = framed(&[(&text, LARGEST_REQUEST), (b"next", 4)]).expect("small");
        let (mut frames, mut taken) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            frames.push(piece);
            while let Some(message) = frames.take(LARGEST_REQUEST).expect("small") {
                taken.push(message);
            }
        }
        prop_assert!(frames.is_empty());
        prop_assert_eq!(parse::<Request>(&taken[0]).expect("a request"), request);
        prop_assert_eq!(taken[1].as_slice(), b"next");
    }

    #[test]
    fn replies_survive_the_way(ended in any::<Option<u64>>(), hint in any::<Option<String>>(), until in any::<u64>()) {
        let failed = || Error { code: Code::Links, message: "change links".to_owned(), hint: hint.clone() };
        let outcome = ended.map(|connections| Ended { connections }).ok_or_else(failed);
        let reply = Reply { outcome, before: Some(Served { work: "starting nodes".to_owned(), until }) };
        let text = serde_json::to_vec(&reply).expect("plain data");
        prop_assert_eq!(parse::<Reply<Ended>>(&text).expect("a reply"), reply);
    }
}

#[test]
fn a_log_may_be_any_bytes_and_text_stays_readable() {
    let piece = LogPiece { from: 7, end: 270, bytes: b"text\n".iter().copied().chain(0..=255).collect() };
    let text = serde_json::to_string(&piece).expect("plain data");
    assert!(text.contains(r#""bytes":"text\n"#), "{text}");
    assert_eq!(parse::<LogPiece>(text.as_bytes()).expect("a piece"), piece);
    assert_eq!(
        parse::<LogPiece>("{\"from\":0,\"end\":0,\"bytes\":\"\u{100}\"}".as_bytes()).expect_err("no byte").code,
        Code::Malformed
    );
}

#[test]
fn an_error_reads_the_same_wherever_its_hint_was() {
    let account = "change links: no\nHint: try\nthat";
    let error = Error::new(Code::Links, account);
    assert_eq!((error.message.as_str(), error.hint.as_deref()), ("change links: no", Some("try\nthat")));
    assert_eq!(error.to_string(), account);
    assert_eq!(Error::new(Code::Links, "no").hint, None);
}

/// A change of these lines is a change of the protocol: raise [`VERSION`].
#[test]
fn the_form_of_messages_belongs_to_their_version() {
    let cut = Order::Links(LinkAction::Cut { interfaces: vec![(NodeId(1), 0)] });
    let change = |order, overlay| Change { order, overlay };
    let requests: [(Request, &str); 5] = [
        (
            change(Order::Start { nodes: vec![NodeId(1), NodeId(2)] }, None).into(),
            r#"{"change":{"order":{"start":{"nodes":[1,2]}}}}"#,
        ),
        (
            change(Order::Kill { nodes: vec![NodeId(3)], how: scenario::Kill::Hard }, None).into(),
            r#"{"change":{"order":{"kill":{"nodes":[3],"how":"hard"}}}}"#,
        ),
        (change(cut, Some(4)).into(), r#"{"change":{"order":{"cut":{"interfaces":[[1,0]]}},"overlay":4}}"#),
        (ReadLinks {}.into(), r#"{"read_links":{}}"#),
        (HearProgram { node: NodeId(5) }.into(), r#"{"hear_program":{"node":5}}"#),
    ];
    for (request, text) in requests {
        assert_eq!(serde_json::to_string(&request).expect("plain data"), text);
    }
    let reply = Reply::<Ended> { outcome: Err(Error::new(Code::UnknownNode, "find it\nHint: look")), before: None };
    let text = r#"{"outcome":{"Err":{"code":"unknown_node","message":"find it","hint":"look"}}}"#;
    assert_eq!(serde_json::to_string(&reply).expect("plain data"), text);
    assert_eq!(VERSION, 2);
}

/// A server in this thread, and what it was asked.
struct Bench {
    _folder: TempDir,
    path: PathBuf,
    server: Server<PlayerRequest>,
    served: Vec<PlayerRequest>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let server = Server::open(&path).expect("opened");
        Self { _folder: folder, path, server, served: Vec::new() }
    }

    /// Waits until something can be done, and does it. False where nothing came within `patience`.
    fn turn(&mut self, patience: Duration) -> bool {
        let waits = self.server.waits_for();
        let flags = |interest| if interest == Interest::Read { PollFlags::IN } else { PollFlags::OUT };
        let mut on: Vec<PollFd<'_>> =
            waits.iter().map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, flags(*interest))).collect();
        let count = poll(&mut on, Some(&Timespec::try_from(patience).expect("short"))).expect("polled");
        let ready: Vec<bool> = on.iter().map(|fd| !fd.revents().is_empty()).collect();
        let served = &mut self.served;
        self.server.tend(&ready, |request, _, to| {
            served.push(request);
            to.answer::<Pause>(Ok(()))
        });
        count > 0
    }

    fn turns(&mut self) {
        while self.turn(Duration::ZERO) {}
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        stream
    }

    /// The code of the refusal that these bytes come to.
    fn refusal(&mut self, bytes: &[u8]) -> Code {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("sent");
        self.turns();
        refusal(&mut stream)
    }
}

fn refusal(stream: &mut UnixStream) -> Code {
    let mut bytes = Vec::new();
    // It ends with an error where the server has not read all.
    let _ = stream.read_to_end(&mut bytes);
    let mut frames = Frames::default();
    frames.push(&bytes);
    let mut next = || frames.take(LARGEST_REPLY).expect("small").expect("whole");
    assert_eq!(parse::<Hello>(&next()).expect("a hello"), Hello::own());
    parse::<Reply<()>>(&next()).expect("a reply").outcome.expect_err("refused").code
}

fn hello(protocol: u32) -> Vec<u8> {
    serde_json::to_vec(&Hello { protocol, slipway: "9.9.9".to_owned() }).expect("plain data")
}

fn message(hello: &[u8], request: &[u8]) -> Vec<u8> {
    framed(&[(hello, LARGEST_REQUEST), (request, LARGEST_REQUEST)]).expect("small")
}

#[test]
fn a_request_is_served_and_the_next_one_hears_of_it() {
    let mut bench = Bench::new();
    let first = begin(&bench.path, Pause {}).expect("sent");
    let second = begin(&bench.path, Resume {}).expect("sent");
    bench.turns();
    assert_eq!(bench.served, [Pause {}.into(), Resume {}.into()]);
    assert_eq!(first.wait().expect("answered").before, None);
    assert_eq!(second.wait().expect("answered").before.expect("one before").work, "pausing the scenario");
}

#[test]
fn one_request_is_served_at_a_time() {
    let mut bench = Bench::new();
    let asked: Vec<_> = (0..5).map(|_| begin(&bench.path, Pause {}).expect("sent")).collect();
    for served in 1..=5 {
        assert!(bench.turn(Duration::ZERO));
        assert_eq!(bench.served.len(), served);
    }
    for one in asked {
        one.wait().expect("answered").outcome.expect("done");
    }
}

#[test]
fn a_message_that_breaks_the_rules_is_refused() {
    let mut bench = Bench::new();
    let pause = serde_json::to_vec(&PlayerRequest::from(Pause {})).expect("plain data");
    assert_eq!(bench.refusal(&message(&hello(VERSION + 1), &pause)), Code::Version);
    assert_eq!(bench.refusal(&message(&hello(0), b"of a form that is not known")), Code::Version);
    assert_eq!(bench.refusal(&message(b"hello", &pause)), Code::Malformed);
    assert_eq!(bench.refusal(&message(&hello(VERSION), b"{\"rewind\":{}}")), Code::Malformed);
    assert_eq!(bench.refusal(&[message(&hello(VERSION), &pause), b"more".to_vec()].concat()), Code::Malformed);
    assert_eq!(bench.refusal(&u32::MAX.to_be_bytes()), Code::TooLarge);
    let large = u32::try_from(LARGEST_REQUEST).expect("less than 4 GiB") + 1;
    let hello = framed(&[(&hello(VERSION), LARGEST_REQUEST)]).expect("small");
    assert_eq!(bench.refusal(&[&hello[..], &large.to_be_bytes()].concat()), Code::TooLarge);
    assert_eq!(bench.served, []);
}

#[test]
fn a_descriptor_that_does_not_belong_is_refused() {
    let mut bench = Bench::new();
    let file = std::fs::File::open("/dev/null").expect("there");
    let path = bench.path.clone();
    let pending = std::thread::spawn(move || give_descriptor(&path, Pause {}, file.into()));
    let begin = Instant::now();
    while !pending.is_finished() && begin.elapsed() < Duration::from_secs(10) {
        bench.turn(Duration::from_millis(50));
    }
    match pending.join().expect("no panic") {
        Err(CallError::Refused(error)) => assert_eq!(error.code, Code::Malformed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_stops_halfway_holds_nobody_up_and_is_told() {
    let mut bench = Bench::new();
    let pause = serde_json::to_vec(&PlayerRequest::from(Pause {})).expect("plain data");
    let whole = message(&hello(VERSION), &pause);
    let mut silent = bench.connect();
    let mut halfway = bench.connect();
    halfway.write_all(&whole[..whole.len() - 1]).expect("sent");
    bench.turns();
    let asked = begin(&bench.path, Pause {}).expect("sent");
    bench.turns();
    asked.wait().expect("answered").outcome.expect("done");
    // In two pieces is well.
    let mut slow = bench.connect();
    slow.write_all(&whole[..7]).expect("sent");
    bench.turns();
    slow.write_all(&whole[7..]).expect("sent");
    bench.turns();
    assert_eq!(bench.served.len(), 2);
    let begin = Instant::now();
    while bench.server.patience().is_some() && begin.elapsed() < Duration::from_secs(10) {
        let patience = bench.server.patience().expect("just seen") + Duration::from_millis(1);
        bench.turn(patience);
    }
    assert_eq!((refusal(&mut silent), refusal(&mut halfway)), (Code::Timeout, Code::Timeout));
    assert_eq!(bench.server.waits_for().len(), 1, "only the listener is left");
}

#[test]
fn another_user_is_refused() {
    let mut bench = Bench::new();
    bench.server.serve_only(Uid::from_raw(geteuid().as_raw() + 1));
    let pause = serde_json::to_vec(&PlayerRequest::from(Pause {})).expect("plain data");
    assert_eq!(bench.refusal(&message(&hello(VERSION), &pause)), Code::NotPermitted);
    assert_eq!(bench.served, []);
}

/// A server that answers any peer with these bytes, once.
fn fake(path: &Path, answer: Vec<u8>) -> std::thread::JoinHandle<()> {
    let listener = std::os::unix::net::UnixListener::bind(path).expect("bound");
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a peer");
        peer.write_all(&answer).expect("sent");
        peer.shutdown(std::net::Shutdown::Write).expect("shut");
        // What it asked is read, or its end would lose what was sent.
        let _ = peer.read_to_end(&mut Vec::new());
    })
}

#[test]
fn a_server_of_another_version_or_without_an_answer_is_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let ask_fake = |name: &str, answer: Vec<u8>| {
        let path = folder.path().join(name);
        let server = fake(&path, answer);
        let failed = ask(&path, Pause {}).expect_err("refused");
        server.join().expect("no panic");
        failed
    };
    match ask_fake("later", message(&hello(VERSION + 1), b"of a form that is not known")) {
        CallError::Refused(error) => {
            assert_eq!(error.code, Code::Version);
            assert!(error.message.contains("slipway 9.9.9 (protocol 3)"), "{error}");
            assert!(error.hint.is_some_and(|hint| hint.contains("slipway down")));
        }
        other @ CallError::Unreachable(_) => panic!("{other:?}"),
    }
    let whole = message(&hello(VERSION), br#"{"outcome":{"Ok":null}}"#);
    for cut in [0, 3, whole.len() - 1] {
        match ask_fake(&format!("cut-{cut}"), whole[..cut].to_vec()) {
            CallError::Unreachable(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
            other @ CallError::Refused(_) => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_anchor_from_before_there_were_versions_is_refused() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control");
    let older = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&older, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
    listen(&older, 1).expect("listens");
    match ask(&path, Pause {}) {
        Err(CallError::Refused(error)) => assert_eq!(error.code, Code::Version),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reply_that_a_peer_does_not_take_at_once_goes_on_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control");
    let mut server: Server<Request> = Server::open(&path).expect("opened");
    let pending = begin(&path, ReadPolicy {}).expect("sent");
    let rules = vec![
        slipway_lab::policy::Rule {
            name: "x".repeat(1 << 20),
            from: None,
            to: None,
            ports: Vec::new(),
            verdict: slipway_lab::policy::Verdict::Allow,
            rates: slipway_lab::policy::Rates::default(),
            priority: None,
            connections: None,
        };
        4
    ];
    server.tend(&[true], |_, _, to| to.answer::<ReadPolicy>(Ok(rules.clone())));
    assert_eq!(server.waits_for().len(), 2, "the rest waits");
    let reader = std::thread::spawn(move || pending.wait().expect("answered").outcome.expect("done"));
    let begin = Instant::now();
    while !reader.is_finished() && begin.elapsed() < Duration::from_secs(10) {
        server.tend(&[false, true], |_, _, to| to.answer::<ReadPolicy>(Ok(Vec::new())));
    }
    assert_eq!(reader.join().expect("no panic"), rules);
}

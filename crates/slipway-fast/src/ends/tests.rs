use std::os::unix::net::UnixStream;
use std::thread;

use slipway_lab::id::NodeId;
use slipway_lab::policy::Rates;
use slipway_sys::seccomp::{Filter, Trap, Verdict, When};

use super::*;

const ONE: EndIdentity = EndIdentity { role: Role::Server, client: NodeId(1), server: NodeId(2), port: 80 };

fn terms() -> Terms {
    let rates = Rates { pair: Some("100mbit".parse().expect("a rate")), ..Rates::default() };
    Terms { rule: Some(0), rates, connections: Some(2), ..Terms::default() }
}

fn count(ends: &Ends, identity: EndIdentity) -> (UnixStream, UnixStream) {
    let (end, other) = UnixStream::pair().expect("a pair");
    let reservation = ends.reserve(identity, Some(0), 1000);
    ends.count(&end, identity, terms(), Path::Pair, reservation).expect("counted");
    (end, other)
}

fn is_full(ends: &Ends) -> bool {
    ends.reserve(ONE, Some(0), 2).is_none()
}

/// Runs this in a thread in which these calls fail.
fn without<T: Send>(calls: &[(libc::c_long, When, i32)], act: impl FnOnce() -> T + Send) -> T {
    let trap =
        |(call, when, errno): &(_, When, _)| Trap { call: *call, when: when.clone(), verdict: Verdict::Errno(*errno) };
    let filter = Filter::trap(&calls.iter().map(trap).collect::<Vec<_>>());
    thread::scope(|scope| {
        let running = scope.spawn(move || {
            filter.attach().expect("root may attach");
            act()
        });
        running.join().expect("it ran")
    })
}

/// The kernel lists no sockets: `socket(AF_NETLINK, …)` fails.
fn no_list() -> (libc::c_long, When, i32) {
    let netlink = When::Argument { index: 0, mask: u32::MAX, values: vec![libc::AF_NETLINK.cast_unsigned()] };
    (libc::SYS_socket, netlink, libc::EPERM)
}

fn no_watch() -> (libc::c_long, When, i32) {
    (libc::SYS_inotify_add_watch, When::Always, libc::ENOSPC)
}

#[test]
fn an_end_counts_until_its_last_descriptor_is_closed_and_no_list_is_asked() {
    without(&[no_list()], || {
        let ends = Ends::new();
        let (first, _second) = (count(&ends, ONE), count(&ends, ONE));
        assert!(is_full(&ends));
        let copy = first.0.try_clone().expect("a copy");
        drop(first);
        assert!(is_full(&ends), "somebody has it still");
        drop(copy);
        assert!(!is_full(&ends));
    });
}

#[test]
fn a_place_that_is_kept_is_taken_until_it_is_given_back() {
    let ends = Ends::new();
    let _end = count(&ends, ONE);
    let reservation = ends.reserve(ONE, Some(0), 2).expect("there is one");
    assert!(is_full(&ends));
    drop(reservation);
    assert!(!is_full(&ends));
    let elsewhere = EndIdentity { server: NodeId(3), ..ONE };
    let _other = count(&ends, elsewhere);
    assert!(!is_full(&ends), "another server has places of its own");
}

#[test]
fn where_nobody_tells_the_list_is_asked_and_without_it_all_stay_counted() {
    let ends = Ends::new();
    let [first, second] = without(&[no_watch()], || [count(&ends, ONE), count(&ends, ONE)]);
    assert_eq!(ends.unwatched(), 2);
    drop(first);
    assert!(without(&[no_list()], || is_full(&ends)), "who cannot be counted is not let in");
    let half = ends.share(ONE, &terms());
    assert_eq!(half, Some("50mbit".parse().expect("a rate")), "nor has more than its part");
    // It was asked just before.
    lock(&ends.state).listed = None;
    assert!(!is_full(&ends));
    drop(second);
}

#[test]
fn events_that_are_lost_are_made_up_for_by_the_list() {
    let ends = Ends::new();
    let (first, _second) = (count(&ends, ONE), count(&ends, ONE));
    drop(first);
    // As when the queue overflows.
    let events = ends.events.as_ref().expect("there are some");
    rustix::io::read(events, &mut [0; 64]).expect("one is there");
    lock(&ends.state).lost = true;
    assert!(!is_full(&ends));
    assert!(!lock(&ends.state).lost);
}

#[test]
fn one_pair_of_nodes_leaves_watches_to_others() {
    let ends = Ends { watches: Shares::new(6), ..Ends::new() };
    let _all: Vec<_> = (0..6).map(|_| count(&ends, ONE)).collect();
    assert_eq!(ends.unwatched(), 4);
    let elsewhere = EndIdentity { client: NodeId(4), server: NodeId(3), ..ONE };
    let _other = count(&ends, elsewhere);
    assert_eq!(ends.unwatched(), 4);
}

#[test]
fn another_policy_counts_what_lives_anew() {
    let ends = Ends::new();
    let _end = count(&ends, ONE);
    let before = ends.look();
    assert!(before.1);
    ends.judge(|_| None);
    assert!(!ends.look().1);
    ends.judge(|_| Some(terms()));
    let now = ends.look();
    assert!(now.1 && now.0 != before.0);
    assert!(ends.reserve(ONE, Some(0), 1).is_none());
}

//! The reply tracker: the last answers to threads, until it is certain that they received them.
//!
//! A caller that a signal has woken ignores an answer that comes before it holds the filter's lock
//! (`seccomp_do_user_notification`, `kernel/seccomp.c`). The kernel does not report this. The caller calls again, or fails
//! with `EINTR`, and has a connection that it does not know of. But the kernel counts its interruptions ([`ThreadCounts`]).
//! Interruptions between that answer and the thread's next served call belong to the answered call, or to calls in between.
//! Such calls were taken and are gone, or went before they were taken, which leaves a gap in the calls' numbers. The gap
//! does not show whose calls those were. So if several threads of a tree are interrupted at once, one may miss its repeated
//! answer.
//!
//! The tracker knows threads by their numbers, but counts belong to the threads themselves. Where another thread than the
//! first execs a program, it takes the first one's number and keeps its own count. The tracker could then give it twice
//! what it inherits and accepts at once.
//!
//! [`ThreadCounts`]: slipway_sys::bpf::ThreadCounts

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bounded::BoundedMap;
use crate::metadata::Path;

/// The most threads of a tree that it remembers. It forgets the thread that was answered longest ago.
const REMEMBERED: usize = 1024;

/// The content of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The program is connected, by a socket with this inode.
    Connected(u64),
    /// The program has accepted a connection.
    Accepted(AcceptedSocket),
}

/// A connection that a program was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcceptedSocket {
    /// The descriptor's number in the program.
    pub(crate) number: i32,
    /// The inode of its socket.
    pub(crate) inode: u64,
    /// The descriptor at which the program accepted.
    pub(crate) listener: i32,
    /// As [`Connection::path`](crate::pending::Connection::path).
    pub(crate) path: Option<Path>,
    /// As [`Connection::flow`](crate::pending::Connection::flow).
    pub(crate) flow: u64,
    /// The client's address, in the form of the program's socket.
    pub(crate) client: SocketAddr,
    /// The server's address, in the same form.
    pub(crate) server: SocketAddr,
}

/// A right to repeat an answer, for one taker: the thread that answered, or the one that serves the repeated call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True once.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// All tracked answers of a tree of programs, by thread.
#[derive(Debug)]
pub(crate) struct ReplyTracker {
    /// Answers that may have arrived, until the thread's next call is served.
    last: BoundedMap<i32, Last>,
    /// Answers that did not arrive, until the thread makes such a call again: its handler may make others first.
    lost: BoundedMap<i32, LostReplies>,
}

impl Default for ReplyTracker {
    fn default() -> Self {
        Self { last: BoundedMap::new(REMEMBERED), lost: BoundedMap::new(REMEMBERED) }
    }
}

/// The last answer to a thread.
#[derive(Debug)]
struct Last {
    reply: Reply,
    claim: Claim,
    since: Moment,
    /// The number of the thread's calls that have been taken since.
    taken: u64,
}

#[derive(Debug, Default)]
struct LostReplies {
    /// The inode of the socket.
    connected: Option<u64>,
    accepted: Option<AcceptedSocket>,
}

/// A moment in a thread's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The number of its interruptions.
    pub(crate) interrupted: u64,
    /// The number of the tree's calls that went before they were taken.
    pub(crate) missed: u64,
}

impl ReplyTracker {
    /// Notes that a call of a thread is taken.
    pub(crate) fn taken(&mut self, tid: i32) {
        if let Some(last) = self.last.get_mut(tid) {
            last.taken += 1;
        }
    }

    /// Whether it is still open whether a thread received its last answer.
    pub(crate) fn is_tracked(&self, tid: i32) -> bool {
        self.last.contains(tid)
    }

    /// Finds out whether a thread received its last answer, now that its next call is served. `now` is the moment, if
    /// known, at which that call waits.
    pub(crate) fn settle(&mut self, tid: i32, now: Option<Moment>) {
        let Some((Last { reply, claim, since, taken }, now)) = self.last.remove(tid).zip(now) else { return };
        // The last call that was taken is this one.
        let gone = taken.saturating_sub(1);
        let others = match reply {
            // A repeated answer that a socket is connected does no harm.
            Reply::Connected(_) => gone,
            // A repeated connection does harm.
            Reply::Accepted(_) => gone + (now.missed - since.missed),
        };
        if now.interrupted.saturating_sub(since.interrupted) > others && claim.take() {
            let mut lost = self.lost.remove(tid).unwrap_or_default();
            match reply {
                Reply::Connected(inode) => lost.connected = Some(inode),
                Reply::Accepted(socket) => lost.accepted = Some(socket),
            }
            self.lost.insert(tid, lost);
        }
    }

    /// The connection that a thread accepted and does not know of, for its next call to accept.
    pub(crate) fn take_accepted(&mut self, tid: i32) -> Option<AcceptedSocket> {
        self.lost.get_mut(tid)?.accepted.take()
    }

    /// Whether a thread missed the answer that this socket is connected, for its next call to connect it.
    pub(crate) fn take_connected(&mut self, tid: i32, inode: u64) -> bool {
        self.lost.get_mut(tid).and_then(|lost| lost.connected.take_if(|its| *its == inode)).is_some()
    }

    /// Tracks an answer that a thread is about to get. Its call waits at this moment.
    pub(crate) fn track(&mut self, tid: i32, reply: Reply, since: Moment) -> Claim {
        let claim = Claim::default();
        self.last.insert(tid, Last { reply, claim: claim.clone(), since, taken: 0 });
        claim
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fate of a thread's call in a test.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        /// The call is answered, and the thread receives the answer.
        Heard,
        /// The call is answered, and interrupted.
        Lost,
        /// The call is served, and interrupted before it is answered.
        InterruptedConnects,
        /// The call is interrupted before it is served.
        Gone,
        /// The call is interrupted before it is taken.
        Missed,
    }

    /// The thread, whether its call accepts, and the fate of the call.
    fn call() -> impl Strategy<Value = (bool, bool, Fate)> {
        let fates = vec![Fate::Heard, Fate::Lost, Fate::InterruptedConnects, Fate::Gone, Fate::Missed];
        (prop::bool::weighted(0.9), any::<bool>(), prop::sample::select(fates))
    }

    fn accepted(number: i32) -> AcceptedSocket {
        let [client, server] = [1, 2].map(|port| ([10, 64, 0, 1], port).into());
        AcceptedSocket { number, inode: 0, listener: 3, path: None, flow: 0, client, server }
    }

    proptest! {
        /// Of one thread all is known. Calls of others that are missed can hide a connection, and cannot make one up.
        #[test]
        fn what_was_not_heard_is_known(calls in prop::collection::vec(call(), 0..60)) {
            let mut replies = ReplyTracker::default();
            let mut now = Moment { interrupted: 0, missed: 0 };
            let (mut lost, mut is_hidden) = (None, false);
            for (number, (is_its, accepts, fate)) in (0..).zip(calls) {
                if !is_its {
                    now.missed += u64::from(fate == Fate::Missed);
                    is_hidden |= fate == Fate::Missed;
                    continue;
                }
                match fate {
                    Fate::Missed => now.missed += 1,
                    Fate::Gone => replies.taken(1),
                    Fate::Heard | Fate::Lost | Fate::InterruptedConnects => {
                        replies.taken(1);
                        replies.settle(1, Some(now));
                        if accepts {
                            let found = replies.take_accepted(1);
                            prop_assert!(found == lost || is_hidden && found.is_none(), "{:?} {:?}", found, lost);
                            is_hidden = false;
                            if fate != Fate::InterruptedConnects {
                                replies.track(1, Reply::Accepted(accepted(number)), now);
                            }
                            lost = (fate == Fate::Lost).then(|| accepted(number));
                        }
                    }
                }
                now.interrupted += u64::from(fate != Fate::Heard);
            }
        }
    }

    fn at(interrupted: u64, missed: u64) -> Moment {
        Moment { interrupted, missed }
    }

    #[test]
    fn who_knows_first_does_something_about_it() {
        let mut replies = ReplyTracker::default();
        let claim = replies.track(1, Reply::Accepted(accepted(7)), at(0, 0));
        assert!(claim.take(), "who said it knows that it was not heard");
        replies.settle(1, Some(at(1, 0)));
        assert_eq!(replies.take_accepted(1), None);
        let claim = replies.track(1, Reply::Accepted(accepted(8)), at(1, 0));
        replies.settle(1, Some(at(2, 0)));
        assert_eq!(replies.take_accepted(1), Some(accepted(8)));
        assert!(!claim.take());
    }

    /// One call more than are remembered costs the oldest, and not all.
    #[test]
    fn of_many_threads_the_oldest_alone_is_forgotten() {
        let mut replies = ReplyTracker::default();
        let threads = 1..=i32::try_from(REMEMBERED).expect("few") + 1;
        for tid in threads.clone() {
            replies.track(tid, Reply::Accepted(accepted(tid)), at(0, 0));
            replies.taken(tid);
        }
        for tid in threads {
            replies.settle(tid, Some(at(1, 0)));
            assert_eq!(replies.take_accepted(tid), (tid > 1).then(|| accepted(tid)));
        }
    }

    #[test]
    fn a_call_that_was_taken_and_is_gone_may_be_the_one_that_was_interrupted() {
        let mut replies = ReplyTracker::default();
        replies.track(1, Reply::Accepted(accepted(7)), at(0, 0));
        replies.taken(1);
        replies.taken(1);
        replies.settle(1, Some(at(1, 0)));
        assert_eq!(replies.take_accepted(1), None);
    }

    #[test]
    fn what_was_not_heard_waits_for_a_call_of_its_kind() {
        let mut replies = ReplyTracker::default();
        replies.track(1, Reply::Accepted(accepted(7)), at(0, 0));
        replies.taken(1);
        replies.settle(1, Some(at(1, 0)));
        // A handler connects meanwhile.
        assert!(!replies.take_connected(1, 5));
        replies.track(1, Reply::Connected(5), at(1, 0));
        replies.taken(1);
        replies.settle(1, Some(at(1, 0)));
        assert_eq!(replies.take_accepted(1), Some(accepted(7)));
    }

    #[test]
    fn where_it_is_not_certain_a_thread_is_told_twice_and_not_given_twice() {
        let mut replies = ReplyTracker::default();
        replies.track(1, Reply::Connected(7), at(0, 0));
        replies.settle(1, Some(at(1, 1)));
        assert!(!replies.take_connected(1, 8));
        assert!(replies.take_connected(1, 7));
        replies.track(1, Reply::Accepted(accepted(7)), at(1, 1));
        replies.settle(1, Some(at(2, 2)));
        assert_eq!(replies.take_accepted(1), None);
    }
}

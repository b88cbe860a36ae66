//! What threads were told last, until it is certain that they heard it.
//!
//! A caller that a signal has woken goes on without an answer that comes before it holds the filter's lock
//! (`seccomp_do_user_notification`, `kernel/seccomp.c`), and the kernel does not say so: it makes its call again, or fails with
//! `EINTR`, and has a connection that it does not know of. But its interruptions are counted ([`ThreadCounts`]). Those
//! from that answer to its next call that is served are of the call that was answered, unless they are of calls in between: that
//! were gone when they were to be served, or before they were taken, which leaves a gap in the calls' numbers. Whose calls those
//! were is not known: where several threads of a tree are interrupted at once, it can be that one is not told again.
//!
//! [`ThreadCounts`]: slipway_sys::bpf::ThreadCounts

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::note::Path;

/// So many threads are remembered, and then forgotten.
const REMEMBERED: usize = 1024;

/// What a thread is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is connected, by a socket with this inode.
    Connected(u64),
    /// It has accepted.
    Accepted(Given),
}

/// A connection that a program was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    /// By which the program has it.
    pub(crate) number: i32,
    /// Of its socket.
    pub(crate) inode: u64,
    /// The number that the program had accepted at.
    pub(crate) listener: i32,
    /// As [`Connection::path`](crate::pending::Connection::path).
    pub(crate) path: Option<Path>,
    /// As [`Connection::flow`](crate::pending::Connection::flow).
    pub(crate) flow: u64,
    /// In the form of the program's socket.
    pub(crate) client: SocketAddr,
    /// The same.
    pub(crate) server: SocketAddr,
}

/// Who takes this does something about what was not heard: who said it and knows already, or who serves the call that is made again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True once.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// All of a tree of programs, by thread: until its next call is served.
#[derive(Debug, Default)]
pub(crate) struct Told(HashMap<i32, Last>);

/// What a thread was told last.
#[derive(Debug)]
enum Last {
    /// It may have heard it.
    Told { said: Said, claim: Claim, since: Moment, gone: u64 },
    /// It did not.
    Unheard(Said),
}

/// A moment in a thread's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// How often it had been interrupted.
    pub(crate) interrupted: u64,
    /// How many calls of the tree had gone before they were taken.
    pub(crate) missed: u64,
}

impl Told {
    /// Whether nothing is known of a thread.
    pub(crate) fn has_nothing_of(&self, tid: i32) -> bool {
        !self.0.contains_key(&tid)
    }

    /// A call of a thread's is served, that waits, at this moment. Gives what the thread was told before and did not hear.
    pub(crate) fn take_unheard(&mut self, tid: i32, now: Moment) -> Option<Said> {
        match self.0.remove(&tid)? {
            Last::Unheard(said) => Some(said),
            Last::Told { said, claim, since, gone } => {
                let others = match said {
                    // To be told so twice does no harm.
                    Said::Connected(_) => gone,
                    // To be given a connection twice does.
                    Said::Accepted(_) => gone + (now.missed - since.missed),
                };
                let is_unheard = now.interrupted.saturating_sub(since.interrupted) > others;
                (is_unheard && claim.take()).then_some(said)
            }
        }
    }

    /// What a thread did not hear is for a later call of its.
    pub(crate) fn keep(&mut self, tid: i32, said: Said) {
        self.0.insert(tid, Last::Unheard(said));
    }

    /// A call of a thread's was gone when it was to be served.
    pub(crate) fn gone(&mut self, tid: i32) {
        if let Some(Last::Told { gone, .. }) = self.0.get_mut(&tid) {
            *gone += 1;
        }
    }

    /// A thread is about to be told this, and has a call that waits at this moment.
    pub(crate) fn tell(&mut self, tid: i32, said: Said, since: Moment) -> Claim {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let claim = Claim::default();
        self.0.insert(tid, Last::Told { said, claim: claim.clone(), since, gone: 0 });
        claim
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What becomes of a call of the thread's.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        /// It is answered, and the thread hears it.
        Heard,
        /// It is answered, and interrupted.
        Unheard,
        /// It is served, and interrupted before it is answered.
        Interrupted,
        /// The same before it is served.
        Gone,
        /// The same before it is taken.
        Missed,
    }

    /// Whose call, whether what it is told is to be remembered, and what becomes of it.
    fn call() -> impl Strategy<Value = (bool, bool, Fate)> {
        let fates = vec![Fate::Heard, Fate::Unheard, Fate::Interrupted, Fate::Gone, Fate::Missed];
        (prop::bool::weighted(0.9), any::<bool>(), prop::sample::select(fates))
    }

    fn accepted(number: i32) -> Said {
        let [client, server] = [1, 2].map(|port| ([10, 64, 0, 1], port).into());
        Said::Accepted(Given { number, inode: 0, listener: 3, path: None, flow: 0, client, server })
    }

    proptest! {
        /// Of one thread all is known. Calls of others that are missed can hide a connection, and cannot make one up.
        #[test]
        fn what_was_not_heard_is_known(calls in prop::collection::vec(call(), 0..60)) {
            let mut told = Told::default();
            let mut now = Moment { interrupted: 0, missed: 0 };
            let (mut unheard, mut is_hidden) = (None, false);
            for (number, (is_its, is_once, fate)) in (0..).zip(calls) {
                if !is_its {
                    now.missed += u64::from(fate == Fate::Missed);
                    is_hidden |= fate == Fate::Missed;
                    continue;
                }
                match fate {
                    Fate::Missed => now.missed += 1,
                    Fate::Gone => told.gone(1),
                    Fate::Heard | Fate::Unheard | Fate::Interrupted => {
                        let found = told.take_unheard(1, now);
                        prop_assert!(found == unheard || is_hidden && found.is_none(), "{:?} {:?}", found, unheard);
                        (unheard, is_hidden) = (found, false);
                        if is_once {
                            unheard = None;
                            if fate != Fate::Interrupted {
                                told.tell(1, accepted(number), now);
                            }
                        } else if let Some(said) = found {
                            told.keep(1, said);
                        }
                        if is_once && fate == Fate::Unheard {
                            unheard = Some(accepted(number));
                        }
                    }
                }
                now.interrupted += u64::from(fate != Fate::Heard);
            }
        }
    }

    #[test]
    fn who_knows_first_does_something_about_it() {
        let mut told = Told::default();
        let at = |interrupted| Moment { interrupted, missed: 0 };
        let claim = told.tell(1, Said::Connected(7), at(0));
        assert!(claim.take(), "who said it knows that it was not heard");
        assert_eq!(told.take_unheard(1, at(1)), None);
        let claim = told.tell(1, Said::Connected(8), at(1));
        assert_eq!(told.take_unheard(1, at(2)), Some(Said::Connected(8)));
        assert!(!claim.take());
    }

    #[test]
    fn where_it_is_not_certain_a_thread_is_told_twice_and_not_given_twice() {
        let mut told = Told::default();
        let at = |interrupted| Moment { interrupted, missed: interrupted };
        told.tell(1, Said::Connected(7), at(0));
        assert_eq!(told.take_unheard(1, at(1)), Some(Said::Connected(7)));
        told.tell(1, accepted(7), at(1));
        assert_eq!(told.take_unheard(1, at(2)), None);
    }
}

//! Connections whose `connect` a signal interrupted before the answer. The program calls again after its handler
//! (`signal(7)`, `SA_RESTART`), and then has one connection, not two.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::sockopt::socket_cookie;
use slipway_sys::notify::Caller;
use slipway_sys::process;

use crate::bounded::BoundedMap;

/// `SIGKILL` in a mask of signals.
const KILL: u64 = 1 << (libc::SIGKILL - 1);

/// A connection that its program has not been given yet.
#[derive(Debug)]
struct InterruptedConnect {
    caller: Arc<Caller>,
    /// Cookie of the socket to connect (`SO_COOKIE`).
    cookie: u64,
    server: SocketAddr,
    ours: OwnedFd,
}

/// Most such connections of a tree of programs, each with two descriptors. One more ends the oldest, whose program connects
/// anew.
const MOST: usize = 32;

/// All such connections of a tree of programs, by thread.
#[derive(Debug)]
pub(crate) struct InterruptedConnects(BoundedMap<i32, InterruptedConnect>);

impl Default for InterruptedConnects {
    fn default() -> Self {
        Self(BoundedMap::new(MOST))
    }
}

impl InterruptedConnects {
    /// Keeps a connection for the thread `tid`, which connects `socket` again. A thread that is being killed does not.
    pub(crate) fn keep(&mut self, tid: i32, caller: Arc<Caller>, socket: impl AsFd, server: SocketAddr, ours: OwnedFd) {
        if let Ok(cookie) = socket_cookie(socket)
            && !is_killed(tid)
        {
            self.put(tid, InterruptedConnect { caller, cookie, server, ours });
        }
    }

    fn put(&mut self, tid: i32, interrupted: InterruptedConnect) {
        drop(self.0.insert(tid, interrupted));
    }

    /// Takes the connection kept for this call, now that the program calls again. Connections of threads that ended, or
    /// connect another socket, end.
    pub(crate) fn take(&mut self, tid: i32, socket: impl AsFd, server: SocketAddr) -> Option<OwnedFd> {
        // Nearly always there is none.
        if self.0.is_empty() {
            return None;
        }
        let interrupted = self.0.remove(tid);
        self.0.retain(|interrupted| interrupted.caller.lives());
        let is_it = |interrupted: &InterruptedConnect| {
            interrupted.server == server && socket_cookie(socket) == Ok(interrupted.cookie)
        };
        interrupted.filter(is_it).map(|interrupted| interrupted.ours)
    }
}

/// Whether `SIGKILL` is pending for a thread (`proc_pid_status(5)`), or the thread is gone.
fn is_killed(tid: i32) -> bool {
    let pending = process::status(tid, "SigPnd").ok();
    pending.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_none_or(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_same_call_again_finds_what_was_kept() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let server = "10.64.0.2:80".parse().expect("an address");
        let [own, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("bound"));
        let mut interrupted = InterruptedConnects::default();
        let keep = |interrupted: &mut InterruptedConnects| {
            let caller = Arc::new(Caller::open(tid).expect("it is this thread"));
            let ours = UdpSocket::bind("127.0.0.1:0").expect("bound").into();
            interrupted.keep(tid, caller, &own, server, ours);
        };
        keep(&mut interrupted);
        assert!(interrupted.take(tid, &own, server).is_some());
        assert!(interrupted.take(tid, &own, server).is_none(), "once");
        keep(&mut interrupted);
        assert!(interrupted.take(tid, &other, server).is_none(), "another socket");
        keep(&mut interrupted);
        let elsewhere = "10.64.0.3:80".parse().expect("an address");
        assert!(interrupted.take(tid, &own, elsewhere).is_none(), "another server");
        assert!(interrupted.0.is_empty());
    }

    #[test]
    fn of_many_threads_that_do_not_call_again_the_oldest_loses_its_connection() {
        let server = "10.64.0.2:80".parse().expect("an address");
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        let mut interrupted = InterruptedConnects::default();
        let ended = 1 << 21;
        let (end, mut other) = UnixStream::pair().expect("a pair");
        let mut ends = vec![OwnedFd::from(end)];
        ends.extend((0..MOST).map(|_| OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("bound"))));
        for (tid, ours) in (ended..).zip(ends) {
            let caller = Arc::new(Caller::open(this).expect("it is this thread"));
            interrupted.put(tid, InterruptedConnect { caller, cookie: 0, server, ours });
        }
        assert_eq!(other.read(&mut [0]).expect("it has ended"), 0);
    }
}

//! The trapped calls, one file each, and their common parts.
//!
//! The router carries a call out on a copy of its arguments and a duplicate of its socket (`pidfd_getfd(2)`). It ends in
//! one of four ways ([`Answer`]). A call continues in the kernel only on sockets that the router did not hand out. A
//! program may change its memory or descriptors meanwhile, but gains nothing. On its own sockets it may do the same within
//! its node. Sockets that were handed out refuse forbidden calls by themselves (`SocketGuard`).

mod accept;
mod connect;
mod handoff;
mod interfaces;
mod listen;
mod names;
mod options;
mod rdma;
mod verbs;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use slipway_lab::id::NodeId;
use slipway_sys::caps;
use slipway_sys::notify::{Call, Caller, Memory};

use self::handoff::redeliver;
pub(crate) use self::handoff::{complete, finish};
use crate::address::LONGEST;
use crate::blocked_accepts::BlockedAccepts;
use crate::epolls::Epolls;
use crate::filter;
use crate::parts::Parts;
use crate::reply_tracker::{Claim, Moment, Reply};
use crate::sync::lock;
use crate::tree::Tree;

/// The end of a trapped call: an answer, or a way on in the kernel.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The router answers with this result.
    Result(Result<i64, Errno>),
    /// The call continues in the kernel, as if it had not been trapped.
    GoOn,
    /// The call has been answered, or its caller is gone.
    Done,
    /// The call waits for its socket, and is answered later.
    Blocked,
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Self {
        Self::Result(Err(errno))
    }
}

impl From<io::Error> for Answer {
    fn from(error: io::Error) -> Self {
        Self::Result(Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// A trapped call, its caller, and the parts that serve it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trapped<'a> {
    /// The parts of the router that serves it.
    pub(crate) parts: &'a Arc<Parts>,
    /// The caller's tree of programs.
    pub(crate) tree: &'a Arc<Tree>,
    /// The blocked accepts of the caller's node.
    pub(crate) blocked_accepts: &'a Arc<BlockedAccepts>,
    /// The call.
    pub(crate) call: Call,
}

impl Trapped<'_> {
    /// Carries the call out.
    #[must_use]
    pub(crate) fn serve(&self) -> Answer {
        self.settle_reply().and_then(|()| self.act()).unwrap_or_else(|answer| answer)
    }

    fn act(&self) -> Result<Answer, Answer> {
        match self.call.number {
            libc::SYS_connect => connect::connect(self),
            libc::SYS_accept | libc::SYS_accept4 => accept::accept(self),
            libc::SYS_bind => listen::bind(self),
            libc::SYS_listen => listen::listen(self),
            libc::SYS_getsockname | libc::SYS_getpeername => names::name(self),
            libc::SYS_getsockopt => options::get(self),
            libc::SYS_setsockopt => options::set(self),
            libc::SYS_ioctl if self.int(1).cast_unsigned() == filter::VERBS => verbs::ioctl(self),
            libc::SYS_ioctl => interfaces::ioctl(self),
            libc::SYS_openat => rdma::open(self),
            libc::SYS_fstat | libc::SYS_newfstatat => rdma::stat(self),
            libc::SYS_write => rdma::command(self),
            number => {
                if Epolls::changes(number) {
                    lock(&self.tree.epolls).forget(self.call.tid);
                }
                Ok(Answer::GoOn)
            }
        }
    }

    /// Serves and answers the call, after its caller's earlier calls.
    pub(crate) fn carry_out(&self) {
        let Call { number, tid, .. } = self.call;
        let _span = tracing::debug_span!("call", node = self.node().index(), tid, number).entered();
        self.tree.in_turn(tid, || {
            let answer = self.serve();
            tracing::debug!(?answer, "served");
            self.answer(&answer);
        });
    }

    /// Sends the answer.
    pub(crate) fn answer(&self, answer: &Answer) {
        // A caller that is gone needs no answer.
        let _ = match answer {
            Answer::Result(result) => self.tree.answer(self.call.id, *result),
            Answer::GoOn => self.tree.listener.go_on(self.call.id),
            Answer::Done | Answer::Blocked => Ok(()),
        };
    }

    /// An argument that is an `int`: the low half of its register.
    #[expect(clippy::cast_possible_truncation, reason = "that is what the kernel does with it")]
    #[must_use]
    pub(crate) fn int(&self, index: usize) -> i32 {
        (self.call.args[index] as u32).cast_signed()
    }

    /// The node that the caller is in.
    fn node(&self) -> NodeId {
        self.tree.node
    }

    /// Returns `found`, once it is certain that the thread number was the caller's.
    fn confirmed<T>(&self, found: io::Result<T>) -> Result<T, Answer> {
        if self.tree.listener.is_waiting(self.call.id) { Ok(found?) } else { Err(Answer::Done) }
    }

    /// The caller, and the first argument's file. The result must be [`confirmed`](Self::confirmed).
    fn found(&self) -> io::Result<(Arc<Caller>, OwnedFd)> {
        self.tree.found(self.call.tid, self.int(0))
    }

    /// The first argument's file.
    fn socket(&self) -> Result<OwnedFd, Answer> {
        self.confirmed(self.found().map(|(_, socket)| socket))
    }

    /// Whether the caller has one of these capabilities in its own user namespace, which is its node's.
    fn is_capable(&self, one_of: CapabilitySet) -> Result<bool, Answer> {
        let effective = self.confirmed(caps::effective(self.call.tid))?;
        Ok(effective.intersects(one_of))
    }

    /// Finds out whether the caller received its last answer.
    pub(crate) fn settle_reply(&self) -> Result<(), Answer> {
        if !lock(&self.tree.replies).is_tracked(self.call.tid) {
            return Ok(());
        }
        let now = self.moment().ok();
        // If this call still waits, the counted interruptions are another call's.
        if !self.tree.listener.is_waiting(self.call.id) {
            return Err(Answer::Done);
        }
        lock(&self.tree.replies).settle(self.call.tid, now);
        Ok(())
    }

    /// This moment in the caller's life; `None` where nothing counts its interruptions.
    fn counted_moment(&self) -> Option<Moment> {
        self.parts.interruptions.as_ref()?;
        self.moment().ok()
    }

    /// Marks the caller's next answer to be repeated if a signal keeps it from the caller from this moment on.
    fn track_reply(&self, reply: Reply, now: Moment) -> Claim {
        lock(&self.tree.replies).track(self.call.tid, reply, now)
    }

    fn moment(&self) -> io::Result<Moment> {
        let caller = self.tree.caller(self.call.tid)?;
        let counts = self.parts.interruptions.as_ref().filter(|_| caller.keeps_its_number());
        let interrupted = counts.map_or(Ok(0), |counts| counts.of(caller.as_fd()))?;
        Ok(Moment { interrupted, missed: self.tree.missed() })
    }

    /// The caller, the first argument's file, and an address. Argument `index` points to the address, and the next argument
    /// is its length.
    fn socket_and_address(&self, index: usize) -> Result<(Arc<Caller>, OwnedFd, Vec<u8>), Answer> {
        self.confirmed(self.found().and_then(|(caller, socket)| {
            let len = usize::try_from(self.int(index + 1)).ok().filter(|len| *len <= LONGEST).ok_or(Errno::INVAL)?;
            Ok((caller, socket, self.copied(index, len)?))
        }))
    }

    /// Reads the memory that argument `index` points to.
    fn read(&self, index: usize, len: usize) -> Result<Vec<u8>, Answer> {
        self.confirmed(self.copied(index, len))
    }

    /// Like [`read`](Self::read), but the result must be [`confirmed`](Self::confirmed).
    fn copied(&self, index: usize, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.call.read(self.call.args[index], &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a value and its length into the program (`move_addr_to_user`, `net/socket.c`). Argument `index` points to the
    /// room, and the next one to its length.
    fn write(&self, index: usize, value: &[u8], cut: bool) -> Result<(), Answer> {
        let [room, length] = [self.call.args[index], self.call.args[index + 1]];
        let memory = self.confirmed(self.call.memory())?;
        let len = in_memory(&memory, length)?;
        let part = &value[..value.len().min(len)];
        if !part.is_empty() {
            memory.write(room, part)?;
        }
        let shown = u32::try_from(if cut { part.len() } else { value.len() }).unwrap_or_default();
        memory.write(length, &shown.to_ne_bytes())?;
        Ok(())
    }

    /// The program's room in bytes, which argument `index` points to.
    fn room(&self, index: usize) -> Result<usize, Answer> {
        length(&self.read(index, 4)?)
    }
}

fn in_memory(memory: &Memory, address: u64) -> Result<usize, Answer> {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes)?;
    length(&bytes)
}

/// A length as programs have it, an `int`.
fn length(bytes: &[u8]) -> Result<usize, Answer> {
    let length = bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Errno::FAULT)?;
    Ok(usize::try_from(length).map_err(|_| Errno::INVAL)?)
}

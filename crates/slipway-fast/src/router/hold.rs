//! Nodes that are about to be frozen: their programs get no answers meanwhile ([`crate::gate`]).

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use slipway_lab::id::NodeId;

use super::Router;
use crate::sync::{STACK_BYTES, lock};

/// The longest that answers are held. The process that freezes a node may be killed, or wait for a program that hangs in the kernel.
const LONGEST: Duration = Duration::from_secs(1);

/// Nodes whose programs get no answers, until this is dropped or a while has passed.
#[derive(Debug)]
pub(super) struct Hold {
    nodes: BTreeSet<NodeId>,
    _release: Sender<()>,
}

impl Router {
    /// Holds answers to programs of these nodes, until [`release`](Self::release) or for a second. Answers that were being given
    /// have been given. If another holds those of one of these nodes, this waits for that.
    ///
    /// # Errors
    /// When the kernel has no threads left.
    pub fn hold(&self, nodes: &[NodeId]) -> io::Result<()> {
        // In order: two that hold nodes at once do not wait for each other.
        let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
        let gates: Vec<_> = nodes.iter().map(|&node| self.nodes.gate(node)).collect();
        let (tell, told) = channel();
        let (release, released) = channel::<()>();
        let (held, rdma) = (nodes.clone(), self.parts.rdma.clone());
        thread::Builder::new().name("holds".into()).stack_size(STACK_BYTES).spawn(move || {
            let guards: Vec<_> = gates.iter().map(|gate| gate.hold()).collect();
            let _ = tell.send(());
            // The other end is never used, but dropped.
            let _ = released.recv_timeout(LONGEST);
            drop(guards);
            rdma.give(&held);
        })?;
        let _ = told.recv();
        lock(&self.holds).push(Hold { nodes, _release: release });
        Ok(())
    }

    /// Programs of these nodes get answers again.
    pub fn release(&self, nodes: &[NodeId]) {
        lock(&self.holds).retain(|hold| !nodes.iter().any(|node| hold.nodes.contains(node)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::nodes::{Lab, SERVER};

    const NODE: NodeId = NodeId(1);
    const PORT: u16 = 80;

    /// A server in the node, which accepts two. Gives whether `released` was set when it had the first.
    fn accepts_two(lab: &Lab, released: &Arc<AtomicBool>) -> thread::JoinHandle<bool> {
        let released = Arc::clone(released);
        let (tell, told) = channel();
        let server = lab.server_runs(move || {
            let listener = TcpListener::bind((SERVER, PORT)).expect("bound");
            tell.send(()).expect("the test waits");
            let _first = listener.accept().expect("accepted");
            let was_released = released.load(Ordering::SeqCst);
            let _second = listener.accept().expect("accepted");
            was_released
        });
        told.recv().expect("it listens");
        server
    }

    fn connect(lab: &Lab) {
        lab.client(|| TcpStream::connect((SERVER, PORT)).map(drop)).expect("clients are answered");
    }

    #[test]
    fn programs_get_no_answers_until_they_are_released() {
        let (lab, released) = (Lab::new(), Arc::new(AtomicBool::new(false)));
        let server = accepts_two(&lab, &released);
        lab.router.hold(&[NODE]).expect("held");
        connect(&lab);
        connect(&lab);
        released.store(true, Ordering::SeqCst);
        lab.router.release(&[NODE]);
        assert!(server.join().expect("it has both"), "it was answered before");
    }

    /// As where the process that held them was killed.
    #[test]
    fn programs_are_not_held_for_ever() {
        let (lab, released) = (Lab::new(), Arc::new(AtomicBool::new(false)));
        let server = accepts_two(&lab, &released);
        lab.router.hold(&[NODE]).expect("held");
        lab.router.hold(&[NODE]).expect("held once that is over");
        connect(&lab);
        connect(&lab);
        server.join().expect("it has both");
    }
}

//! A queue pair of the device, and its connection.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::{from_mut, null_mut};
use std::sync::Arc;

use libc::sockaddr;
use rustix::io::Errno;

use super::device::{Device, PATIENCE, Window, address, label};
use super::library::{TCP, check, check_number, made};
use super::region::{Domain, Registration};
use super::{INLINE, Operation, Work, library};
use crate::abi::{CmId, Cq, Param, QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge, Wc};
use crate::management::Offer;

/// Most reads and atomic operations at once.
const READS: i32 = 16;
/// `IBV_QPT_RC`.
const RELIABLE: c_int = 2;
/// `IBV_QP_MIN_RNR_TIMER`, and 0.64 ms (InfiniBand specification, 9.7.5.2.8).
const MIN_RNR_TIMER: c_int = 1 << 15;
const SOON: u8 = 12;
/// Flags of `enum ibv_send_flags`.
const FENCE: u32 = 1;
const SIGNALED: u32 = 1 << 1;
const SOLICITED: u32 = 1 << 2;

/// An identifier of `rdma_cm(7)`, with its queue pair once it has one.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) device: &'static Device,
    pub(super) id: *mut CmId,
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: made by `resolve`, and all of its events are acknowledged.
        unsafe {
            if !(*self.id).qp.is_null() {
                (self.device.library.rdma_destroy_qp)(self.id);
            }
            (self.device.library.rdma_destroy_id)(self.id);
        }
    }
}

impl Identifier {
    /// Begins to find the way to a peer, for the connection with this number.
    pub(super) fn resolve(device: &'static Device, number: u64, to: SocketAddr) -> Result<Self, Errno> {
        let mut id = null_mut();
        let (mut from, mut to) = (address(SocketAddr::new(device.own.ip(), 0)), address(to));
        // SAFETY: the number is the library's to keep, and is no address. The addresses live through the call.
        unsafe {
            check((device.library.rdma_create_id)(device.events, &raw mut id, label(number), TCP))?;
            let id = Self { device, id };
            let (from, to) = (from_mut(&mut from).cast::<sockaddr>(), from_mut(&mut to).cast::<sockaddr>());
            check((device.library.rdma_resolve_addr)(id.id, from, to, PATIENCE))?;
            Ok(id)
        }
    }

    /// Begins to find a route. An error where the peer is reached by another device.
    pub(super) fn resolve_route(&self) -> Result<(), Errno> {
        // SAFETY: the identifier is there.
        unsafe {
            if (*self.id).verbs != self.device.context {
                return Err(Errno::XDEV);
            }
            check((self.device.library.rdma_resolve_route)(self.id, PATIENCE))
        }
    }
}

/// A completion queue, for both queues of a pair.
#[derive(Debug)]
struct Completions {
    device: &'static Device,
    cq: *mut Cq,
}

impl Completions {
    fn new(device: &'static Device, number: u64, window: Window) -> Result<Self, Errno> {
        let most = c_int::try_from(window.requests + window.receives + 1).map_err(|_| Errno::INVAL)?;
        // SAFETY: the device is open, and keeps the number, which is no address.
        let cq = unsafe {
            let number = label(number);
            (device.library.ibv_create_cq)(device.context, most, number, device.completions, 0)
        };
        Ok(Self { device, cq: made(cq)? })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: its queue pair has ended before, and all of its events are acknowledged.
        unsafe { (self.device.library.ibv_destroy_cq)(self.cq) };
    }
}

/// Room for inline bytes. The device lets go of it before it is freed: fields end in their order.
#[derive(Debug)]
struct Bounce {
    registration: Registration,
    memory: Box<[u8]>,
}

/// A queue pair of the device. It ends before its completion queue does: fields end in their order.
#[derive(Debug)]
pub(super) struct QueuePair {
    id: Identifier,
    completions: Completions,
    bounce: Bounce,
    window: Window,
}

impl QueuePair {
    /// Makes a queue pair for the connection with this number, which has found its way.
    pub(super) fn new(id: Identifier, number: u64, domain: &Arc<Domain>) -> Result<Self, Errno> {
        let device = id.device;
        let mut window = device.window();
        loop {
            let (completions, bounce) = (Completions::new(device, number, window)?, Bounce::new(domain, window)?);
            match create(&id, domain, &completions, window) {
                Ok(()) => {
                    let pair = Self { id, completions, bounce, window };
                    pair.notify()?;
                    return Ok(pair);
                }
                // A device may have room for fewer.
                Err(Errno::INVAL | Errno::NOMEM) if window.receives > 16 => {
                    let half = |of: u32| of.div_ceil(2);
                    window = Window { requests: half(window.requests), receives: half(window.receives), ..window };
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// Begins to connect, with what the client offers its peer.
    pub(super) fn connect(&self, offer: &Offer) -> Result<(), Errno> {
        let most = |own: u8, of: i32| own.min(u8::try_from(of.clamp(0, READS)).unwrap_or(0));
        let limits = &self.id.device.limits;
        let private = &offer.private[..offer.private.len().min(crate::management::IN_REQUEST)];
        // The offer is as the peer reads it: the resources of one side are the depth of the other.
        let mut param = Param {
            private_data: private.as_ptr().cast(),
            private_data_len: u8::try_from(private.len()).unwrap_or(0),
            responder_resources: most(offer.initiator_depth, limits.max_qp_rd_atom),
            initiator_depth: most(offer.responder_resources, limits.max_qp_init_rd_atom),
            flow_control: offer.flow_control,
            retry_count: offer.retry_count.min(7),
            // Receives that the program has posted reach the device a moment after the peer is told: it has to wait.
            rnr_retry_count: 7,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: the parameters live through the call.
        check(unsafe { (self.id.device.library.rdma_connect)(self.id.id, &raw mut param) })
    }

    /// Has the peer try again soon where there is no receive request. The kernel's own time is the longest.
    pub(super) fn hasten(&self) -> Result<(), Errno> {
        let mut attributes = QpAttr { min_rnr_timer: SOON, ..QpAttr::default() };
        // SAFETY: the queue pair is there, and the attributes live through the call.
        check_number(unsafe {
            (self.id.device.library.ibv_modify_qp)((*self.id.id).qp, &raw mut attributes, MIN_RNR_TIMER)
        })
    }

    /// Ends the connection: the queue pair fails, and its requests are flushed.
    pub(super) fn disconnect(&self) {
        // SAFETY: the identifier is there. One that has no connection is an error that changes nothing.
        unsafe { (self.id.device.library.rdma_disconnect)(self.id.id) };
    }

    /// Posts a request. Its completion has this number.
    pub(super) fn send(&mut self, number: u64, work: &Work, mut spans: Vec<Sge>) -> Result<(), Errno> {
        if !work.inline.is_empty() {
            spans = vec![self.bounce.keep(number, &work.inline)?];
        }
        let flags = SIGNALED | if work.is_solicited { SOLICITED } else { 0 } | if work.is_fenced { FENCE } else { 0 };
        let has_immediate = work.immediate.is_some();
        let (opcode, words) = match work.operation {
            Operation::Send => (if has_immediate { 3 } else { 2 }, [0; 4]),
            Operation::Write => (c_int::from(has_immediate), [work.address, work.key.into(), 0, 0]),
            Operation::Read => (4, [work.address, work.key.into(), 0, 0]),
            Operation::Swap { compare, with } => (5, [work.address, compare, with, work.key.into()]),
            Operation::Add(by) => (6, [work.address, by, 0, work.key.into()]),
        };
        let mut request = SendWr {
            wr_id: number,
            next: null_mut(),
            sg_list: spans.as_mut_ptr(),
            num_sge: c_int::try_from(spans.len()).map_err(|_| Errno::INVAL)?,
            opcode,
            send_flags: flags,
            imm_data: work.immediate.unwrap_or(0),
            wr: words,
            qp_type: 0,
            rest: [0; 6],
        };
        // SAFETY: the queue pair is there, and the spans live through the call.
        unsafe { library::post_send((*self.id.id).qp, &mut request) }
    }

    /// Posts a receive request. Its completion has this number.
    pub(super) fn receive(&mut self, number: u64, mut spans: Vec<Sge>) -> Result<(), Errno> {
        let mut request = RecvWr {
            wr_id: number,
            next: null_mut(),
            sg_list: spans.as_mut_ptr(),
            num_sge: c_int::try_from(spans.len()).map_err(|_| Errno::INVAL)?,
        };
        // SAFETY: as for `send`.
        unsafe { library::post_receive((*self.id.id).qp, &mut request) }
    }

    /// Takes completions: gives how many.
    pub(super) fn poll(&self, to: &mut [Wc]) -> Result<usize, Errno> {
        // SAFETY: the completion queue is there.
        unsafe { library::poll(self.completions.cq, to) }
    }

    /// Asks to be told of the next completion. The caller looks once more after it.
    pub(super) fn notify(&self) -> Result<(), Errno> {
        // SAFETY: the completion queue is there.
        unsafe { library::notify(self.completions.cq) }
    }
}

fn create(id: &Identifier, domain: &Domain, completions: &Completions, window: Window) -> Result<(), Errno> {
    let cap = QpCap {
        max_send_wr: window.requests,
        max_recv_wr: window.receives,
        max_send_sge: window.spans,
        max_recv_sge: window.spans,
        max_inline_data: 0,
    };
    let mut attributes = QpInitAttr {
        qp_context: null_mut(),
        send_cq: completions.cq,
        recv_cq: completions.cq,
        srq: null_mut(),
        cap,
        qp_type: RELIABLE,
        sq_sig_all: 1,
    };
    // SAFETY: all of these are there, and the attributes live through the call.
    check(unsafe { (id.device.library.rdma_create_qp)(id.id, domain.pd, &raw mut attributes) })
}

impl Bounce {
    fn new(domain: &Arc<Domain>, window: Window) -> Result<Self, Errno> {
        let length = usize::try_from(window.requests).map_err(|_| Errno::NOMEM)? * INLINE;
        let memory = vec![0; length].into_boxed_slice();
        let at = memory.as_ptr() as usize;
        // SAFETY: the memory is freed after the registration.
        let registration = unsafe { Registration::new(domain, at, length, at as u64, 0) }?;
        Ok(Self { registration, memory })
    }

    /// Keeps bytes until the request with this number has completed: no more are incomplete than there are places.
    fn keep(&mut self, number: u64, bytes: &[u8]) -> Result<Sge, Errno> {
        let places = (self.memory.len() / INLINE) as u64;
        let from = usize::try_from(number % places).map_err(|_| Errno::INVAL)? * INLINE;
        let place = self.memory.get_mut(from..from + bytes.len()).filter(|it| it.len() <= INLINE);
        let place = place.ok_or(Errno::INVAL)?;
        place.copy_from_slice(bytes);
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?;
        Ok(Sge { addr: place.as_ptr() as u64, length, lkey: self.registration.keys().0 })
    }
}

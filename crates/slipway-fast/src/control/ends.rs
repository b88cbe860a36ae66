//! The two ends of the connection: the anchor sends orders, and the router reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slipway_lab::policy::Rule;

use super::wire::{receive, send};
use super::{Malformed, Order, Report};
use crate::sync::timespec;

/// Text of a status in one report, bytes: as JSON a byte becomes six at most.
const PIECE: usize = 16 * 1024;
/// Longest status, bytes.
const WHOLE: usize = 64 << 20;
/// Longest wait for an answer. A router answers in microseconds; after this time it is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Both ends of a new connection.
///
/// # Errors
/// As `socketpair(2)`.
pub fn pair() -> io::Result<(AnchorEnd, RouterEnd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(&ours, Timeout::Send, Some(PATIENCE))?;
    Ok((AnchorEnd { socket: ours, router: None }, RouterEnd(theirs)))
}

/// The anchor's end. A call that takes longer than a working router needs fails with `WouldBlock`.
#[derive(Debug)]
pub struct AnchorEnd {
    socket: OwnedFd,
    router: Option<OwnedFd>,
}

impl AnchorEnd {
    /// Sets the router's process, by its pidfd. The router is gone when that has ended, even if another process has its end
    /// open.
    #[must_use]
    pub fn of(self, router: OwnedFd) -> Self {
        Self { router: Some(router), ..self }
    }

    /// Sends an order, with copies of its descriptors.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EPIPE` where the router is gone.
    pub fn order<F: AsFd>(&self, order: &Order<F>) -> io::Result<()> {
        send(&self.socket, &serde_json::to_vec(&order.words())?, &order.descriptors())
    }

    /// Sends an order that changes what is admitted, and waits until it holds. It passes other reports to `other`.
    ///
    /// # Errors
    /// As [`order`](Self::order) and [`hear`](Self::hear); `BrokenPipe` where the router is gone.
    pub fn have_heeded(&self, order: &Order, mut other: impl FnMut(Report)) -> io::Result<()> {
        self.order(order)?;
        loop {
            match self.hear()?.ok_or(io::ErrorKind::BrokenPipe)? {
                Report::Heeded => return Ok(()),
                report => other(report),
            }
        }
    }

    /// Replaces the rules, as [`have_heeded`](Self::have_heeded).
    ///
    /// # Errors
    /// As [`have_heeded`](Self::have_heeded).
    pub fn set_policy(&self, rules: &[Rule], mut other: impl FnMut(Report)) -> io::Result<()> {
        let whole = serde_json::to_string(rules)?;
        let mut text = whole.as_str();
        loop {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
            let order = Order::Policy { text: piece.to_owned(), more: !rest.is_empty() };
            if rest.is_empty() {
                return self.have_heeded(&order, &mut other);
            }
            self.order(&order)?;
            text = rest;
        }
    }

    /// Waits for a report. `None` where the router is gone.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `InvalidData` for what is no report.
    pub fn hear(&self) -> io::Result<Option<Report>> {
        if let Some(router) = &self.router {
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(router, PollFlags::IN)];
            retry_on_intr(|| poll(&mut waiting, Some(&timespec(PATIENCE))))?;
            // Messages from before its end come first.
            if waiting[0].revents().is_empty() {
                return if waiting[1].revents().is_empty() { Err(Errno::AGAIN.into()) } else { Ok(None) };
            }
        }
        Ok(receive(&self.socket)?.map(|(bytes, _)| Report::read(&bytes)).transpose()?)
    }

    /// Requests the status, a JSON document, and waits for it. It passes other reports to `other`.
    ///
    /// # Errors
    /// As [`order`](Self::order) and [`hear`](Self::hear); `BrokenPipe` where the router is gone.
    pub fn status(&self, mut other: impl FnMut(Report)) -> io::Result<String> {
        self.order::<OwnedFd>(&Order::Status)?;
        let mut whole = String::new();
        while whole.len() < WHOLE {
            match self.hear()?.ok_or(io::ErrorKind::BrokenPipe)? {
                Report::Status { text, more } => {
                    whole.push_str(&text);
                    if !more {
                        return Ok(whole);
                    }
                }
                report => other(report),
            }
        }
        Err(Malformed::CutOff.into())
    }
}

impl AsFd for AnchorEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The router's end. Several threads may report, while one receives orders.
#[derive(Debug)]
pub struct RouterEnd(OwnedFd);

impl RouterEnd {
    /// Waits for an order. `None` where the anchor is gone.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `InvalidData` for what is no order.
    pub fn hear(&self) -> io::Result<Option<Order>> {
        Ok(receive(&self.0)?.map(|(bytes, descriptors)| Order::read(&bytes, descriptors)).transpose()?)
    }

    /// Reports.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EPIPE` where the anchor is gone.
    pub fn report(&self, report: &Report) -> io::Result<()> {
        send(&self.0, &serde_json::to_vec(report)?, &[])
    }

    /// Answers [`Order::Status`] with a JSON document of any length.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn status(&self, mut text: &str) -> io::Result<()> {
        loop {
            let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
            self.report(&Report::Status { text: piece.to_owned(), more: !rest.is_empty() })?;
            if rest.is_empty() {
                return Ok(());
            }
            text = rest;
        }
    }
}

impl From<OwnedFd> for RouterEnd {
    /// Takes over an end from another process. It checks each message as it comes.
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for RouterEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

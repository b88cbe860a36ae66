//! The sender.

mod answers;
mod compare;
mod found;
mod outgoing;
mod pace;
mod path_rules;
mod queue;
mod report;
mod scan;
mod shared;
pub mod ssh;
mod streams;
mod summary;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::link::{Dialer, Link, Session};
use crate::message::{self, Order};
use crate::token::Token;
pub use report::{Bottleneck, Named, Progress, Report};
use shared::Shared;

/// A transfer to make: sources, destination and options.
#[derive(Debug, Clone)]
pub struct Request {
    /// Files and directories. One that ends in `/` stands for its content.
    pub sources: Vec<PathBuf>,
    /// The destination, as the server understands it: a directory.
    pub destination: Vec<u8>,
    /// Compare both trees, and change nothing.
    pub verify: bool,
    /// Leave data without TLS. Orders, answers and the proof of the token keep it.
    pub clear: bool,
    /// Bits per second of data and frames, at most.
    pub limit: Option<u64>,
    /// Have the destination's file system write everything to the disk before the end.
    pub sync: bool,
}

/// Sends to the server at `address`. `show` hears of progress four times a second.
pub fn send(
    request: &Request,
    address: SocketAddr,
    token: &Token,
    show: impl FnMut(&Progress),
) -> Result<Report, TransferError> {
    send_by(&Dialer::new(address, token)?, request, show)
}

/// Sends by connections of `dialer`.
pub(crate) fn send_by(
    dialer: &Dialer,
    request: &Request,
    mut show: impl FnMut(&Progress),
) -> Result<Report, TransferError> {
    let began = Instant::now();
    let (stream, rtt) = dialer.tcp()?;
    let rules = &path_rules::choose(rtt);
    let shared = &Shared::new(request, dialer.waited.clone());
    let count = scope(|scope| {
        // A handshake takes round trips: those of the first streams go on while the session opens.
        let dial = move |clear| dialer.dial(clear, |socket| rules.apply(socket));
        let first = if request.verify { 0 } else { streams::first(rtt) };
        let answers = scope.spawn(|| dialer.dial(false, |_| {}));
        let early: Vec<_> = (0..first).map(|_| scope.spawn(move || dial(request.clear))).collect();
        let (orders, session) = dialer.open(stream)?;
        let session = Arc::new(session);
        shared.add_socket(&orders);
        let key = Key::new(&session.secret, 0);
        scope.spawn(move || {
            if let Err(error) = order(orders, key, request, shared) {
                shared.fail(error);
            }
        });
        let of = session.clone();
        scope.spawn(move || {
            if let Err(error) = dialed(answers.join()).and_then(|link| hear(link, &of, dialer.patience, shared)) {
                shared.fail(error);
            }
        });
        for _ in 0..if request.verify { streams::FIRST } else { 0 } {
            scope.spawn(move || worker::compare_only(shared));
        }
        let mut early = early.into_iter();
        let mut start = |number: u32| {
            let (before, session) = (early.next(), session.clone());
            scope.spawn(move || {
                let link = before.map_or_else(|| dial(request.clear), |handle| dialed(handle.join()));
                match link.and_then(|link| Dialer::join(link, &session, number)) {
                    Ok(link) => {
                        shared.add_socket(&link);
                        worker::run(link, Key::new(&session.secret, number), shared);
                    }
                    Err(error) => shared.fail_after_answers(error),
                }
            });
        };
        let mut streams = streams::Streams::default();
        streams.open(first, &mut start);
        while !shared.wait(streams::INTERVAL) {
            if !request.verify {
                streams.grow(shared, &mut start);
            }
            show(&shared.progress(began, streams.count()));
        }
        Ok(streams.count())
    })?;
    // The threads look at it until they end.
    shared.end()?;
    Ok(shared.report(began, rtt, count, rules))
}

/// The connection that a thread opened.
fn dialed(outcome: std::thread::Result<Result<Link, TransferError>>) -> Result<Link, TransferError> {
    outcome.unwrap_or_else(|_| Err(TransferError::Protocol("a thread panicked".to_owned())))
}

/// Follows the answers of a session on the connection `link`. The receiver says nothing for `patience` at most.
fn hear(link: Link, session: &Session, patience: Duration, shared: &Shared) -> Result<(), TransferError> {
    let link = Dialer::join(link, session, 1)?;
    link.expect_words(patience)?;
    shared.add_socket(&link);
    answers::read(&mut Reader::new(link, Key::new(&session.secret, 1)), shared)
}

/// Lists everything, waits until it is there, and ends.
fn order(link: Link, key: Key, request: &Request, shared: &Arc<Shared>) -> Result<(), TransferError> {
    let mut writer = Writer::new(link, key);
    let begin = Order::Begin { destination: request.destination.clone(), verify: request.verify, sync: request.sync };
    message::put(&begin, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    scan::list(&request.sources, shared, &mut writer)?;
    shared.finish();
    message::put(&Order::Finish, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    while shared.await_over() == shared::Wait::Longer {
        message::put(&Order::Alive, writer.body()).map_err(TransferError::stream)?;
        writer.send().map_err(TransferError::stream)?;
    }
    writer.get_mut().close();
    Ok(())
}

/// How often the sender looks at its own speed.
pub(crate) const TICK: Duration = Duration::from_millis(250);

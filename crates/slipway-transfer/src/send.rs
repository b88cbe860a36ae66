//! The sender.

mod answers;
mod compare;
mod found;
mod looking;
mod origin;
mod outgoing;
mod pace;
mod queue;
mod scan;
mod shared;
pub mod ssh;
pub(crate) mod streams;
mod summary;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::link::{Dialer, Link, Session};
use crate::message::{self, Order};
use crate::path_rules::{self, Part};
pub use crate::report::{Bottleneck, Choice, Named, Progress, Report, Setting};
use crate::token::Token;
pub(crate) use origin::Origin;
use shared::Shared;

/// A transfer to make: sources, destination and options.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    let rules = &path_rules::choose(Part::Sends, rtt, request.limit);
    let shared = &Shared::new(request, dialer.waited.clone());
    let count = scope(|scope| {
        // A handshake takes round trips: those of the first streams go on while the session opens.
        let dial = move |clear| dialer.dial(clear, |socket| rules.apply(socket));
        let first = if request.verify { 0 } else { rules.first };
        let answers = scope.spawn(|| dialer.dial(false, |_| {}));
        let early: Vec<_> = (0..first).map(|_| scope.spawn(move || dial(request.clear))).collect();
        let (orders, session) = dialer.open(stream)?;
        let session = Arc::new(session);
        shared.add_socket(&orders);
        let key = Key::new(&session.secret, 0);
        scope.spawn(move || {
            let mut writer = Writer::new(orders, key);
            if let Err(error) = order(&mut writer, request, &Origin::Here, shared) {
                shared.fail(error);
            }
            writer.get_mut().close();
        });
        let of = session.clone();
        scope.spawn(move || {
            if let Err(error) = dialed(answers.join()).and_then(|link| hear(link, &of, dialer.patience, shared)) {
                shared.fail(error);
            }
        });
        for _ in 0..if request.verify { COMPARERS } else { 0 } {
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
                streams.grow(shared.figures.counts.work(), &mut start);
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
pub(crate) fn dialed(outcome: std::thread::Result<Result<Link, TransferError>>) -> Result<Link, TransferError> {
    outcome.unwrap_or_else(|_| Err(TransferError::Protocol("a thread panicked".to_owned())))
}

/// Follows the answers of a session on the connection `link`. The receiver says nothing for `patience` at most.
fn hear(link: Link, session: &Session, patience: Duration, shared: &Shared) -> Result<(), TransferError> {
    let link = Dialer::join(link, session, 1)?;
    link.expect_words(patience)?;
    shared.add_socket(&link);
    answers::read(&mut Reader::new(link, Key::new(&session.secret, 1)), shared)
}

/// The server's side of a session in which the client receives.
pub(crate) struct Served<'a> {
    pub(crate) orders: Link,
    pub(crate) answers: Link,
    pub(crate) session: &'a Session,
    pub(crate) origin: Origin,
    /// Round-trip time.
    pub(crate) rtt: Duration,
}

/// Sends to a client. `streams` gives the connections of data that it opens, and must end after `close`.
pub(crate) fn serve(
    served: Served<'_>,
    request: &Request,
    streams: impl Iterator<Item = (u32, Link)> + Send,
    close: impl FnOnce(),
) -> Result<(), TransferError> {
    let began = Instant::now();
    let Served { orders, answers, session, origin, rtt } = served;
    let rules = path_rules::choose(Part::Sends, rtt, request.limit);
    let shared = Shared::new(request, Arc::default());
    shared.add_socket(&orders);
    shared.add_socket(&answers);
    let count = AtomicU32::new(0);
    scope(|scope| {
        let (shared, rules, count) = (&shared, &rules, &count);
        scope.spawn(move || {
            let mut answers = Reader::new(answers, Key::new(&session.secret, 1));
            if let Err(error) = answers::read(&mut answers, shared) {
                shared.fail(error);
            }
        });
        scope.spawn(move || {
            let mut writer = Writer::new(orders, Key::of_server(&session.secret));
            let outcome = order(&mut writer, request, &origin, shared).and_then(|()| {
                if !shared.is_over() {
                    return Ok(());
                }
                let mut report = shared.report(began, rtt, count.load(Ordering::Relaxed), rules);
                tell(&mut writer, &mut report)
            });
            if let Err(error) = outcome {
                // The client may be gone.
                let _ = message::put(&Order::Refused(error.to_string()), writer.body()).and_then(|()| writer.send());
                shared.fail(error);
            }
            writer.get_mut().close();
        });
        scope.spawn(move || {
            std::thread::scope(|each| {
                for (number, mut link) in streams {
                    shared.add_socket(&link);
                    rules.apply(link.tcp());
                    link.count_waits(shared.waited.clone());
                    count.fetch_add(1, Ordering::Relaxed);
                    each.spawn(move || worker::run(link, Key::new(&session.secret, number), shared));
                }
            });
        });
        if request.verify {
            for _ in 0..COMPARERS {
                scope.spawn(move || worker::compare_only(shared));
            }
        }
        while !shared.wait(streams::INTERVAL) {}
        close();
    });
    shared.end()
}

/// Tells a client how it went.
fn tell(writer: &mut Writer<Link>, report: &mut Report) -> Result<(), TransferError> {
    for (list, named) in report.take_lists() {
        message::put(&Order::Told(list, named), writer.body()).map_err(TransferError::stream)?;
        if writer.len() >= 64 << 10 {
            writer.send().map_err(TransferError::stream)?;
        }
    }
    message::put(&Order::Report(Box::new(report.clone())), writer.body()).map_err(TransferError::stream)?;
    writer.send().map(drop).map_err(TransferError::stream)
}

/// Lists everything, and waits until it is there.
fn order(
    writer: &mut Writer<Link>,
    request: &Request,
    origin: &Origin,
    shared: &Arc<Shared>,
) -> Result<(), TransferError> {
    let begin = Order::Begin { destination: request.destination.clone(), verify: request.verify, sync: request.sync };
    message::put(&begin, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    scan::list(&request.sources, origin, shared, writer)?;
    if shared.has_ended() {
        // Not the regular end, and the other end must not take it for that.
        return Ok(());
    }
    shared.finish();
    message::put(&Order::Finish, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    while shared.await_over() == shared::Wait::Longer {
        message::put(&Order::Alive, writer.body()).map_err(TransferError::stream)?;
        writer.send().map_err(TransferError::stream)?;
    }
    Ok(())
}

/// Threads that compare files where nothing is sent.
const COMPARERS: u32 = 2;
/// How often the sender looks at its own speed.
pub(crate) const TICK: Duration = Duration::from_millis(250);

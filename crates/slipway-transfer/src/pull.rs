//! The client as receiver: the same protocol with roles turned. It opens all connections, and the server sends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::scope;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::frame::{Key, Writer};
use crate::link::{Dialer, Link, Session, Sockets};
use crate::message::{self, Order};
use crate::path_rules::{self, Part};
use crate::receive::{self, Begun, Ends, Orders, Seen};
use crate::report::{Progress, Report, Setting};
use crate::send::streams::Streams;
use crate::send::{dialed, streams};
use crate::token::Token;
use crate::tree::Tree;

/// A transfer to this machine: sources there, destination here, and options.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pull {
    /// Files and directories, as the server understands their paths. One that ends in `/` stands for its content.
    pub sources: Vec<Vec<u8>>,
    /// The directory here.
    pub destination: PathBuf,
    /// Compare both trees, and change nothing.
    pub verify: bool,
    /// Leave data without TLS.
    pub clear: bool,
    /// Bits per second of data and frames, at most.
    pub limit: Option<u64>,
    /// Have the file system here write everything to the disk before the end.
    pub sync: bool,
}

/// Receives from the server at `address`. `show` hears of progress four times a second.
pub fn pull(
    request: &Pull,
    address: SocketAddr,
    token: &Token,
    show: impl FnMut(&Progress),
) -> Result<Report, TransferError> {
    pull_by(&Dialer::new(address, token)?, request, show)
}

/// Receives by connections of `dialer`.
pub(crate) fn pull_by(
    dialer: &Dialer,
    request: &Pull,
    mut show: impl FnMut(&Progress),
) -> Result<Report, TransferError> {
    let began = Instant::now();
    let (stream, rtt) = dialer.tcp()?;
    let rules = path_rules::choose(Part::Receives, rtt, request.limit);
    let sockets = &Sockets::default();
    let seen = &Seen::default();
    let (join, joined) = channel();
    let join = &Mutex::new(Some(join));
    let take_join = || join.lock().unwrap_or_else(PoisonError::into_inner);
    let broken = &Mutex::new(None);
    let mut streams = Streams::default();
    let outcome = scope(|scope| {
        // A handshake takes round trips: those of the first streams go on while the session opens.
        let dial = move |clear| dialer.dial(clear, |_| {});
        let first = if request.verify { 0 } else { rules.first };
        let answers = scope.spawn(move || dial(false));
        let early: Vec<_> = (0..first).map(|_| scope.spawn(move || dial(request.clear))).collect();
        let (link, session) = dialer.open(stream)?;
        let link = ask(link, &session, request)?;
        link.expect_words(dialer.patience)?;
        sockets.add(&link);
        let orders = Orders::new(link, Key::of_server(&session.secret));
        let answers = Dialer::join(dialed(answers.join())?, &session, 1)?;
        let session = Arc::new(session);
        let (over, is_over) = channel();
        let of = session.clone();
        let receiver = scope.spawn(move || {
            // Dropped at the end, even of a panic.
            let _over: Sender<()> = over;
            let ends = Ends { orders, answers, session: &of, sockets, seen };
            receive::run(ends, joined.into_iter(), || drop(take_join().take()), |orders| begin(orders, request))
        });
        let mut early = early.into_iter();
        let mut start = |number: u32| {
            let (before, session) = (early.next(), session.clone());
            scope.spawn(move || {
                let is_first = before.is_some();
                let link = before.map_or_else(|| dial(request.clear), |handle| dialed(handle.join()));
                match link.and_then(|link| Dialer::join(link, &session, number)) {
                    Ok(link) => drop(take_join().as_ref().map(|join| join.send((number, link)))),
                    Err(error) if is_first => {
                        broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        sockets.end();
                    }
                    // Those before it go on.
                    Err(error) => tracing::warn!("failed to open another stream: {error}"),
                }
            });
        };
        streams.open(first, &mut start);
        while is_over.recv_timeout(streams::INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let progress = seen.progress(began, streams.count());
            if !request.verify {
                streams.grow(seen.counts.work(), &mut start);
            }
            show(&progress);
        }
        receiver.join().unwrap_or_else(|_| Err(TransferError::Protocol("a thread panicked".to_owned())))
    });
    let broken = broken.lock().unwrap_or_else(PoisonError::into_inner).take();
    let heard = outcome.map_err(|error| match error {
        // Its connections were ended because another could not be opened.
        TransferError::Lost(_) => broken.unwrap_or(error),
        error => error,
    })?;
    let report = heard.report.ok_or_else(|| TransferError::Protocol("it ended without a report".to_owned()))?;
    let (seconds, rtt, streams) = (began.elapsed().as_secs_f64(), rtt.as_secs_f64(), streams.count());
    let mut report = Report { seconds, rtt, streams, ..report };
    // The server is told neither of buffers here nor of how many streams this end opens.
    report.choices.retain(|choice| choice.setting != Setting::Streams);
    report.choices.extend(rules.choices);
    Ok(report)
}

/// Asks for the sources. Gives the connection back, on which the server's orders come.
fn ask(link: Link, session: &Session, request: &Pull) -> Result<Link, TransferError> {
    let mut writer = Writer::new(link, Key::new(&session.secret, 0));
    let fetch = Order::Fetch { sources: request.sources.clone(), verify: request.verify, limit: request.limit };
    message::put(&fetch, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    Ok(writer.into_inner())
}

/// Opens the destination. The server's word on it, and on writing to it, counts for nothing.
fn begin(orders: &mut Orders, request: &Pull) -> Result<Begun, TransferError> {
    match orders.next()? {
        Some(Order::Begin { .. }) => {
            let tree = Tree::open(None, request.destination.as_os_str().as_encoded_bytes(), !request.verify)?;
            Ok(Begun { tree, verify: request.verify, sync: request.sync })
        }
        _ => Err(TransferError::Protocol("the first order is no beginning".to_owned())),
    }
}

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
use crate::link::{Dialer, Link};
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
    mut show: impl FnMut(&Progress),
) -> Result<Report, TransferError> {
    let began = Instant::now();
    let dialer = Dialer::new(address, token)?;
    let (orders, session, rtt) = dialer.open()?;
    let rules = path_rules::choose(rtt);
    let answers = dialer.stream(&session, 1, false, |_| {})?;
    let shared = Shared::new(request, dialer.waited.clone());
    shared.add_socket(&orders);
    shared.add_socket(&answers);
    let count = scope(|scope| {
        scope.spawn(|| {
            let mut answers = Reader::new(answers, Key::new(&session.secret, 1));
            if let Err(error) = answers::read(&mut answers, &shared) {
                shared.fail(error);
            }
        });
        scope.spawn(|| {
            if let Err(error) = order(orders, Key::new(&session.secret, 0), request, &shared) {
                shared.fail(error);
            }
        });
        let mut streams = streams::Streams::default();
        let open = |number| dialer.stream(&session, number, request.clear, |socket| rules.apply(socket));
        let mut start = |number: u32| match open(number) {
            Ok(link) => {
                shared.add_socket(&link);
                let key = Key::new(&session.secret, number);
                let shared = &shared;
                scope.spawn(move || worker::run(link, key, shared));
                true
            }
            Err(error) => {
                shared.fail_after_answers(error);
                false
            }
        };
        if request.verify {
            for _ in 0..streams::FIRST {
                let shared = &shared;
                scope.spawn(move || worker::compare_only(shared));
            }
        } else {
            streams.begin(&mut start);
        }
        while !shared.wait(streams::INTERVAL) {
            if !request.verify {
                streams.grow(&shared, &mut start);
            }
            show(&shared.progress(began, streams.count()));
        }
        streams.count()
    });
    // The threads look at it until they end.
    shared.end()?;
    Ok(shared.report(began, rtt, count, &rules))
}

/// Lists everything, waits until it is there, and ends.
fn order(link: Link, key: Key, request: &Request, shared: &Arc<Shared>) -> Result<(), TransferError> {
    let mut writer = Writer::new(link, key);
    let begin = Order::Begin { destination: request.destination.clone(), verify: request.verify, sync: request.sync };
    message::put(&begin, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    scan::list(&request.sources, shared, &mut writer)?;
    message::put(&Order::Finish, writer.body()).map_err(TransferError::stream)?;
    writer.send().map_err(TransferError::stream)?;
    shared.await_over();
    writer.get_mut().close();
    Ok(())
}

/// How often the sender looks at its own speed.
pub(crate) const TICK: Duration = Duration::from_millis(250);

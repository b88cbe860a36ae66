//! The receiver's side of a session.

mod basis;
mod files;
mod group;
mod incoming;
mod naming;
mod verify;

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::scope;
use std::time::{Duration, Instant};

use crate::counts::{Counts, get};
use crate::error::TransferError;
use crate::frame::{Key, Reader, Writer};
use crate::link::{ALIVE, Link, Session, Sockets, nanoseconds};
use crate::message::{self, Answer, Entry, Kind, Meta, Order};
use crate::path::Relative;
use crate::report::{Bottleneck, Outcome, Progress, Report};
use crate::tree::Tree;
use files::Files;
use incoming::Incoming;
use verify::Verify;

/// Answers that wait to be sent, at most.
const ANSWERS: usize = 4096;
/// Bytes of answers in a frame, about.
const FRAME: usize = 64 << 10;
/// Threads that look for blocks of what is there.
const LOOKERS: usize = 2;

/// Directories of a data set, at most: the receiver keeps their attributes until all are filled.
const DIRECTORIES: usize = 1 << 22;
/// Bytes of what it keeps of them, about, at most.
const HEAVY: usize = 512 << 20;

/// The stream of answers, and streams of data that joined the session before it.
pub(crate) fn answers(
    streams: &Receiver<(u32, Link)>,
    patience: Duration,
) -> Result<(Link, Vec<(u32, Link)>), TransferError> {
    // Handshakes run side by side: a stream of data may be the first to finish its own.
    let mut early = Vec::new();
    loop {
        let joined = streams.recv_timeout(patience);
        match joined.map_err(|_| TransferError::Protocol("the client opened no stream of answers".to_owned()))? {
            (1, link) => return Ok((link, early)),
            other => early.push(other),
        }
    }
}

/// Figures of a receiver that is at work.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) counts: Counts,
    /// Nanoseconds of writing, summed over streams.
    pub(crate) writing: AtomicU64,
}

impl Seen {
    /// How far a transfer is that began then, with so many streams.
    pub(crate) fn progress(&self, began: Instant, streams: u32) -> Progress {
        let most = nanoseconds(began).saturating_mul(streams.into()) / 2;
        let limit = if get(&self.writing) > most { Bottleneck::DiskWrite } else { Bottleneck::Network };
        self.counts.progress(began, streams, limit)
    }
}

/// A session's connections, and figures for those who watch.
pub(crate) struct Ends<'a> {
    pub(crate) orders: Orders,
    pub(crate) answers: Link,
    pub(crate) session: &'a Session,
    pub(crate) sockets: &'a Sockets,
    pub(crate) seen: &'a Seen,
}

/// Receives to the end of a session. `streams` gives the connections of data that join it, and must end after `close`.
pub(crate) fn run(
    ends: Ends<'_>,
    streams: impl Iterator<Item = (u32, Link)> + Send,
    close: impl FnOnce(),
    begin: impl FnOnce(&mut Orders) -> Result<Begun, TransferError>,
) -> Result<Heard, TransferError> {
    let Ends { mut orders, answers: link, session, sockets, seen } = ends;
    let (answers, to_send) = sync_channel(ANSWERS);
    scope(|scope| {
        scope.spawn(move || send_answers(link, session, &to_send, sockets));
        let outcome = begin(&mut orders).and_then(|begun| {
            if begun.verify {
                Verify::new(begun.tree, &answers).run(&mut orders)?;
                return Heard::end(&mut orders);
            }
            let files = Files::new(begun.tree, answers.clone(), begun.sync, seen);
            std::thread::scope(|inner| {
                let files = &files;
                let streams = inner.spawn(move || {
                    std::thread::scope(|each| {
                        for (number, link) in streams {
                            sockets.add(&link);
                            each.spawn(move || files.stream(link, Key::new(&session.secret, number)));
                        }
                    });
                });
                let namer = inner.spawn(move || naming::run(files));
                let outcome = receive(&mut orders, files).and_then(|()| Heard::end(&mut orders));
                files.group.close();
                sockets.end();
                close();
                drop((streams.join(), namer.join()));
                outcome.map_err(|error| match (error, files.refusal()) {
                    // All that comes afterwards follows from it.
                    (_, Some(why)) => TransferError::Here(why),
                    (error, None) => error,
                })
            })
        });
        if let Err(error) = &outcome {
            let _ = answers.send(Answer::Refused(error.to_string()));
        }
        drop(answers);
        outcome
    })
}

/// The last words of a sender that is the server.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) report: Option<Report>,
    outcome: Outcome,
}

impl Heard {
    /// Listens until the other end closes.
    fn end(orders: &mut Orders) -> Result<Self, TransferError> {
        let mut heard = Self::default();
        while let Ok(Some(order)) = orders.next() {
            match order {
                Order::Told(list, named) => heard.outcome.told(list, named)?,
                Order::Report(report) => heard.report = Some(*report),
                _ => {}
            }
        }
        let outcome = std::mem::take(&mut heard.outcome);
        heard.report = heard.report.map(|report| report.with(outcome));
        Ok(heard)
    }
}

/// The destination and the options of a session.
pub(crate) struct Begun {
    pub(crate) tree: Tree,
    pub(crate) verify: bool,
    pub(crate) sync: bool,
}

/// Orders, one by one: a frame of many short ones would be long in memory.
pub(crate) struct Orders {
    reader: Reader<Link>,
    /// A frame's body, read so far.
    body: Vec<u8>,
    at: usize,
}

impl Orders {
    pub(crate) fn new(link: Link, key: Key) -> Self {
        Self { reader: Reader::new(link, key), body: Vec::new(), at: 0 }
    }

    /// The connection, after the last order.
    pub(crate) fn into_inner(self) -> Link {
        self.reader.into_inner()
    }

    /// The next; `None` when there are no more.
    pub(crate) fn next(&mut self) -> Result<Option<Order>, TransferError> {
        while self.at_end() {
            let Some(body) = self.reader.frame().map_err(TransferError::stream)? else { return Ok(None) };
            self.body.clear();
            self.body.extend_from_slice(body);
            self.at = 0;
        }
        let mut rest = &self.body[self.at..];
        let order = message::take(&mut rest).map_err(TransferError::stream)?;
        self.at = self.body.len() - rest.len();
        match order {
            Order::Refused(why) => Err(TransferError::Refused(why)),
            order => Ok(Some(order)),
        }
    }

    /// Whether the next order waits for another frame.
    fn at_end(&self) -> bool {
        self.at == self.body.len()
    }
}

fn send_answers(link: Link, session: &Session, answers: &Receiver<Answer>, sockets: &Sockets) {
    let mut writer = Writer::new(link, Key::new(&session.secret, 1));
    let mut send = || -> std::io::Result<()> {
        loop {
            let first = match answers.recv_timeout(ALIVE) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => Answer::Alive,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            message::put(&first, writer.body())?;
            while writer.len() < FRAME {
                let Ok(answer) = answers.try_recv() else { break };
                message::put(&answer, writer.body())?;
            }
            writer.send()?;
        }
    };
    if send().is_err() {
        sockets.end();
        // Nobody who answers waits for room.
        while answers.recv().is_ok() {}
    }
    writer.get_mut().close();
}

/// Directories whose attributes wait until they are filled.
#[derive(Default)]
struct Directories {
    list: Vec<(Relative, Meta)>,
    weight: usize,
}

impl Directories {
    fn add(&mut self, path: Relative, meta: Meta, weight: usize) -> Result<(), TransferError> {
        self.weight += weight;
        if self.list.len() >= DIRECTORIES || self.weight > HEAVY {
            return Err(TransferError::Protocol("too many directories".to_owned()));
        }
        self.list.push((path, meta));
        Ok(())
    }
}

/// Follows orders until all is done.
fn receive(orders: &mut Orders, files: &Files<'_>) -> Result<(), TransferError> {
    let ended = || TransferError::Lost(std::io::ErrorKind::UnexpectedEof.into());
    let _ = files.answers.send(Answer::Ready);
    let mut directories = Directories::default();
    let mut failures = false;
    scope(|scope| {
        let (to_look, looks) = sync_channel::<Arc<Incoming>>(1 << 16);
        let looks = Arc::new(Mutex::new(looks));
        for _ in 0..LOOKERS {
            let looks = looks.clone();
            scope.spawn(move || basis::look(files, &looks));
        }
        let mut fresh = Vec::new();
        loop {
            // The sender waits for none of them longer than for the frame that announced it.
            if orders.at_end() && !fresh.is_empty() {
                let _ = files.answers.send(Answer::Fresh(std::mem::take(&mut fresh)));
            }
            match orders.next()?.ok_or_else(ended)? {
                Order::Begin { .. } => return Err(TransferError::Protocol("a second beginning".to_owned())),
                Order::Finish => return Ok(()),
                Order::Entry(entry) => match take(files, entry, &to_look, &mut directories)? {
                    Ok(id) => fresh.extend(id),
                    Err(error) => {
                        failures = true;
                        let _ = files.answers.send(error);
                    }
                },
                Order::Alive => {}
                _ => return Err(TransferError::Protocol("an order out of place".to_owned())),
            }
        }
    })?;
    if files.any_left() {
        return Err(TransferError::Protocol("the end came before all files".to_owned()));
    }
    // Those inside first: writing to a directory changes its time.
    for (path, meta) in directories.list.iter().rev() {
        if let Err(error) = files.tree.set(path, meta) {
            failures = true;
            let _ = files.answers.send(Answer::Failed(u64::MAX, path.clone(), error.to_string()));
        }
    }
    let failed = |doing: &str| TransferError::io(format!("{doing} at the destination"));
    if !failures && !files.any_failed() {
        files.tree.clean().map_err(failed("remove incomplete files"))?;
    }
    if files.sync {
        files.tree.sync().map_err(failed("write everything to the disk"))?;
    }
    let _ = files.answers.send(Answer::Over);
    Ok(())
}

/// Takes an entry. Gives its number where it is a file of which nothing is here. The inner error is about it alone.
fn take(
    files: &Files<'_>,
    entry: Entry,
    to_look: &SyncSender<Arc<Incoming>>,
    directories: &mut Directories,
) -> Result<Result<Option<u64>, Answer>, TransferError> {
    let weight = entry.weight();
    let Entry { id, path, kind, meta } = entry;
    let done = match kind {
        Kind::File(size) => {
            if i64::try_from(size).is_err() {
                return Err(TransferError::Protocol(format!("{path} is larger than any file")));
            }
            let incoming = files.expect(Incoming::new(id, path, meta, size, weight))?;
            // The folder may be missing or in another's hands: then that is found when the file is written.
            if files.may_have(&incoming) {
                let _ = to_look.send(incoming);
                return Ok(Ok(None));
            }
            return Ok(Ok(Some(id)));
        }
        Kind::Directory => {
            let made = files.tree.directory(&path);
            directories.add(path.clone(), meta, weight)?;
            made
        }
        Kind::Symlink(target) => files.tree.symlink(&path, &target, &meta),
        Kind::Hardlink(to) => files.tree.hardlink(&path, &to),
    };
    Ok(done.map(|()| None).map_err(|error| Answer::Failed(id, path, error.to_string())))
}

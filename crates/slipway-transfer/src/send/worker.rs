//! One stream: takes jobs, reads files, sends frames.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::compare;
use super::found::Step;
use super::outgoing::Outgoing;
use super::queue::Job;
use super::shared::Shared;
use crate::blocks;
use crate::error::TransferError;
use crate::frame::{Key, Writer};
use crate::link::{Link, nanoseconds};
use crate::message::{self, Item, LARGEST_DATA};
use crate::report::Named;

/// Files up to this size share frames, bytes.
pub(super) const SMALL: u64 = 256 << 10;
/// A frame is sent from this length on, bytes, where nothing asks for shorter ones.
const FRAME: usize = 512 << 10;

/// The reason why a job ends early.
enum Stop {
    /// Its file cannot be read.
    File(io::Error),
    /// The stream ended.
    Stream(io::Error),
}

/// Serves one stream until there is nothing to do.
pub(super) fn run(link: Link, key: Key, shared: &Shared) {
    let began = Instant::now();
    let frame = shared.pace.as_ref().map_or(FRAME, |pace| pace.frame.min(FRAME));
    let mut worker = Worker { writer: Writer::new(link, key), buffer: Vec::new(), frame, shared };
    match worker.jobs() {
        Ok(()) => worker.writer.get_mut().close(),
        Err(error) => shared.fail_after_answers(TransferError::stream(error)),
    }
    shared.figures.streaming.fetch_add(nanoseconds(began), Ordering::Relaxed);
}

/// Serves comparisons, which send nothing.
pub(super) fn compare_only(shared: &Shared) {
    let (mut buffer, mut batch) = (Vec::new(), Vec::new());
    while shared.queue.pop(&mut batch) {
        for job in batch.drain(..) {
            let Job::Compare(outgoing, segment) = job else { continue };
            let outcome = compare::segment(&outgoing, segment, &mut buffer);
            if let Err(error) = outcome {
                spoil(&outgoing, &error, shared);
            }
            if outgoing.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                if outgoing.spoilt.load(Ordering::Acquire) {
                    shared.settle(&[outgoing.id]);
                } else {
                    compare::conclude(&outgoing, shared);
                }
            }
        }
    }
}

/// Takes note of a file that changed, or cannot be read.
fn spoil(outgoing: &Outgoing, error: &io::Error, shared: &Shared) {
    if outgoing.spoilt.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut outcome = shared.outcome();
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            outcome.changed.push(Named::new(&outgoing.path, "changed while it was read".to_owned()));
        }
        _ => outcome.failed.push(Named::new(&outgoing.path, error.to_string())),
    }
}

struct Worker<'a> {
    writer: Writer<Link>,
    buffer: Vec<u8>,
    /// A frame is sent from this length on, bytes, and is twice as long at most.
    frame: usize,
    shared: &'a Shared,
}

impl Worker<'_> {
    fn jobs(&mut self) -> io::Result<()> {
        let mut batch = Vec::new();
        loop {
            if !self.shared.queue.try_pop(&mut batch) {
                self.flush()?;
                let (began, looked) = (Instant::now(), self.shared.looking());
                let more = self.shared.queue.pop(&mut batch);
                let figures = &self.shared.figures;
                figures.idle.fetch_add(nanoseconds(began), Ordering::Relaxed);
                let looked = self.shared.looking().saturating_sub(looked).as_nanos();
                figures.listing.fetch_add(u64::try_from(looked).unwrap_or(u64::MAX), Ordering::Relaxed);
                if !more {
                    return Ok(());
                }
            }
            for job in batch.drain(..) {
                self.job(job)?;
                if self.writer.len() >= self.frame {
                    self.flush()?;
                }
            }
        }
    }

    fn job(&mut self, job: Job) -> io::Result<()> {
        match job {
            Job::Whole(outgoing) if !outgoing.sparse => self.whole(&outgoing),
            Job::Whole(outgoing) => {
                outgoing.left.store(1, Ordering::Release);
                let range = 0..outgoing.size;
                let done = self.plain(&outgoing, range);
                self.finish(&outgoing, done)
            }
            Job::Segment(outgoing, range) => {
                let done = self.plain(&outgoing, range);
                self.finish(&outgoing, done)
            }
            Job::Steps(outgoing, steps) => {
                let done = self.steps(&outgoing, &steps);
                self.finish(&outgoing, done)
            }
            Job::Compare(outgoing, segment) => {
                let began = Instant::now();
                let done = compare::segment(&outgoing, segment, &mut self.buffer);
                self.shared.figures.reading.fetch_add(nanoseconds(began), Ordering::Relaxed);
                if let Err(error) = done {
                    spoil(&outgoing, &error, self.shared);
                }
                if outgoing.left.fetch_sub(1, Ordering::AcqRel) != 1 {
                    return Ok(());
                }
                if outgoing.spoilt.load(Ordering::Acquire) {
                    outgoing.close();
                    return self.put(&Item::Abandon(outgoing.id));
                }
                compare::conclude(&outgoing, self.shared);
                Ok(())
            }
            Job::Same(outgoing) => {
                outgoing.close();
                let figures = &self.shared.figures;
                figures.same.fetch_add(1, Ordering::Relaxed);
                figures.kept.fetch_add(outgoing.size, Ordering::Relaxed);
                figures.counts.done(outgoing.size);
                self.put(&Item::Same(outgoing.id))
            }
        }
    }

    /// Sends a small file, with as few system calls as can be: one look at it, when it was read, finds any change since it
    /// was listed.
    fn whole(&mut self, outgoing: &Outgoing) -> io::Result<()> {
        let length = usize::try_from(outgoing.size).unwrap_or(usize::MAX);
        if self.writer.len() + length > LARGEST_DATA {
            self.flush()?;
        }
        let before = self.writer.len();
        self.put(&Item::Whole(outgoing.id, u32::try_from(length).unwrap_or(u32::MAX)))?;
        let body = self.writer.body();
        let at = body.len();
        body.resize(at + length, 0);
        let began = Instant::now();
        let read = outgoing.open_unseen().and_then(|file| {
            file.read_exact_at(&mut body[at..], 0)?;
            outgoing.unchanged(&file)
        });
        self.shared.figures.reading.fetch_add(nanoseconds(began), Ordering::Relaxed);
        if let Err(error) = read {
            self.writer.cut(before);
            spoil(outgoing, &error, self.shared);
            return self.put(&Item::Abandon(outgoing.id));
        }
        self.shared.figures.counts.done(length as u64);
        Ok(())
    }

    /// After a job's data. With the last of a file, its end goes too, unless it changed.
    fn finish(&mut self, outgoing: &Arc<Outgoing>, done: Result<(), Stop>) -> io::Result<()> {
        match done {
            Ok(()) => {}
            Err(Stop::Stream(error)) => return Err(error),
            Err(Stop::File(error)) => spoil(outgoing, &error, self.shared),
        }
        if outgoing.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return Ok(());
        }
        if let Err(error) = outgoing.open().and_then(|file| outgoing.unchanged(&file)) {
            spoil(outgoing, &error, self.shared);
        }
        outgoing.close();
        if outgoing.spoilt.load(Ordering::Acquire) {
            self.put(&Item::Abandon(outgoing.id))
        } else {
            self.put(&Item::End(outgoing.id))
        }
    }

    /// Sends a range of which the receiver has nothing.
    fn plain(&mut self, outgoing: &Outgoing, range: Range<u64>) -> Result<(), Stop> {
        if outgoing.spoilt.load(Ordering::Acquire) {
            return Ok(());
        }
        let file = outgoing.open().map_err(Stop::File)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut stopped = None;
        let read = blocks::runs(&file, range, |is_data, run| {
            let length = run.end - run.start;
            let step = if is_data { Step::Send(run.start, length) } else { Step::Hole(run.start, length) };
            self.step(outgoing, &file, step).map_err(|stop| {
                stopped = Some(stop);
                io::ErrorKind::Other.into()
            })
        });
        match (read, stopped) {
            (_, Some(stop)) => Err(stop),
            (read, None) => read.map_err(Stop::File),
        }
    }

    fn steps(&mut self, outgoing: &Outgoing, steps: &[Step]) -> Result<(), Stop> {
        if outgoing.spoilt.load(Ordering::Acquire) {
            return Ok(());
        }
        let file = outgoing.open().map_err(Stop::File)?;
        steps.iter().try_for_each(|&step| self.step(outgoing, &file, step))
    }

    fn step(&mut self, outgoing: &Outgoing, file: &File, step: Step) -> Result<(), Stop> {
        let id = outgoing.id;
        let had = |bytes: u64| {
            self.shared.figures.kept.fetch_add(bytes, Ordering::Relaxed);
            self.shared.figures.counts.done(bytes);
        };
        let put = match step {
            Step::Send(offset, length) => return self.data(outgoing, file, offset..offset + length),
            Step::Hole(offset, length) => {
                self.shared.figures.counts.done(length);
                Item::Hole(id, offset, length)
            }
            Step::Keep(offset, length) => {
                had(length);
                Item::Keep(id, offset, length)
            }
            Step::Copy(offset, from, length, hash) => {
                had(length.into());
                Item::Copy(id, offset, from, length, hash)
            }
        };
        self.put(&put).map_err(Stop::Stream)?;
        if self.writer.len() >= self.frame { self.flush().map_err(Stop::Stream) } else { Ok(()) }
    }

    fn data(&mut self, outgoing: &Outgoing, file: &File, mut range: Range<u64>) -> Result<(), Stop> {
        while !range.is_empty() {
            let largest = LARGEST_DATA.min(2 * self.frame);
            let most = largest.saturating_sub(self.writer.len()).max(self.frame / 8);
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(most);
            if self.writer.len() + length > largest {
                self.flush().map_err(Stop::Stream)?;
            }
            let item = Item::Data(outgoing.id, range.start, u32::try_from(length).unwrap_or(u32::MAX));
            let before = self.writer.len();
            self.put(&item).map_err(Stop::Stream)?;
            let body = self.writer.body();
            let at = body.len();
            body.resize(at + length, 0);
            let began = Instant::now();
            let read = file.read_exact_at(&mut body[at..], range.start);
            self.shared.figures.reading.fetch_add(nanoseconds(began), Ordering::Relaxed);
            if let Err(error) = read {
                self.writer.cut(before);
                return Err(Stop::File(error));
            }
            self.shared.figures.counts.done(length as u64);
            range.start += length as u64;
            if self.writer.len() >= self.frame {
                self.flush().map_err(Stop::Stream)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, item: &Item) -> io::Result<()> {
        message::put(item, self.writer.body())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.writer.is_empty() {
            return Ok(());
        }
        let figures = &self.shared.figures;
        figures.first.fetch_min(nanoseconds(self.shared.began), Ordering::Relaxed);
        if let Some(pace) = &self.shared.pace {
            let began = Instant::now();
            // A session that ends waits for nothing more.
            self.shared.wait(pace.take(self.writer.whole(), began));
            figures.limited.fetch_add(nanoseconds(began), Ordering::Relaxed);
        }
        let sent = self.writer.send()?;
        figures.sent.fetch_add(sent as u64, Ordering::Relaxed);
        figures.last.fetch_max(nanoseconds(self.shared.began), Ordering::Relaxed);
        Ok(())
    }
}

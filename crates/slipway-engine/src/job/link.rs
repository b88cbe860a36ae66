//! The link between a job's process and its part on another machine. Messages and the streams of programs share one pair of
//! pipes.
//!
//! Each stream has a window. A program that prints faster than anybody reads waits, as at a pipe, and neither side holds more
//! of a stream than its window.

pub mod frame;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exec::pump::never_block;
use crate::protocol::Frames;
use frame::{CHUNK, Frame, LONGEST};

pub(super) use frame::Id;

/// Bytes of a stream that may be under way, or wait for a reader at the other side.
const WINDOW: usize = 256 * 1024;
/// Bytes that wait for the pipe before streams have to.
const CROWDED: usize = 1 << 20;

/// Something that happened to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The other side said something, or is gone.
    Input,
    /// The other side takes more.
    Output,
    /// A stream from here has bytes, or ends.
    Source(Id),
    /// A stream to here finds a reader, or has lost it.
    Sink(Id),
}

/// A stream that comes from a pipe here.
#[derive(Debug)]
struct Source {
    pipe: OwnedFd,
    /// Bytes that the other side still takes.
    room: usize,
}

/// A stream that goes into a pipe here.
#[derive(Debug)]
struct Sink {
    pipe: OwnedFd,
    waiting: VecDeque<u8>,
    /// Bytes that found a reader, and were not reported yet.
    taken: usize,
    /// The other end has closed the stream.
    ended: bool,
}

/// One side of a link. It never blocks.
#[derive(Debug)]
pub(super) struct Link {
    input: OwnedFd,
    output: OwnedFd,
    frames: Frames,
    out: VecDeque<u8>,
    sources: BTreeMap<Id, Source>,
    sinks: BTreeMap<Id, Sink>,
}

impl Link {
    /// A link over two pipes of this process's own.
    pub(super) fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        never_block(&input)?;
        never_block(&output)?;
        let (sources, sinks) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { input, output, frames: Frames::default(), out: VecDeque::new(), sources, sinks })
    }

    /// Sends a message.
    pub(super) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() >= LONGEST {
            return Err(io::Error::other(format!("a message is longer than {LONGEST} bytes")));
        }
        Frame::Message(&text).write(&mut self.out);
        self.write()
    }

    /// Sends what comes out of a pipe, which must not block.
    pub(super) fn source(&mut self, id: Id, pipe: OwnedFd) {
        self.sources.insert(id, Source { pipe, room: WINDOW });
    }

    /// Writes a stream into a pipe, which must not block.
    pub(super) fn sink(&mut self, id: Id, pipe: OwnedFd) {
        self.sinks.insert(id, Sink { pipe, waiting: VecDeque::new(), taken: 0, ended: false });
    }

    /// Everything to wait for. The end of a pipe's other side is reported always (`poll(2)`).
    pub(super) fn waits_for(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Event)> {
        let mut on = vec![(self.input.as_fd(), PollFlags::IN, Event::Input)];
        if !self.out.is_empty() {
            on.push((self.output.as_fd(), PollFlags::OUT, Event::Output));
        }
        let crowded = self.out.len() > CROWDED;
        let sources = self.sources.iter().filter(|(_, source)| source.room > 0 && !crowded);
        on.extend(sources.map(|(&id, source)| (source.pipe.as_fd(), PollFlags::IN, Event::Source(id))));
        for (&id, sink) in &self.sinks {
            let flags = if sink.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            on.push((sink.pipe.as_fd(), flags, Event::Sink(id)));
        }
        on
    }

    /// Acts on what was waited for, and gives the messages that came.
    ///
    /// # Errors
    /// `UnexpectedEof` where the other side is gone; `InvalidData` where it does not keep to the protocol.
    pub(super) fn handle<M: DeserializeOwned>(&mut self, event: Event) -> io::Result<Vec<M>> {
        let mut messages = Vec::new();
        match event {
            Event::Input => self.read(&mut messages)?,
            Event::Output => {}
            Event::Source(id) => drop(self.carry(id)?),
            Event::Sink(id) => self.fill(id),
        }
        self.write()?;
        Ok(messages)
    }

    /// Carries what a program has written already. `false`: the other side does not take all of it yet.
    pub(super) fn flush(&mut self, program: u32) -> io::Result<bool> {
        let mut all = true;
        for id in [(program, 1), (program, 2)] {
            while self.carry(id)? {}
            all &= self.sources.get(&id).is_none_or(|source| source.room > 0);
        }
        self.write()?;
        Ok(all)
    }

    /// Carries what there is of all streams from here, and ends them. `false`: the other side does not take all of it yet.
    pub(super) fn finish(&mut self) -> io::Result<bool> {
        let all: Vec<Id> = self.sources.keys().copied().collect();
        for id in all {
            while self.carry(id)? {}
            if self.sources.get(&id).is_some_and(|source| source.room > 0) {
                self.close(id);
            }
        }
        self.write()?;
        Ok(self.sources.is_empty())
    }

    /// Whether all that was said is in the pipe.
    pub(super) fn is_sent(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether all bytes that came of any stream are written.
    pub(super) fn has_written_all(&self) -> bool {
        self.sinks.values().all(|sink| sink.waiting.is_empty())
    }

    /// Whether all bytes that came of a program's streams are written.
    pub(super) fn is_written(&self, program: u32) -> bool {
        let of_program = self.sinks.range((program, 0)..=(program, 2));
        of_program.into_iter().all(|(_, sink)| sink.waiting.is_empty())
    }

    /// Forgets a program's streams from here: nobody is there to take them.
    pub(super) fn forget(&mut self, program: u32) {
        self.sources.retain(|&(of, _), _| of != program);
        self.sinks.retain(|&(of, _), _| of != program);
    }

    fn read<M: DeserializeOwned>(&mut self, messages: &mut Vec<M>) -> io::Result<()> {
        let mut bytes = [0; CHUNK];
        match rustix::io::read(&self.input, &mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.frames.push(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        while let Some(frame) = self.frames.take(LONGEST).map_err(|error| nonsense(&error.to_string()))? {
            match frame::read(&frame)? {
                Frame::Message(text) => messages.push(serde_json::from_slice(text)?),
                Frame::Data(id, bytes) => self.arrive(id, bytes)?,
                Frame::Taken(id, count) => {
                    if let Some(source) = self.sources.get_mut(&id) {
                        source.room = source.room.saturating_add(count as usize).min(WINDOW);
                    }
                }
                Frame::Closed(id) => {
                    if let Some(sink) = self.sinks.get_mut(&id) {
                        sink.ended = true;
                        self.fill(id);
                    }
                }
                // Its program sees that, as it would at a pipe without a reader.
                Frame::Unread(id) => drop(self.sources.remove(&id)),
            }
        }
        Ok(())
    }

    /// Takes bytes of a stream. Those of one that has lost its reader go nowhere.
    fn arrive(&mut self, id: Id, bytes: &[u8]) -> io::Result<()> {
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        if sink.ended || sink.waiting.len() + sink.taken + bytes.len() > WINDOW {
            return Err(nonsense("more bytes of a stream came than may"));
        }
        sink.waiting.extend(bytes);
        self.fill(id);
        Ok(())
    }

    /// Writes what waits into the pipe of a stream, as far as the pipe takes it.
    fn fill(&mut self, id: Id) {
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        let mut lost = false;
        loop {
            let (next, _) = sink.waiting.as_slices();
            if next.is_empty() {
                lost |= !sink.ended && is_unread(&sink.pipe);
                break;
            }
            match rustix::io::write(&sink.pipe, next) {
                Ok(count) => {
                    sink.waiting.drain(..count);
                    sink.taken += count;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        if lost {
            self.sinks.remove(&id);
            Frame::Unread(id).write(&mut self.out);
        } else if sink.ended && sink.waiting.is_empty() {
            // With the pipe, its reader sees the end.
            self.sinks.remove(&id);
        } else if sink.taken > 0 && (sink.waiting.is_empty() || sink.taken >= WINDOW / 4) {
            let taken = u32::try_from(std::mem::take(&mut sink.taken)).unwrap_or(u32::MAX);
            Frame::Taken(id, taken).write(&mut self.out);
        }
    }

    /// Reads once from a stream that comes from here. `false`: there is nothing more for now.
    fn carry(&mut self, id: Id) -> io::Result<bool> {
        let Some(source) = self.sources.get_mut(&id).filter(|source| source.room > 0) else { return Ok(false) };
        let mut bytes = [0; CHUNK];
        let most = source.room.min(CHUNK);
        match rustix::io::read(&source.pipe, &mut bytes[..most]) {
            Ok(0) => {
                self.close(id);
                Ok(false)
            }
            Ok(count) => {
                source.room -= count;
                Frame::Data(id, &bytes[..count]).write(&mut self.out);
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&mut self, id: Id) {
        if self.sources.remove(&id).is_some() {
            Frame::Closed(id).write(&mut self.out);
        }
    }

    /// Writes what waits, as far as the pipe takes it.
    fn write(&mut self) -> io::Result<()> {
        loop {
            let (next, _) = self.out.as_slices();
            if next.is_empty() {
                return Ok(());
            }
            match rustix::io::write(&self.output, next) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the reader of a pipe is gone.
fn is_unread(pipe: &OwnedFd) -> bool {
    let mut on = [rustix::event::PollFd::new(pipe, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut on, Some(&now)).is_ok() && on[0].revents().contains(PollFlags::ERR)
}

fn nonsense(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;

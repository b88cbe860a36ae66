//! Carries the output of nodes' own programs from their pipes to the lab's folder.
//!
//! A program may print without end, so the anchor keeps two files of bounded length for each node. It reads each pipe
//! once in a while and never for long, so that no node keeps it from its other work. Meanwhile a program that prints
//! more waits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, write};

use slipway_lab::id::NodeId;

use crate::exec::pump::{never_block, pipe_from_program};
use crate::protocol::LogPiece;

/// Longest either of a node's files becomes, bytes.
const KEPT: u64 = 1024 * 1024;
/// Longest piece of a log that is read at once, bytes.
const PIECE: usize = 256 * 1024;

/// Bytes read of a pipe at once: what a pipe holds.
const CHUNK: usize = 64 * 1024;
/// Bytes read of all pipes before they all rest.
const TURN: usize = 1024 * 1024;
/// How long a pipe that was read is left alone.
const REST: Duration = Duration::from_millis(10);

/// The logs of a lab's nodes.
#[derive(Debug)]
pub(super) struct Logs {
    folder: PathBuf,
    sources: Vec<Source>,
    of_nodes: BTreeMap<NodeId, Log>,
    /// Since when so many bytes were read.
    since: Instant,
    spent: usize,
}

/// The pipe that a program prints to.
#[derive(Debug)]
struct Source {
    node: NodeId,
    pipe: OwnedFd,
    rests_until: Instant,
}

#[derive(Debug)]
struct Log {
    name: String,
    file: File,
    /// Bytes that were written before this file's first.
    begin: u64,
    length: u64,
    /// Pipes of those who want to know when there is more.
    bells: Vec<OwnedFd>,
}

impl Logs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, sources: Vec::new(), of_nodes: BTreeMap::new(), since: Instant::now(), spent: 0 }
    }

    /// A pipe for a program to print to.
    pub(super) fn open(&mut self, node: NodeId, name: &str) -> io::Result<OwnedFd> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.of_nodes.entry(node) {
            let file = create(&current(&self.folder, name))?;
            let length = file.metadata()?.len();
            place.insert(Log { name: name.to_owned(), file, begin: 0, length, bells: Vec::new() });
        }
        let (theirs, pipe) = pipe_from_program()?;
        self.sources.push(Source { node, pipe, rests_until: Instant::now() });
        Ok(theirs)
    }

    /// A piece of a node's log from this position on, or from the oldest byte that is kept.
    pub(super) fn read(&self, node: NodeId, from: u64) -> io::Result<LogPiece> {
        self.of_nodes.get(&node).map_or_else(|| Ok(LogPiece::default()), |log| log.read(&self.folder, from))
    }

    /// A pipe in which there is something once there is more in the log. It ends when nothing more can come.
    pub(super) fn follow(&mut self, node: NodeId) -> io::Result<OwnedFd> {
        let (theirs, bell) = io::pipe()?;
        never_block(&bell)?;
        if self.sources.iter().any(|source| source.node == node)
            && let Some(log) = self.of_nodes.get_mut(&node)
        {
            log.bells.push(bell.into());
        }
        Ok(theirs.into())
    }

    /// Pipes to wait for, by number.
    ///
    /// [`patience`](Self::patience) wants the same `now`. With a later one, a pipe that just ceases to rest is in neither
    /// answer, and nothing wakes the anchor for it.
    pub(super) fn waits_for(&self, now: Instant) -> Vec<(BorrowedFd<'_>, usize)> {
        if self.rests(now) {
            return Vec::new();
        }
        let awake = self.sources.iter().enumerate().filter(|(_, source)| source.rests_until <= now);
        awake.map(|(number, source)| (source.pipe.as_fd(), number)).collect()
    }

    /// How long until there is more to wait for.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let all = self.rests(now).then(|| self.since + REST);
        let each = self.sources.iter().map(|source| source.rests_until).filter(|until| *until > now);
        each.chain(all).min().map(|until| until.saturating_duration_since(now))
    }

    fn rests(&self, now: Instant) -> bool {
        self.spent >= TURN && now < self.since + REST
    }

    /// Reads pipes that have something.
    pub(super) fn tend(&mut self, ready: &[usize]) {
        let now = Instant::now();
        if now >= self.since + REST {
            (self.since, self.spent) = (now, 0);
        }
        let mut bytes = vec![0; CHUNK];
        let mut ended = Vec::new();
        // Those that were read rest, so the others have their turn.
        for &number in ready {
            if self.spent >= TURN {
                break;
            }
            let source = &mut self.sources[number];
            source.rests_until = now + REST;
            match read(&source.pipe, &mut bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(0) | Err(_) => ended.push(number),
                Ok(count) => {
                    self.spent += count;
                    if let Some(log) = self.of_nodes.get_mut(&source.node) {
                        log.append(&self.folder, &bytes[..count]);
                    }
                }
            }
        }
        for number in ended.into_iter().rev() {
            let Source { node, .. } = self.sources.swap_remove(number);
            if !self.sources.iter().any(|source| source.node == node)
                && let Some(log) = self.of_nodes.get_mut(&node)
            {
                log.bells.clear();
            }
        }
    }
}

impl Log {
    fn append(&mut self, folder: &Path, bytes: &[u8]) {
        // A full disk must not end the lab.
        if let Err(error) = self.write(folder, bytes) {
            tracing::warn!(node = self.name, "lost {} bytes of its log: {error}", bytes.len());
        }
        // One that has not heard the last bell yet will look anyway; one that is gone wants no more.
        self.bells.retain(|bell| matches!(write(bell, b"."), Ok(_) | Err(Errno::AGAIN | Errno::INTR)));
    }

    fn write(&mut self, folder: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() as u64 > KEPT {
            let path = current(folder, &self.name);
            fs::rename(&path, older(folder, &self.name))?;
            self.file = create(&path)?;
            (self.begin, self.length) = (self.begin + self.length, 0);
        }
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn read(&self, folder: &Path, from: u64) -> io::Result<LogPiece> {
        let end = self.begin + self.length;
        let piece = |file: &File, begin: u64, from: u64| {
            let mut bytes = Vec::new();
            let mut file = file;
            file.seek(SeekFrom::Start(from - begin))?;
            file.take(PIECE as u64).read_to_end(&mut bytes)?;
            Ok(LogPiece { from, end, bytes })
        };
        if from < self.begin {
            let before = File::open(older(folder, &self.name))?;
            let begin = self.begin - before.metadata()?.len();
            return piece(&before, begin, from.max(begin));
        }
        piece(&self.file, self.begin, from.min(end))
    }
}

/// The newer of a node's files, which is written.
fn current(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.log"))
}

/// The file that was written before it.
fn older(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.log.1"))
}

fn create(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).read(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_its_end_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut logs = Logs::new(folder.path().to_owned());
        let pipe = logs.open(NodeId(0), "n").expect("opened");
        let bell = logs.follow(NodeId(0)).expect("followed");
        let line = [b'x'; 4096];
        for _ in 0..3 * KEPT / 4096 {
            write(&pipe, &line).expect("room");
            // As the anchor does, but without its patience.
            logs.tend(&[0]);
            logs.spent = 0;
        }
        write(&pipe, b"the last").expect("room");
        drop(pipe);
        logs.tend(&[0]);
        logs.tend(&[0]);
        let (now, before) = (current(folder.path(), "n"), older(folder.path(), "n"));
        assert!(fs::read(&now).expect("there").ends_with(b"the last"));
        let lengths = [now, before].map(|path| fs::metadata(path).expect("there").len());
        assert!(lengths.iter().all(|length| *length <= KEPT) && lengths.iter().sum::<u64>() > KEPT, "{lengths:?}");
        let mut rung = vec![0; 100_000];
        assert!(read(&bell, &mut rung).expect("rung") > 0);
        assert_eq!(read(&bell, &mut rung).expect("over"), 0);
        let (mut next, mut kept) = (0, Vec::new());
        loop {
            let piece = logs.read(NodeId(0), next).expect("read");
            assert_eq!(piece.end, 3 * KEPT + 8);
            assert!(piece.bytes.len() <= PIECE && (next == 0 || piece.from == next));
            next = piece.from + piece.bytes.len() as u64;
            kept.extend(piece.bytes);
            if next == piece.end {
                break;
            }
        }
        assert!(kept.len() as u64 == lengths.iter().sum::<u64>() && kept.ends_with(b"xthe last"));
        assert_eq!(logs.read(NodeId(0), u64::MAX).expect("nothing").bytes, b"");
        assert_eq!(logs.read(NodeId(7), 0).expect("nobody's"), LogPiece::default());
        assert_eq!(logs.waits_for(Instant::now()).len(), 0);
    }

    #[test]
    fn a_pipe_that_was_read_rests_and_is_never_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut logs = Logs::new(folder.path().to_owned());
        let pipe = logs.open(NodeId(3), "n").expect("opened");
        write(&pipe, b"x").expect("room");
        assert_eq!(logs.waits_for(Instant::now()).len(), 1);
        logs.tend(&[0]);
        let until = logs.sources[0].rests_until;
        assert_eq!(logs.patience(until.checked_sub(REST).expect("after the start")), Some(REST));
        for spent in [0, TURN] {
            (logs.since, logs.spent) = (until, spent);
            for nanoseconds in [0, 1, 9_999_999, 10_000_000, 10_000_001] {
                let now = until.checked_sub(REST / 2).expect("after the start") + Duration::from_nanos(nanoseconds);
                assert!(!logs.waits_for(now).is_empty() || logs.patience(now).is_some(), "{spent} {nanoseconds}");
            }
        }
    }
}

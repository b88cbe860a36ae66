//! Looks for blocks of a file that are here already: in what an earlier transfer left, and in an older version.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use super::files::Files;
use super::incoming::Incoming;
use crate::blocks::{self, Piece};
use crate::message::{Answer, Basis, Block};

/// Blocks in one answer.
const BATCH: usize = 1024;

/// Serves files from `looks` until there are no more.
pub(super) fn look(files: &Files<'_>, looks: &Mutex<Receiver<Arc<Incoming>>>) {
    let mut buffer = Vec::new();
    loop {
        let next = looks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(incoming) = next else { return };
        match look_at(files, &incoming, &mut buffer) {
            Ok(answer) => drop(files.answers.send(answer)),
            Err(error) => files.fail(&incoming, &error),
        }
    }
}

/// Lists blocks, and gives the answer that follows them.
fn look_at(files: &Files<'_>, incoming: &Incoming, buffer: &mut Vec<u8>) -> io::Result<Answer> {
    let part = files.tree.left_part(&incoming.path)?.filter(is_file);
    if let Some(part) = &part {
        incoming.goes_on.store(true, std::sync::atomic::Ordering::Release);
        list(part, incoming.id, incoming.size, Basis::Part, buffer, &files.answers)?;
    }
    // A link or a directory in its place is no older version.
    let old = files.tree.old(&incoming.path).ok().filter(is_file);
    let Some(old) = old else {
        return Ok(if part.is_some() { Answer::Listed(incoming.id, None) } else { Answer::Fresh(vec![incoming.id]) });
    };
    let size = list(&old, incoming.id, incoming.size, Basis::Old, buffer, &files.answers)?;
    Ok(Answer::Listed(incoming.id, Some(size)))
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// Lists the blocks of `file`, cut as for one of `size` bytes. Gives its own size.
pub(super) fn list(
    file: &File,
    id: u64,
    size: u64,
    basis: Basis,
    buffer: &mut Vec<u8>,
    answers: &SyncSender<Answer>,
) -> io::Result<u64> {
    let own = file.metadata()?.len();
    let mut batch = Vec::new();
    let send = |batch: &mut Vec<Block>| {
        let full = std::mem::take(batch);
        answers.send(Answer::Blocks(id, basis, full)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    for segment in blocks::segments(own) {
        blocks::pieces(file, segment, size, buffer, |piece| {
            let Piece::Block(offset, bytes) = piece else { return Ok(()) };
            let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            batch.push(Block { offset, length, hash: *blake3::hash(bytes).as_bytes() });
            if batch.len() == BATCH { send(&mut batch) } else { Ok(()) }
        })?;
    }
    if !batch.is_empty() {
        send(&mut batch)?;
    }
    Ok(own)
}

//! The receiver's answers.

use std::io::Read;
use std::sync::atomic::Ordering;

use super::compare;
use super::outgoing::Outgoing;
use super::queue::Job;
use super::shared::Shared;
use super::worker::SMALL;
use crate::blocks;
use crate::error::TransferError;
use crate::frame::Reader;
use crate::message::{self, Answer};

/// Follows answers until the last.
pub(super) fn read(answers: &mut Reader<impl Read>, shared: &Shared) -> Result<(), TransferError> {
    loop {
        let body = answers.frame().map_err(TransferError::stream)?;
        let ended = || TransferError::Lost(std::io::ErrorKind::UnexpectedEof.into());
        let mut body = body.ok_or_else(ended)?;
        while !body.is_empty() {
            let answer = message::take(&mut body).map_err(TransferError::stream)?;
            if take(answer, shared)? {
                return Ok(());
            }
        }
    }
}

/// Acts on an answer. True for the last.
fn take(answer: Answer, shared: &Shared) -> Result<bool, TransferError> {
    match answer {
        Answer::Ready | Answer::Alive => {}
        Answer::Fresh(ids) => fresh(&ids, shared)?,
        Answer::Blocks(id, basis, blocks) => {
            let outgoing = shared.file(id)?;
            if outgoing.answered.load(Ordering::Relaxed) {
                return Err(again(id));
            }
            outgoing.found().add(basis, blocks, &shared.blocks);
        }
        Answer::Listed(id, old) => {
            let outgoing = shared.file(id)?;
            once(&outgoing)?;
            shared.answer(1);
            outgoing.found().old_size = old;
            compare::begin(&outgoing, shared);
        }
        Answer::Settled(ids) => shared.settle(&ids),
        Answer::Failed(id, path, why) => {
            shared.outcome().name(|outcome| &mut outcome.failed, &path, why)?;
            shared.settle(&[id]);
        }
        Answer::Differs(id, path, what) => {
            let is_whole = what == "missing" || what == "size" || what.starts_with("another kind");
            shared.outcome().name(|outcome| &mut outcome.different, &path, what)?;
            if is_whole {
                shared.settle(&[id]);
            }
        }
        Answer::Extra(path) => shared.outcome().extra(&path)?,
        Answer::Wrote(_, nanos) => shared.figures.writing.store(nanos, Ordering::Relaxed),
        Answer::Over => {
            if !shared.over() {
                return Err(TransferError::Protocol("it is done before it has everything".to_owned()));
            }
            return Ok(true);
        }
        Answer::Refused(why) => return Err(TransferError::Refused(why)),
    }
    Ok(false)
}

fn again(id: u64) -> TransferError {
    TransferError::Protocol(format!("it says twice what it has of file {id}"))
}

/// The receiver has said everything of a file now.
fn once(outgoing: &Outgoing) -> Result<(), TransferError> {
    if outgoing.answered.swap(true, Ordering::Relaxed) { Err(again(outgoing.id)) } else { Ok(()) }
}

fn fresh(ids: &[u64], shared: &Shared) -> Result<(), TransferError> {
    let mut jobs = Vec::with_capacity(ids.len());
    for outgoing in shared.files(ids)? {
        once(&outgoing)?;
        if outgoing.size <= SMALL {
            jobs.push(Job::Whole(outgoing));
            continue;
        }
        let segments: Vec<_> = blocks::segments(outgoing.size).collect();
        outgoing.left.store(segments.len(), Ordering::Release);
        jobs.extend(segments.into_iter().map(|segment| Job::Segment(outgoing.clone(), segment)));
    }
    shared.answer(ids.len() as u64);
    shared.queue.push(jobs);
    Ok(())
}

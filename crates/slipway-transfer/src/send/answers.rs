//! The receiver's answers.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compare;
use super::outgoing::Outgoing;
use super::queue::Job;
use super::report::Named;
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
    let known = |id: u64| {
        shared
            .file(id)
            .ok_or_else(|| TransferError::Protocol(format!("it speaks of file {id}, which nobody announced")))
    };
    match answer {
        Answer::Ready => {}
        Answer::Fresh(id) => fresh(known(id)?, shared),
        Answer::Blocks(id, basis, blocks) => known(id)?.found().add(basis, blocks)?,
        Answer::Listed(id, old) => {
            let outgoing = known(id)?;
            outgoing.found().old_size = old;
            compare::begin(&outgoing, shared);
        }
        Answer::Settled(id) => shared.settle(id),
        Answer::Failed(id, path, why) => {
            shared.outcome().failed.push(Named::new(&path, why));
            shared.settle(id);
        }
        Answer::Differs(id, path, what) => {
            let is_whole = what == "missing" || what == "size" || what.starts_with("another kind");
            shared.outcome().different.push(Named::new(&path, what));
            if is_whole {
                shared.settle(id);
            }
        }
        Answer::Extra(path) => shared.outcome().extra.push(path.to_string()),
        Answer::Wrote(_, nanos) => shared.figures.writing.store(nanos, Ordering::Relaxed),
        Answer::Over => {
            shared.over();
            return Ok(true);
        }
        Answer::Refused(why) => return Err(TransferError::Refused(why)),
    }
    Ok(false)
}

fn fresh(outgoing: Arc<Outgoing>, shared: &Shared) {
    if outgoing.size <= SMALL {
        shared.queue.push([Job::Whole(outgoing)]);
        return;
    }
    let segments: Vec<_> = blocks::segments(outgoing.size).collect();
    outgoing.left.store(segments.len(), Ordering::Release);
    shared.queue.push(segments.into_iter().map(|segment| Job::Segment(outgoing.clone(), segment)));
}

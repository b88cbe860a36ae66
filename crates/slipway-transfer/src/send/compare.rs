//! Finds which blocks of a file the receiver has.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::found::Step;
use super::outgoing::Outgoing;
use super::queue::Job;
use super::shared::Shared;
use crate::blocks::{self, Piece};
use crate::report::Named;

/// Begins with the comparison of a file, all of whose blocks are known.
pub(super) fn begin(outgoing: &Arc<Outgoing>, shared: &Shared) {
    let segments: Vec<_> = blocks::segments(outgoing.size).collect();
    outgoing.left.store(segments.len().max(1), Ordering::Release);
    if segments.is_empty() {
        // Nothing is the same as nothing.
        shared.queue.push([Job::Compare(outgoing.clone(), 0..0)]);
    }
    shared.queue.push(segments.into_iter().map(|segment| Job::Compare(outgoing.clone(), segment)));
}

/// Compares one segment.
pub(super) fn segment(outgoing: &Outgoing, segment: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
    let file = outgoing.open()?;
    let mut steps: Vec<Step> = Vec::new();
    let start = segment.start;
    blocks::pieces(&file, segment, outgoing.size, buffer, |piece| {
        let step = match piece {
            Piece::Hole(offset, length) => Step::Hole(offset, length),
            Piece::Block(offset, bytes) => outgoing.found().step(offset, bytes),
        };
        match (steps.last_mut(), step) {
            (Some(Step::Send(_, before)), Step::Send(_, length))
            | (Some(Step::Keep(_, before)), Step::Keep(_, length)) => {
                *before += length;
            }
            _ => steps.push(step),
        }
        Ok(())
    })?;
    outgoing.found().steps.insert(start, steps);
    Ok(())
}

/// After the last segment: what is to be sent. Nothing where both trees are only compared.
pub(super) fn conclude(outgoing: &Arc<Outgoing>, shared: &Shared) {
    let mut found = outgoing.found();
    let is_same = found.is_same(outgoing.size);
    let steps = std::mem::take(&mut found.steps);
    found.clear(&shared.blocks);
    drop(found);
    if shared.verify {
        if !is_same {
            shared.outcome().different.push(Named::new(&outgoing.path, "content".to_owned()));
        }
        outgoing.close();
        shared.figures.counts.done(outgoing.size);
        shared.settle(&[outgoing.id]);
        return;
    }
    if is_same {
        shared.queue.push_front([Job::Same(outgoing.clone())].into_iter());
        return;
    }
    let mut steps: Vec<(u64, Vec<Step>)> = steps.into_iter().collect();
    steps.sort_unstable_by_key(|(start, _)| *start);
    outgoing.left.store(steps.len(), Ordering::Release);
    shared.queue.push_front(steps.into_iter().map(|(_, steps)| Job::Steps(outgoing.clone(), steps)));
}

//! Figures of a transfer, made of what its threads counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::path_rules::Rules;
use super::shared::Shared;
use crate::report::{Bottleneck, Progress, Report};

fn get(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

impl Shared {
    /// The activity that takes most of the streams' time.
    fn bottleneck(&self, began: Instant, streams: u32) -> Bottleneck {
        let figures = &self.figures;
        let streaming = match get(&figures.streaming) {
            0 => u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_mul(streams.into()),
            ended => ended,
        };
        let (reading, idle, limited) = (get(&figures.reading), get(&figures.idle), get(&figures.limited));
        // All streams share the limit. Where one or another waited for it most of the time, streams without work are no sign.
        if limited > streaming / u64::from(streams.max(1)) / 2 {
            return Bottleneck::Limit;
        }
        let waited = get(&self.waited);
        // A receiver that writes does not read: the sender waits for as long.
        let writing = get(&figures.writing).min(waited);
        let rest = streaming.saturating_sub(reading + idle + limited + waited);
        let shares = [
            (reading, Bottleneck::DiskRead),
            (waited - writing, Bottleneck::Network),
            (writing, Bottleneck::DiskWrite),
            (rest, Bottleneck::Processor),
            (idle, Bottleneck::Listing),
            (limited, Bottleneck::Limit),
        ];
        shares.into_iter().max_by_key(|(share, _)| *share).map_or(Bottleneck::Network, |(_, what)| what)
    }

    pub(super) fn progress(&self, began: Instant, streams: u32) -> Progress {
        let done = get(&self.figures.done);
        Progress {
            done,
            total: get(&self.figures.bytes),
            files: get(&self.figures.settled),
            files_total: get(&self.figures.files),
            rate: done as f64 / began.elapsed().as_secs_f64().max(1e-9),
            streams,
            limit: self.bottleneck(began, streams),
        }
    }

    pub(super) fn report(&self, began: Instant, rtt: Duration, streams: u32, rules: &Rules) -> Report {
        let figures = &self.figures;
        let mut outcome = std::mem::take(&mut *self.outcome());
        outcome.different.sort_by(|a, b| a.path.cmp(&b.path));
        outcome.extra.sort();
        Report {
            files: get(&figures.files),
            directories: get(&figures.directories),
            links: get(&figures.links),
            bytes: get(&figures.bytes),
            sent: get(&figures.sent),
            kept: get(&figures.kept),
            unchanged: get(&figures.same),
            changed: outcome.changed,
            failed: outcome.failed,
            skipped: outcome.skipped,
            different: outcome.different,
            extra: outcome.extra,
            seconds: began.elapsed().as_secs_f64(),
            data_seconds: get(&figures.last).saturating_sub(get(&figures.first)) as f64 / 1e9,
            rtt: rtt.as_secs_f64(),
            streams,
            congestion_control: rules.in_force.clone(),
            limited_by: self.bottleneck(began, streams),
        }
    }
}

//! Figures of a transfer, made of what its threads counted.

use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::counts::get;
use crate::path_rules::PathRules;
use crate::report::{Bottleneck, Progress, Report};

impl Shared {
    /// The activity that takes most of the streams' time.
    fn bottleneck(&self, began: Instant, streams: u32) -> Bottleneck {
        let figures = &self.figures;
        let streaming = match get(&figures.streaming) {
            0 => u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_mul(streams.into()),
            ended => ended,
        };
        let (reading, idle, limited) = (get(&figures.reading), get(&figures.idle), get(&figures.limited));
        let waited = get(&self.waited);
        // A receiver that writes does not read: the sender waits for as long.
        let writing = get(&figures.writing).min(waited);
        let rest = streaming.saturating_sub(reading + idle + limited + waited);
        let shares = [
            (reading, Bottleneck::DiskRead),
            (waited - writing, Bottleneck::Network),
            (writing, Bottleneck::DiskWrite),
            (rest, Bottleneck::Processor),
            // A stream that has no work once all is listed leaves it to the others, and limits nothing.
            (get(&figures.listing).min(idle), Bottleneck::Listing),
            (limited, Bottleneck::Limit),
        ];
        shares.into_iter().max_by_key(|(share, _)| *share).map_or(Bottleneck::Network, |(_, what)| what)
    }

    pub(super) fn progress(&self, began: Instant, streams: u32) -> Progress {
        self.figures.counts.progress(began, streams, self.bottleneck(began, streams))
    }

    pub(super) fn report(&self, began: Instant, rtt: Duration, streams: u32, rules: &PathRules) -> Report {
        let figures = &self.figures;
        let mut outcome = std::mem::take(&mut *self.outcome());
        outcome.different.sort_by(|a, b| a.path.cmp(&b.path));
        outcome.extra.sort();
        Report {
            files: get(&figures.counts.files),
            directories: get(&figures.directories),
            links: get(&figures.links),
            bytes: get(&figures.counts.bytes),
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
            congestion_control: rules.congestion_control.clone(),
            choices: rules.choices.clone(),
            limited_by: self.bottleneck(began, streams),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The bottleneck of streams that did all this, in seconds of ten.
    fn after(reading: u64, limited: u64, idle: u64, listing: u64) -> Bottleneck {
        let shared = Shared::new(&crate::hostile::request(PathBuf::new(), false), Arc::default());
        let set = |figure: &AtomicU64, seconds: u64| figure.store(seconds * 1_000_000_000, Ordering::Relaxed);
        let figures = &shared.figures;
        set(&figures.streaming, 10);
        set(&figures.reading, reading);
        set(&figures.limited, limited);
        set(&figures.idle, idle);
        set(&figures.listing, listing);
        shared.bottleneck(Instant::now(), 2)
    }

    #[test]
    fn streams_without_work_limit_only_while_files_are_listed() {
        assert_eq!(after(1, 0, 9, 9), Bottleneck::Listing);
        assert_eq!(after(1, 0, 9, 0), Bottleneck::DiskRead);
        assert_eq!(after(0, 2, 8, 1), Bottleneck::Limit);
        assert_eq!(after(0, 0, 0, 0), Bottleneck::Processor);
    }
}

//! How long streams may wait because nobody knows yet what to send.

use std::time::{Duration, Instant};

/// Time in which files are listed, or the receiver looks for what it has of them.
#[derive(Default)]
pub(super) struct Looking {
    lists: bool,
    /// Files that were announced, and of which the receiver has not said what it has.
    unanswered: u64,
    before: Duration,
    since: Option<Instant>,
}

impl Looking {
    /// Files are listed from now on, or no longer.
    pub(super) fn list(&mut self, lists: bool, now: Instant) {
        self.lists = lists;
        self.update(now);
    }

    /// A file was announced.
    pub(super) fn announce(&mut self, now: Instant) {
        self.unanswered += 1;
        self.update(now);
    }

    /// The receiver has said what it has of files.
    pub(super) fn answer(&mut self, files: u64, now: Instant) {
        self.unanswered = self.unanswered.saturating_sub(files);
        self.update(now);
    }

    /// All of the time so far.
    pub(super) fn time(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn update(&mut self, now: Instant) {
        let looks = self.lists || self.unanswered > 0;
        if looks && self.since.is_none() {
            self.since = Some(now);
        } else if !looks {
            self.before = self.time(now);
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_without_an_answer_counts() {
        let mut looking = Looking::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        looking.list(true, at(0));
        looking.announce(at(1));
        looking.list(false, at(2));
        assert_eq!(looking.time(at(3)), Duration::from_secs(3), "the file waits for its answer");
        looking.answer(1, at(4));
        assert_eq!(looking.time(at(9)), Duration::from_secs(4));
        looking.announce(at(10));
        looking.answer(1, at(11));
        assert_eq!(looking.time(at(20)), Duration::from_secs(5));
    }
}

//! Answers of Slurm's programs.

use std::collections::BTreeMap;

/// A task of an array of jobs: the array's number, and the worker's.
pub(super) type Task = (u64, u32);

/// A job's state (`squeue(1)`, "JOB STATE CODES").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for a machine.
    Waiting,
    /// It runs, or begins or ends to.
    Running,
    /// It ended by itself, or by a limit of its own. Slurm's word says how.
    Failed(&'static str),
    /// Somebody, or a machine's end, took its machine away.
    Cancelled,
    /// Slurm no longer knows it.
    Gone,
}

/// Ends that are the worker's own.
const FAILED: [&str; 6] = ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"];
/// Ends that come from elsewhere.
const CANCELLED: [&str; 4] = ["CANCELLED", "PREEMPTED", "NODE_FAIL", "REVOKED"];
/// States before the first instruction.
const WAITING: [&str; 6] = ["PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"];

impl State {
    fn read(word: &str) -> Self {
        match FAILED.into_iter().find(|one| *one == word) {
            Some(word) => Self::Failed(word),
            None if CANCELLED.contains(&word) => Self::Cancelled,
            None if WAITING.contains(&word) => Self::Waiting,
            // A state that we do not know is none of an end.
            None => Self::Running,
        }
    }
}

/// The number of an array: `sbatch --parsable` says `NUMBER` or `NUMBER;CLUSTER`.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().split(';').next()?.parse().ok()
}

/// States of tasks, a line each: `ARRAY INDEX STATE`. Other lines say nothing.
pub(super) fn states(text: &str) -> BTreeMap<Task, State> {
    let task = |line: &str| {
        let mut words = line.split_whitespace();
        let task = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((task, State::read(words.next()?)))
    };
    text.lines().filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_nonsense_is_passed_over() {
        assert_eq!((number("17\n"), number("17;east\n"), number("no")), (Some(17), Some(17), None));
        let text = "7 1 RUNNING\n7 2 PENDING\n7 3 CANCELLED\n9 4 TIMEOUT\n9 5 COMPLETING\n7 N/A RUNNING\nslurm: hello\n\n-1 2 X\n";
        let states = states(text);
        let expected = [
            ((7, 1), State::Running),
            ((7, 2), State::Waiting),
            ((7, 3), State::Cancelled),
            ((9, 4), State::Failed("TIMEOUT")),
            ((9, 5), State::Running),
        ];
        assert_eq!(states.into_iter().collect::<Vec<_>>(), expected);
    }
}

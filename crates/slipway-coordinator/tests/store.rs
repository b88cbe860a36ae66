//! The queue under workers that are late, lie and repeat themselves, and a coordinator that dies.

use std::collections::BTreeMap;

use proptest::prelude::*;
use slipway_campaign::value::Value;
use slipway_coordinator::store::{
    Attempt, Counts, FailureKind, Filter, History as _, Lease, Outcome, PointState, Record, Recorded, Rules, Sqlite,
    State, Store, StoreError, Usage,
};

const RULES: Rules = Rules { most: 3, pause: 1.0 };

#[derive(Debug, Clone)]
enum Step {
    Lease {
        worker: u32,
        want: usize,
    },
    /// Reports the lease with this index among all that were ever given, whether it counts or not.
    Report {
        lease: usize,
        by: u32,
        done: bool,
    },
    Lost {
        worker: u32,
    },
    /// The coordinator ends, and another one opens the database.
    Restart,
    Retry,
    /// The point's result is found to be damaged.
    Redo {
        point: u64,
    },
    Pause(bool),
    Extend(u64),
    Prioritise {
        points: Vec<u64>,
        priority: i32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4_u32, 0..5_usize).prop_map(|(worker, want)| Step::Lease { worker, want }),
        8 => (any::<prop::sample::Index>(), 1..4_u32, any::<bool>())
            .prop_map(|(lease, by, done)| Step::Report { lease: lease.index(64), by, done }),
        1 => (1..4_u32).prop_map(|worker| Step::Lost { worker }),
        1 => Just(Step::Restart),
        1 => Just(Step::Retry),
        1 => (0..10_u64).prop_map(|point| Step::Redo { point }),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => (1..40_u64).prop_map(Step::Extend),
        2 => (prop::collection::vec(0..40_u64, 1..9), -2..3_i32)
            .prop_map(|(points, priority)| Step::Prioritise { points, priority }),
    ]
}

fn attempt(lease: Lease, worker: u32, done: bool) -> Attempt {
    let record = Record { values: vec![Some(Value::Integer(1))], series: Vec::new(), manifest: None };
    let failed = Outcome::Failed { kind: FailureKind::Fatal, message: "no".to_owned(), manifest: None };
    let outcome = if done { Outcome::Done(record) } else { failed };
    Attempt { point: lease.point, fence: lease.fence, worker, outcome, usage: Usage::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_point_gets_one_result_and_none_is_lost(steps in prop::collection::vec(step(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("campaign.db");
        let mut store = Sqlite::create(&path, 10).unwrap();
        let mut leases: Vec<(Lease, u32)> = Vec::new();
        let mut results: BTreeMap<u64, u64> = BTreeMap::new();
        let mut priorities: BTreeMap<u64, i32> = BTreeMap::new();
        let mut now = 0.0;
        for step in steps {
            now += 10.0;
            match step {
                Step::Lease { worker, want } => {
                    let (counts, state) = (store.counts().unwrap(), store.state().unwrap());
                    let given = store.lease(worker, want, now).unwrap();
                    prop_assert!(given.len() <= want);
                    prop_assert_eq!(store.counts().unwrap().waiting + given.len() as u64, counts.waiting);
                    // Points whose pauses have passed all wait, so that the first is one of the greatest priority.
                    if let Some(first) = given.first().filter(|_| want > 0 && state == State::Running) {
                        let of = |point: u64| *priorities.get(&point).unwrap_or(&0);
                        let left = store.points(&Filter { state: Some(PointState::Waiting), ..Filter::default() }, 0, 99);
                        let most = left.unwrap().iter().map(|point| point.priority).max().unwrap_or(i32::MIN);
                        prop_assert!(of(first.point) >= most, "{} before one of {most}", of(first.point));
                    }
                    for lease in given {
                        prop_assert!(!results.contains_key(&lease.point), "a point with a result was given out");
                        prop_assert!(leases.last().is_none_or(|(last, _)| lease.fence > last.fence));
                        leases.push((lease, worker));
                    }
                }
                Step::Report { lease, by, done } => {
                    let Some(&(lease, of)) = leases.get(lease % leases.len().max(1)) else { continue };
                    let newest = leases.iter().rfind(|(other, _)| other.point == lease.point).unwrap().0 == lease;
                    let recorded = store.record(&[attempt(lease, by, done)], RULES, now).unwrap()[0];
                    if by != of || !newest {
                        prop_assert_eq!(recorded, Recorded::Stale);
                    }
                    if recorded == Recorded::Done {
                        *results.entry(lease.point).or_default() += 1;
                    }
                }
                Step::Lost { worker } => drop(store.lost(worker, "ended", RULES, now).unwrap()),
                Step::Restart => {
                    drop(store);
                    store = Sqlite::open(&path).unwrap();
                    store.recover().unwrap();
                    store.begin(0.0).unwrap();
                    now = 0.0;
                }
                Step::Redo { point } => {
                    let again = store.redo(&[point]).unwrap();
                    prop_assert_eq!(again, u64::from(results.remove(&point).is_some()));
                }
                Step::Retry => drop(store.retry(&Filter::default()).unwrap()),
                Step::Pause(paused) => store.set_state(if paused { State::Paused } else { State::Running }).unwrap(),
                Step::Extend(points) => store.extend(points).unwrap(),
                Step::Prioritise { points, priority } => {
                    let (before, ready) = (store.counts().unwrap(), store.ready().unwrap());
                    store.prioritise(&points, priority).unwrap();
                    prop_assert_eq!((store.counts().unwrap(), store.ready().unwrap()), (before, ready));
                    let points = points.into_iter().filter(|point| *point < before.points && !results.contains_key(point));
                    priorities.extend(points.map(|point| (point, priority)));
                }
            }
            prop_assert_eq!(store.verify().unwrap(), Vec::<String>::new());
        }
        // A worker that does all that is left ends the campaign, with one result for each point.
        store.set_state(State::Running).unwrap();
        store.recover().unwrap();
        store.retry(&Filter::default()).unwrap();
        loop {
            now += 1e6;
            let given = store.lease(9, 7, now).unwrap();
            if given.is_empty() {
                break;
            }
            let done: Vec<Attempt> = given.iter().map(|&lease| attempt(lease, 9, true)).collect();
            for recorded in store.record(&done, RULES, now).unwrap() {
                prop_assert_eq!(recorded, Recorded::Done);
            }
        }
        let counts = store.counts().unwrap();
        prop_assert_eq!(counts, Counts { points: counts.points, done: counts.points, ..Counts::default() });
        let mut rows = Vec::new();
        let mut after = 0;
        while let Some(page) = Some(store.results(after, 3).unwrap()).filter(|page| !page.is_empty()) {
            after = page.last().unwrap().seq;
            rows.extend(page.into_iter().map(|row| row.point));
        }
        rows.sort_unstable();
        prop_assert_eq!(rows, (0..counts.points).collect::<Vec<_>>());
        prop_assert!(results.values().all(|&count| count == 1));
    }
}

#[test]
fn pauses_double_and_attempts_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 1).unwrap();
    let mut now = 0.0;
    for (number, pause) in [(1, 1.0), (2, 2.0)] {
        let lease = store.lease(1, 1, now).unwrap()[0];
        assert_eq!(lease.attempt, number);
        assert_eq!(store.record(&[attempt(lease, 1, false)], RULES, now).unwrap(), [Recorded::Again]);
        assert_eq!(store.due(now).unwrap(), Some(now + pause));
        assert!(store.lease(1, 1, now + pause - 0.1).unwrap().is_empty());
        now += pause;
    }
    let lease = store.lease(1, 1, now).unwrap()[0];
    assert_eq!(store.record(&[attempt(lease, 1, false)], RULES, now).unwrap(), [Recorded::Failed]);
    let failed = store.points(&Filter { state: Some(PointState::Failed), ..Filter::default() }, 0, 10).unwrap();
    assert_eq!((failed.len(), failed[0].attempts, failed[0].message.as_deref()), (1, 3, Some("no")));
    assert_eq!(store.retry(&Filter { failure: Some(FailureKind::Timeout), ..Filter::default() }).unwrap(), 0);
    assert_eq!(store.retry(&Filter { failure: Some(FailureKind::Fatal), ..Filter::default() }).unwrap(), 1);
    assert_eq!(store.lease(1, 1, now).unwrap()[0].attempt, 1);
}

/// Whatever happens to it, nothing else is given out before the baseline has a result, and again once that is dropped.
#[test]
fn the_baseline_comes_before_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 10).unwrap();
    store.lead(1).unwrap();
    let rules = Rules { most: 2, pause: 1.0 };
    let of = |leases: &[Lease]| leases.iter().map(|lease| lease.point).collect::<Vec<_>>();

    assert_eq!(store.ready().unwrap(), 1);
    let first = store.lease(1, 4, 0.0).unwrap();
    assert_eq!((of(&first), store.ready().unwrap()), (vec![0], 0));
    assert!(store.lease(2, 4, 0.0).unwrap().is_empty());
    store.record(&[attempt(first[0], 1, false)], rules, 0.0).unwrap();
    assert_eq!(store.due(0.0).unwrap(), Some(1.0));
    let second = store.lease(1, 4, 1.0).unwrap();
    assert_eq!((of(&second), store.stopper().unwrap()), (vec![0], None));
    store.record(&[attempt(second[0], 1, false)], rules, 1.0).unwrap();
    assert_eq!(store.stopper().unwrap().and_then(|point| point.message).as_deref(), Some("no"));
    assert!(store.lease(1, 4, 9.0).unwrap().is_empty(), "it has failed, and the rest does not run");

    store.retry(&Filter { points: vec![0], ..Filter::default() }).unwrap();
    let third = store.lease(1, 4, 9.0).unwrap();
    store.record(&[attempt(third[0], 1, true)], rules, 9.0).unwrap();
    assert_eq!(store.ready().unwrap(), 9);
    let others = store.lease(1, 3, 9.0).unwrap();
    assert_eq!(of(&others), [1, 2, 3]);
    store.record(&[attempt(others[0], 1, false)], rules, 9.0).unwrap();

    // Its result is damaged: points that wait after a failure wait for it too.
    store.redo(&[0]).unwrap();
    assert_eq!((store.ready().unwrap(), of(&store.lease(2, 4, 99.0).unwrap())), (1, vec![0]));
    assert_eq!((store.ready().unwrap(), store.due(99.0).unwrap()), (0, None));
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

#[test]
fn points_come_by_priority_then_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 12).unwrap();
    assert_eq!(store.prioritise(&[7, 1, 5, 1000], 3).unwrap(), 3);
    assert_eq!(store.prioritise(&[9, 2], 8).unwrap(), 2);
    assert_eq!(store.prioritise(&[0], -1).unwrap(), 1);
    assert_eq!(store.counts().unwrap().waiting, 12);
    let leases = store.lease(1, 7, 0.0).unwrap();
    let of = |leases: &[Lease]| leases.iter().map(|lease| lease.point).collect::<Vec<_>>();
    assert_eq!(of(&leases), [2, 9, 1, 5, 7, 3, 4]);
    // One that waits after a failure keeps its priority, and does not hold the others up while it pauses.
    store.record(&[attempt(leases[1], 1, false)], RULES, 0.0).unwrap();
    assert_eq!(of(&store.lease(1, 1, 0.5).unwrap()), [6]);
    assert_eq!(of(&store.lease(1, 2, 1.0).unwrap()), [9, 8]);
    // Nobody can take points out of workers' hands, and what is done stays so.
    store.record(&[attempt(leases[0], 1, true)], RULES, 1.0).unwrap();
    assert_eq!(store.prioritise(&[2, 3], 9).unwrap(), 1);
    assert_eq!(of(&store.lease(1, 9, 2.0).unwrap()), [10, 11, 0]);
    assert_eq!((store.counts().unwrap().waiting, store.ready().unwrap()), (0, 0));
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

#[test]
fn the_baseline_comes_before_points_of_any_priority() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 5).unwrap();
    store.lead(1).unwrap();
    store.prioritise(&[3, 4], 9).unwrap();
    store.prioritise(&[0], -9).unwrap();
    assert_eq!(store.ready().unwrap(), 1);
    let first = store.lease(1, 4, 0.0).unwrap();
    assert_eq!((first[0].point, first.len(), store.ready().unwrap()), (0, 1, 0));
    store.record(&[attempt(first[0], 1, true)], RULES, 0.0).unwrap();
    assert_eq!(store.ready().unwrap(), 4);
    let rest = store.lease(1, 4, 0.0).unwrap();
    assert_eq!(rest.iter().map(|lease| lease.point).collect::<Vec<_>>(), [3, 4, 1, 2]);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

#[test]
fn a_million_points_cost_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.db");
    let mut store = Sqlite::create(&path, 1_000_000).unwrap();
    assert_eq!(store.lease(1, 3, 0.0).unwrap().len(), 3);
    assert_eq!(store.counts().unwrap().waiting, 999_997);
    assert!(std::fs::metadata(&path).unwrap().len() < 200_000);
}

/// A point that ends its worker would otherwise end all that came in one batch with it, until all have failed.
#[test]
fn a_point_that_lost_its_worker_goes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 10).unwrap();
    assert_eq!(store.lease(1, 4, 0.0).unwrap().len(), 4);
    assert_eq!(store.lost(1, "ended", RULES, 3.0).unwrap(), 4);
    for point in 0..4 {
        let leases = store.lease(2, 4, 100.0).unwrap();
        assert_eq!(leases.iter().map(|lease| (lease.point, lease.attempt)).collect::<Vec<_>>(), [(point, 2)]);
        store.record(&[attempt(leases[0], 2, true)], RULES, 100.0).unwrap();
    }
    assert_eq!(store.lease(2, 4, 100.0).unwrap().len(), 4);
}

/// Each second of workers is used, lost or idle, over all runs, also those whose coordinator was killed.
#[test]
fn time_of_workers_adds_up_over_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 10).unwrap();
    store.begin(1000.0).unwrap();
    let leases = store.lease(1, 2, 1.0).unwrap();
    let mut done = attempt(leases[0], 1, true);
    done.usage.seconds = 2.0;
    store.record(&[done], RULES, 4.0).unwrap();
    assert!((store.result(leases[0].point).unwrap().unwrap().at - 1004.0).abs() < 1e-9);
    // A batch of two, lost after three seconds, is three seconds and not six.
    assert_eq!(store.lease(2, 2, 4.0).unwrap().len(), 2);
    store.lost(2, "ended", RULES, 7.0).unwrap();
    // The first worker's second point runs when the coordinator is killed, nine seconds after its lease.
    store.note(10.0, 15.0, 2).unwrap();
    store.recover().unwrap();
    store.begin(5000.0).unwrap();
    store.note(4.0, 4.0, 1).unwrap();
    let spent = store.spent().unwrap();
    assert_eq!((spent.used, spent.lost, spent.idle, spent.fixed), (2.0, 12.0, 5.0, 24.0));
    assert_eq!(store.stints().unwrap().len(), 2);
}

/// The clock on the wall stands in the queue for pictures: set back by a day or forth by a year, it holds no point back.
#[test]
fn a_clock_that_is_set_changes_times_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&folder.path().join("campaign.db"), 12).unwrap();
    let mut done = 0;
    for began in [1e9, 1e9 - 86_400.0, 1e9 + 3e7] {
        store.recover().unwrap();
        store.begin(began).unwrap();
        assert_eq!(store.rate().unwrap(), None, "of this run, there is no result");
        for second in [1.0, 2.0, 3.0] {
            let lease = store.lease(1, 1, second).unwrap()[0];
            assert_eq!(store.record(&[attempt(lease, 1, true)], RULES, second).unwrap(), [Recorded::Done]);
            store.note(second, second, 1).unwrap();
            done += 1;
        }
        assert_eq!(store.rate().unwrap(), Some(1.0), "results a second, since {began}");
        // A pause counts seconds of the run.
        let lease = store.lease(1, 1, 4.0).unwrap()[0];
        assert_eq!(store.record(&[attempt(lease, 1, false)], RULES, 4.0).unwrap(), [Recorded::Again]);
        assert_eq!(store.due(4.0).unwrap(), Some(5.0));
        let counts = store.counts().unwrap();
        assert_eq!((counts.done, counts.waiting), (done, 12 - done));
    }
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

/// Another program that writes holds the queue up and spoils nothing; one that does not end is named in the error.
#[test]
fn a_locked_database_is_an_error_with_a_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.db");
    let mut store = Sqlite::create(&path, 10).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.lease(1, 1, 0.0).unwrap_err().to_string();
    assert!(error.contains("locked") && error.contains("Hint: another program"), "{error}");
    assert_eq!(store.counts().unwrap().waiting, 10, "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.lease(1, 1, 0.0).unwrap().len(), 1);
    assert_eq!(store.verify().unwrap(), Vec::<String>::new());
}

/// A database that is not ours, is damaged, or of another version is refused with the name of the backup.
#[test]
fn an_unfit_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("campaign.db");
    let mut store = Sqlite::create(&path, 100).unwrap();
    for _ in 0..50 {
        store.lease(1, 1, 0.0).unwrap();
    }
    store.back_up().unwrap();
    drop(store);
    let whole = std::fs::read(&path).unwrap();

    std::fs::write(&path, [b"not a database ".as_slice(), &[7; 8000]].concat()).unwrap();
    let refused = |path| match Sqlite::create(path, 100) {
        Err(StoreError::Unfit { backup, .. }) => backup,
        other => panic!("{other:?}"),
    };
    assert!(refused(&path).ends_with("campaign.db.backup"));

    let mut damaged = whole.clone();
    damaged[4096..8192].fill(0xa5);
    std::fs::write(&path, &damaged).unwrap();
    refused(&path);

    std::fs::write(&path, &whole).unwrap();
    Sqlite::open(&path).unwrap();
    std::fs::copy(folder.path().join("campaign.db.backup"), &path).unwrap();
    assert_eq!(Sqlite::open(&path).unwrap().counts().unwrap().running, 50);
}

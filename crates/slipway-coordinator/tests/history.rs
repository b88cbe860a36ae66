//! The history of a search stays as it was told, in whatever order things end.

use std::ops::Range;

use proptest::prelude::*;
use slipway_campaign::score::Score;
use slipway_campaign::value::Value;
use slipway_coordinator::store::{
    Attempt, Batch, Counts, FailureKind, History as _, Learnt, Outcome, Record, Rules, Sqlite, Store as _, Usage,
};

const RULES: Rules = Rules { most: 1, pause: 1.0 };

#[derive(Debug, Clone)]
enum Step {
    Choose(Vec<(f64, bool)>),
    /// A worker runs points; with these bits of luck.
    Work(Vec<bool>),
    Learn,
    /// The coordinator ends, and another one opens the database.
    Restart,
    Extend(u64),
    Exhaust,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec((any::<f64>().prop_filter("a coordinate", |u| u.is_finite()), any::<bool>()), 1..5)
            .prop_map(Step::Choose),
        8 => prop::collection::vec(any::<bool>(), 1..6).prop_map(Step::Work),
        4 => Just(Step::Learn),
        2 => Just(Step::Restart),
        1 => (1..60_u64).prop_map(Step::Extend),
        1 => Just(Step::Exhaust),
    ]
}

fn outcome(done: bool) -> Outcome {
    if done {
        Outcome::Done(Record { values: vec![Some(Value::Integer(1))], series: Vec::new(), manifest: None })
    } else {
        Outcome::Failed { kind: FailureKind::Fatal, message: "no".to_owned(), manifest: None }
    }
}

fn ended(store: &Sqlite, points: &Range<u64>) -> bool {
    store.pending(points).unwrap() == 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_chosen_points_run_and_the_history_stays(steps in prop::collection::vec(step(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("campaign.db");
        let mut store = Sqlite::create(&path, 10).unwrap();
        store.hold(None).unwrap();
        let mut history: Vec<Batch> = Vec::new();
        let mut values: Vec<Vec<Value>> = Vec::new();
        let mut now = 0.0;
        for step in steps {
            now += 1.0;
            match step {
                Step::Choose(points) => {
                    let points: Vec<(Vec<f64>, Vec<Value>)> = points
                        .into_iter()
                        .map(|(u, yes)| (vec![u, 3.0], vec![Value::Number(u), Value::Bool(yes)]))
                        .collect();
                    // The search asks for no more than the campaign has.
                    if (values.len() + points.len()) as u64 > store.counts().unwrap().points {
                        continue;
                    }
                    let first = values.len() as u64;
                    let batch = store.choose(&points).unwrap();
                    prop_assert_eq!(&batch.points, &(first..first + points.len() as u64));
                    values.extend(points.into_iter().map(|(_, values)| values));
                    history.push(batch);
                }
                Step::Work(luck) => {
                    let leases = store.lease(1, luck.len(), now).unwrap();
                    for (lease, done) in leases.into_iter().zip(luck) {
                        prop_assert!(lease.point < values.len() as u64, "a point that nobody chose was given out");
                        let (usage, outcome) = (Usage::default(), outcome(done));
                        let attempt = Attempt { point: lease.point, fence: lease.fence, worker: 1, outcome, usage };
                        store.record(&[attempt], RULES, now).unwrap();
                    }
                }
                Step::Learn => {
                    let next = history.iter().position(|batch| batch.scores.is_none());
                    let Some(number) = next.filter(|&number| ended(&store, &history[number].points)) else { continue };
                    let score = |coordinates: &Vec<f64>| Learnt {
                        score: Score { objectives: coordinates.clone(), excess: Vec::new() },
                        failed: coordinates[0] > 0.5,
                    };
                    let scores: Vec<Learnt> = history[number].coordinates.iter().map(score).collect();
                    store.learn(number as u64, &scores, None).unwrap();
                    store.measure(number as u64, Some(1.5)).unwrap();
                    history[number].scores = Some(scores);
                }
                Step::Restart => {
                    drop(store);
                    store = Sqlite::create(&path, 10).unwrap();
                    store.recover().unwrap();
                    store.begin(0.0).unwrap();
                    store.hold(None).unwrap();
                }
                Step::Extend(points) => store.extend(points).unwrap(),
                Step::Exhaust => store.exhaust().unwrap(),
            }
            for (number, batch) in history.iter().enumerate() {
                prop_assert_eq!(store.batch(number as u64).unwrap(), Some(batch.clone()));
            }
            prop_assert_eq!(store.batch(history.len() as u64).unwrap(), None);
            for (point, values) in values.iter().enumerate() {
                prop_assert_eq!(store.values(point as u64).unwrap(), Some(values.clone()));
            }
            prop_assert_eq!(store.values(values.len() as u64).unwrap(), None);
            let Counts { done, failed, running, .. } = store.counts().unwrap();
            prop_assert_eq!(store.ready().unwrap() + done + failed + running, values.len() as u64);
            let learnt = history.iter().filter(|batch| batch.scores.is_some()).count();
            prop_assert_eq!(store.steps().unwrap().len(), learnt);
            prop_assert_eq!(store.step().unwrap().is_some(), learnt > 0);
            prop_assert_eq!(store.verify().unwrap(), Vec::<String>::new());
        }
    }
}

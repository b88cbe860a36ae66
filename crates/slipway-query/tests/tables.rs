//! Tables against the queue that they are made from: whatever is recorded, retried, undone or damaged meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use slipway_campaign::value::Value;
use slipway_coordinator::Folder;
use slipway_coordinator::protocol::Setup;
use slipway_coordinator::store::{Attempt, FailureKind, Filter, Outcome, Record, Rules, Sqlite, Store as _, Usage};
use slipway_query::output::{self, Form};
use slipway_query::{QueryError, Tables, query};
use slipway_results::objects::{Directory, Out, Storage as _};
use slipway_results::series;
use slipway_study::campaign::{CampaignError, Study, results};

const RULES: Rules = Rules { most: 1, pause: 0.0 };
const STACK: usize = 32 << 20;
const FILE: &str = "\
campaign: made
run: [model]
variables: {Width: {uniform: [1, 9]}, shape: [round, flat]}
design: {random: 100000}
outputs:
  cost: 'cost (.*)'
  load: {file: out.csv, series: load}
  heat: {file: out.csv, series: heat}
";

/// A campaign's folder, with a queue that the test fills.
struct Made {
    folder: tempfile::TempDir,
    store: Sqlite,
}

impl Made {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::create(temporary.path(), FILE).unwrap();
        let setup =
            Setup { file: "made.yaml".into(), text: FILE.into(), folder: "/".into(), rows: None, extended: Vec::new() };
        fs::write(temporary.path().join("setup.json"), serde_json::to_vec(&setup).unwrap()).unwrap();
        let store = Sqlite::create(&folder.store(), 100_000).unwrap();
        Self { folder: temporary, store }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the next points: with a cost, or without one as failures. Each series has as many values as is said.
    fn end(&mut self, costs: impl IntoIterator<Item = Option<Value>>, length: usize) {
        let costs: Vec<Option<Value>> = costs.into_iter().collect();
        let leases = self.store.lease(1, costs.len(), 1e9).unwrap();
        let attempts: Vec<Attempt> = leases
            .into_iter()
            .zip(costs)
            .map(|(lease, cost)| {
                let outcome = match cost {
                    Some(cost) => Outcome::Done(self.record(lease.point, cost, length)),
                    None => Outcome::Failed { kind: FailureKind::Fatal, message: "broken".into(), manifest: None },
                };
                let usage = Usage { seconds: lease.fence as f64 / 3.0, cpu_seconds: 0.5, peak_bytes: 1 << 20 };
                Attempt { point: lease.point, fence: lease.fence, worker: 1, outcome, usage }
            })
            .collect();
        self.store.record(&attempts, RULES, 0.0).unwrap();
    }

    fn record(&self, point: u64, cost: Value, length: usize) -> Record {
        let values = vec![Some(cost), None, None];
        if length == 0 {
            return Record { values, series: Vec::new(), manifest: None };
        }
        let out = self.path().join("work/1/out");
        fs::create_dir_all(&out).unwrap();
        let mut objects = Out::new(&out);
        let digests = [0.5, 100.0].map(|base| {
            let values: Vec<f64> = (0..length).map(|step| base + (point * 1000) as f64 + step as f64).collect();
            objects.add(series::encode(&values).as_slice(), u64::MAX).unwrap().0
        });
        let storage = Directory::open(&self.path().join("objects")).unwrap();
        storage.adopt(&out, &digests).unwrap();
        Record { values, series: vec![(1, digests[0]), (2, digests[1])], manifest: None }
    }

    fn tables(&self) -> Tables {
        Tables::open(self.path()).unwrap()
    }

    /// Brings the tables up to date. Returns the damaged parts.
    fn update(&self) -> Vec<String> {
        self.tables().update().unwrap().into_iter().flat_map(|table| table.damaged).collect()
    }

    fn try_ask(&self, sql: &str) -> Result<Vec<Json>, QueryError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK).build().unwrap();
        let tables = self.tables();
        let work = || {
            runtime.block_on(async {
                let mut text = Vec::new();
                let answer = query::begin(&tables, sql).await?;
                output::print(answer.rows, Form::Json, &mut text).await?;
                Ok(serde_json::from_slice(&text).unwrap())
            })
        };
        // A thread of its own, for its larger stack.
        let thread = std::thread::Builder::new().stack_size(STACK);
        std::thread::scope(|scope| thread.spawn_scoped(scope, work).unwrap().join().unwrap())
    }

    #[track_caller]
    fn ask(&self, sql: &str) -> Vec<Json> {
        self.try_ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Files of a table, in order.
    fn parts(&self, table: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("tables").join(table)).unwrap();
        let mut parts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        parts.sort();
        parts
    }

    /// The answers are the queue's rows, by the other way to read them.
    #[track_caller]
    fn agrees(&self) {
        let study = Study::open(self.path()).unwrap();
        let names: Vec<String> = results::columns(&study);
        let mut expected = Vec::new();
        results::rows::<CampaignError>(&study, &mut |cells| {
            let cells = names.iter().cloned().zip(cells.into_iter().map(|cell| json!(cell)));
            expected.push(Json::Object(cells.filter(|(name, _)| name != "load" && name != "heat").collect()));
            Ok(())
        })
        .unwrap();
        let mut rows = self.ask("select * from results order by seq");
        for row in &mut rows {
            row.as_object_mut().unwrap().remove("seq");
        }
        // A column of several kinds has numbers as texts, or whole numbers as numbers.
        let plain = |row: &Json| {
            let cost = match &row["cost"] {
                Json::String(text) => text.clone(),
                other => other.as_f64().map_or(other.to_string(), |number| number.to_string()),
            };
            let mut row = row.clone();
            row["cost"] = cost.into();
            row
        };
        assert_eq!(rows.iter().map(plain).collect::<Vec<_>>(), expected.iter().map(plain).collect::<Vec<_>>());
        assert_eq!(self.tables().verify().unwrap(), []);
    }
}

fn whole(numbers: std::ops::Range<i64>) -> impl Iterator<Item = Option<Value>> {
    numbers.map(|number| Some(Value::Integer(number)))
}

#[derive(Debug, Clone)]
enum Step {
    End(Vec<Option<Value>>),
    Retry,
    Redo(u64),
    Update,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let cost = prop_oneof![
        5 => (-9_i64..9).prop_map(|number| Some(Value::Integer(number))),
        1 => Just(Some(Value::Number(0.5))),
        1 => Just(Some(Value::Text("none".into()))),
        2 => Just(None),
    ];
    prop_oneof![
        4 => prop::collection::vec(cost, 1..20).prop_map(Step::End),
        1 => Just(Step::Retry),
        1 => (0..9_u64).prop_map(Step::Redo),
        3 => Just(Step::Update),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn tables_have_the_rows_of_the_queue(steps in prop::collection::vec(step(), 1..12)) {
        let mut made = Made::new();
        for step in steps {
            match step {
                Step::End(costs) => made.end(costs, 2),
                Step::Retry => drop(made.store.retry(&Filter::default()).unwrap()),
                Step::Redo(point) => drop(made.store.redo(&[point]).unwrap()),
                Step::Update => drop(made.update()),
                Step::Forget => fs::remove_dir_all(made.path().join("tables")).unwrap_or_default(),
            }
        }
        made.update();
        made.agrees();
        let done = made.store.counts().unwrap().done;
        let rows = made.ask("select count(*) as n, count(distinct point) as points from series");
        prop_assert_eq!(rows, [json!({"n": done * 4, "points": done})]);
    }
}

#[test]
fn parts_are_filled_before_others_begin() {
    let mut made = Made::new();
    made.end(whole(0..9_000), 0);
    made.update();
    assert_eq!(made.parts("results").len(), 1);
    made.end(whole(9_000..9_001), 0);
    made.update();
    let first = made.parts("results");
    assert_eq!(first.len(), 1, "{first:?}");
    made.end(whole(9_001..20_500), 0);
    made.update();
    let before = made.parts("results");
    assert_eq!(before.len(), 3, "{before:?}");
    made.update();
    assert_eq!(made.parts("results"), before, "nothing is new");
    let sums = made.ask("select count(*) as n, sum(cost) as cost from results");
    assert_eq!(sums, [json!({"n": 20_500, "cost": 20_499 * 20_500 / 2})]);
    made.agrees();
}

#[test]
fn series_join_their_inputs() {
    let mut made = Made::new();
    made.end(whole(0..3), 24);
    let rows = made.ask(
        "select s.point, r.Width, max(s.value) as top from series s join results r on r.point = s.point \
         where s.output = 'heat' group by s.point, r.Width order by s.point",
    );
    let study = Study::open(made.path()).unwrap();
    let row = |point: u64| {
        let width = json!(study.plan.point(point)[0]);
        json!({"point": point, "Width": width, "top": 123.0 + point as f64 * 1000.0})
    };
    assert_eq!(rows, (0..3).map(row).collect::<Vec<_>>());
    let sql =
        "select output, count(*) as n, min(step) as a, max(step) as z from series group by output order by output";
    let of = |output: &str| json!({"output": output, "n": 72, "a": 0, "z": 23});
    assert_eq!(made.ask(sql), [of("heat"), of("load")]);
}

#[test]
fn points_have_states_planned_ones_too() {
    let mut made = Made::new();
    made.end([Some(Value::Integer(1)), None], 0);
    let rows = made.ask("select state, count(*) as n, min(message) as why from points group by state order by state");
    let expected = [
        json!({"state": "done", "n": 1, "why": null}),
        json!({"state": "failed", "n": 1, "why": "broken"}),
        json!({"state": "waiting", "n": 99_998, "why": null}),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_damaged_part_is_named_and_made_again() {
    let mut made = Made::new();
    made.end(whole(0..25_000), 0);
    made.update();
    let parts = made.parts("results");
    let first = fs::read(&parts[0]).unwrap();
    fs::write(&parts[0], &first[..first.len() / 2]).unwrap();
    fs::write(&parts[1], "nothing").unwrap();
    let damaged = made.update();
    let names = |at: usize| damaged[at].contains(parts[at].to_str().unwrap());
    assert!(damaged.len() == 2 && names(0) && names(1), "{damaged:?}");
    assert_eq!(made.parts("results"), parts);
    made.agrees();
    // Here the footer is whole, and the pages are not: only their readers can tell.
    let mut bytes = fs::read(&parts[1]).unwrap();
    bytes[8..4096].fill(0xaa);
    fs::write(&parts[1], bytes).unwrap();
    let faults = made.tables().verify().unwrap();
    assert!(faults.len() == 1 && faults[0].file == parts[1].to_str().unwrap(), "{faults:?}");
    let error = made.try_ask("select sum(point), sum(cost) from results").unwrap_err();
    assert!(matches!(error, QueryError::Run(_)), "{error}");
}

#[test]
fn results_that_a_crash_undid_leave_the_tables() {
    let mut made = Made::new();
    made.end(whole(0..50), 2);
    let (database, copy) = (made.path().join("campaign.db"), made.path().join("copy"));
    made.store.back_up().unwrap();
    fs::rename(made.path().join("campaign.db.backup"), &copy).unwrap();
    made.end(whole(50..80), 2);
    made.update();
    // The database is as it was before the last results, and others take their numbers.
    let Made { folder, store } = made;
    drop(store);
    for name in ["campaign.db-wal", "campaign.db-shm"] {
        let _ = fs::remove_file(folder.path().join(name));
    }
    fs::rename(copy, &database).unwrap();
    let mut made = Made { store: Sqlite::open(&database).unwrap(), folder };
    made.end([None], 0);
    made.end(whole(150..170), 3);
    made.update();
    made.agrees();
    let rows = made.ask("select count(*) as n from series");
    assert_eq!(rows, [json!({"n": 50 * 2 * 2 + 20 * 3 * 2})]);
}

#[test]
fn a_query_keeps_its_files_while_others_are_made() {
    let mut made = Made::new();
    made.end(whole(0..10), 0);
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK).build().unwrap();
    let tables = made.tables();
    let before = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let begin = || runtime.block_on(query::begin(&tables, "select * from results"));
        let answer = thread.spawn_scoped(scope, begin).unwrap().join().unwrap().unwrap();
        let before = made.parts("results");
        made.end(whole(10..20), 0);
        made.update();
        drop(answer);
        before
    });
    let during = made.parts("results");
    assert!(during.len() == 2 && during.contains(&before[0]), "{during:?}");
    made.update();
    assert_eq!(made.parts("results").len(), 1);
    made.agrees();
}

#[test]
fn only_queries_are_answered() {
    let mut made = Made::new();
    made.end(whole(0..2), 0);
    let secret = made.path().join("secret.csv");
    fs::write(&secret, "a\n1\n").unwrap();
    let target = made.path().join("stolen.parquet");
    for statement in [
        "create table t as select 1".to_owned(),
        format!("create external table t stored as csv location '{}'", secret.display()),
        format!("copy results to '{}'", target.display()),
        "insert into results select * from results".to_owned(),
        "drop table results".to_owned(),
        "delete from results".to_owned(),
        "update results set cost = 1".to_owned(),
        "set datafusion.execution.batch_size = 1".to_owned(),
        "begin".to_owned(),
        format!("explain analyze copy results to '{}'", target.display()),
        format!("select * from '{}'", secret.display()),
        "select 1; select 2".to_owned(),
        "select nothing from results".to_owned(),
        "nonsense".to_owned(),
        String::new(),
    ] {
        let error = made.try_ask(&statement).expect_err(&statement);
        let text = error.to_string();
        assert!(matches!(error, QueryError::Statement { .. }), "{statement}: {text}");
        assert!(text.contains("Hint: tables: results (point, Width, shape, cost, seconds,"), "{text}");
    }
    assert!(!target.exists());
    assert_eq!(made.ask("select count(*) as n from results"), [json!({"n": 2})]);
}

#[test]
fn an_empty_campaign_answers_too() {
    let made = Made::new();
    assert_eq!(made.ask("select count(*) as n from results"), [json!({"n": 0})]);
    assert_eq!(made.ask("select * from series"), Vec::<Json>::new());
    assert_eq!(made.ask("select count(*) as n from points"), [json!({"n": 100_000})]);
    assert_eq!(made.tables().verify().unwrap(), []);
}

//! Results, read from what programs write, well or not.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use slipway_campaign::model::{Output, Pick};
use slipway_campaign::value::Value;
use slipway_results::extract::{Extracted, Extractor};
use tempfile::TempDir;

fn output(file: Option<&str>, pick: Pick) -> Output {
    Output { name: "y".to_owned(), unit: String::new(), file: file.map(Into::into), pick }
}

/// Extracts one output from a file `f` of this content.
fn from(content: impl AsRef<[u8]>, pick: Pick) -> Extracted {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("f"), content).unwrap();
    in_folder(folder.path(), pick)
}

fn in_folder(folder: &Path, pick: Pick) -> Extracted {
    let extractor = Extractor::new(&[output(Some("f"), pick)]).unwrap();
    extractor.extract(folder, Path::new("/nonexistent"))
}

fn value(content: impl AsRef<[u8]>, pick: Pick) -> Value {
    let extracted = from(content, pick);
    assert_eq!(extracted.problems, [""; 0]);
    extracted.values[0].clone().unwrap()
}

fn problem(content: impl AsRef<[u8]>, pick: Pick) -> String {
    only_problem(from(content, pick))
}

fn only_problem(extracted: Extracted) -> String {
    assert_eq!((extracted.values, extracted.series), (vec![None], Vec::new()));
    let [problem] = extracted.problems.try_into().unwrap();
    problem
}

fn every_pick() -> [Pick; 6] {
    [
        Pick::Regex("a=(.*)".into()),
        Pick::JsonPath("$.a".into()),
        Pick::Column("a".into()),
        Pick::Series("a".into()),
        Pick::Sql("select a from t".into()),
        Pick::Size,
    ]
}

#[test]
fn each_pick_finds_its_value() {
    let text = "  total = 12.5 kWh\n  total = 13 kWh\n";
    assert_eq!(value(text, Pick::Regex(r"total = ([\d.]+)".into())), Value::Number(12.5));
    assert_eq!(value("n: 7", Pick::Regex("n: (.*)".into())), Value::Integer(7));
    assert_eq!(value("state: ok ", Pick::Regex("state: (.*)".into())), Value::Text("ok".into()));
    assert_eq!(value(r#"{"a": [1, {"b": 2.5}]}"#, Pick::JsonPath("$.a[1].b".into())), Value::Number(2.5));
    assert_eq!(value(r#"{"a": true}"#, Pick::JsonPath("$.a".into())), Value::Bool(true));
    assert_eq!(value("t, a \n1,2\n2,3.5\n", Pick::Column("a".into())), Value::Number(3.5));
    assert_eq!(value("t,a\n1,2\n2,\n", Pick::Column("a".into())), Value::Integer(2));
    assert_eq!(value("12345", Pick::Size), Value::Integer(5));
    assert_eq!(value("", Pick::Size), Value::Integer(0));
    let series = from("t,a\n1,2\n2, 3.5\n3,-1e3\n", Pick::Series("a".into()));
    assert_eq!((series.values, series.series), (vec![None], vec![(0, vec![2.0, 3.5, -1000.0])]));
    assert_eq!(series.problems, [""; 0]);
    let series = from(r#"{"a": [1, 2.5]}"#, Pick::JsonPath("$.a".into()));
    assert_eq!((series.values, series.series), (vec![None], vec![(0, vec![1.0, 2.5])]));
}

#[test]
fn a_query_of_many_rows_is_a_series() {
    let folder = TempDir::new().unwrap();
    let database = rusqlite::Connection::open(folder.path().join("f")).unwrap();
    database.execute_batch("create table t (a); insert into t values (1), (2.5), ('x'), (null);").unwrap();
    drop(database);
    let series = |query: &str| in_folder(folder.path(), Pick::SqlSeries(query.into()));
    assert_eq!(series("select a from t where a < 9").series, [(0, vec![1.0, 2.5])]);
    for (query, words) in [
        ("select a from t", "a text among the numbers"),
        ("select a from t where 0", "no row"),
        ("select null from t", "null"),
    ] {
        let problem = only_problem(series(query));
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn outputs_of_one_file_are_read_together() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("f"), "a,b\n1,2\n3,4\n").unwrap();
    fs::write(folder.path().join("stdout"), "done in 5 s").unwrap();
    let picks = [Pick::Column("b".into()), Pick::Series("a".into()), Pick::Size, Pick::Column("c".into())];
    let mut outputs: Vec<Output> = picks.into_iter().map(|pick| output(Some("f"), pick)).collect();
    outputs.push(output(None, Pick::Regex(r"in (\d+) s".into())));
    let extracted = Extractor::new(&outputs).unwrap().extract(folder.path(), &folder.path().join("stdout"));
    let [four, twelve, five] = [4, 12, 5].map(|number| Some(Value::Integer(number)));
    assert_eq!(extracted.values, [four, None, twelve, None, five]);
    assert_eq!(extracted.series, [(1, vec![1.0, 3.0])]);
    assert_eq!(extracted.problems, ["output `y`: f: it has no column `c`, but `a`, `b`"]);
}

fn database(path: &Path, setup: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(setup).unwrap();
}

#[test]
fn a_query_reads_sqlite_also_after_a_wal() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("f");
    database(&file, "pragma journal_mode=wal; create table t (a); insert into t values (1.5), (2)");
    let extracted = in_folder(folder.path(), Pick::Sql("select max(a) from t".into()));
    assert_eq!((extracted.values, extracted.problems), (vec![Some(Value::Integer(2))], vec![]));
    for (query, what) in [
        ("select a from t where a > 9", "the query selects no row"),
        ("select null", "the query selects null"),
        ("select zeroblob(9)", "the query selects a blob, not a value"),
        ("select 9e999", "`inf` is not a finite number"),
        ("select b from t", "no such column: b"),
    ] {
        let problem = only_problem(in_folder(folder.path(), Pick::Sql(query.into())));
        assert!(problem.starts_with(&format!("output `y`: f: {what}")), "{problem}");
    }
}

#[test]
fn a_query_of_a_hostile_database_ends() {
    let folder = TempDir::new().unwrap();
    let endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i from n where i < 0";
    database(&folder.path().join("f"), &format!("create view t as {endless}"));
    let problem = only_problem(in_folder(folder.path(), Pick::Sql("select * from t".into())));
    assert_eq!(problem, "output `y`: f: interrupted");
    let attach = Pick::Sql("select a from t".into());
    fs::write(folder.path().join("f"), [b"SQLite format 3\0".as_slice(), &[0xff; 9000]].concat()).unwrap();
    only_problem(in_folder(folder.path(), attach));
}

#[test]
fn files_that_a_program_cut_off_are_named() {
    let regex = || Pick::Regex("a=(.*)".into());
    assert_eq!(problem("", regex()), "output `y`: f: it is empty");
    assert_eq!(problem("b=1", regex()), "output `y`: f: the regular expression `a=(.*)` matches nothing");
    assert!(problem(r#"{"a": 1"#, Pick::JsonPath("$.a".into())).contains("f: it is no JSON: EOF"));
    assert!(problem("a,b\n1,2\n3", Pick::Column("a".into())).contains("line: 3"));
    assert!(problem("a\n", Pick::Series("a".into())).contains("the column `a` has no values"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("f");
    database(&file, "create table t (a); insert into t select zeroblob(3000) from (values (1), (2), (3), (4))");
    let whole = fs::read(&file).unwrap();
    for part in [50, 100, 4096, whole.len() - 4096] {
        fs::write(&file, &whole[..part]).unwrap();
        let problem = only_problem(in_folder(folder.path(), Pick::Sql("select max(length(a)) from t".into())));
        assert!(problem.starts_with("output `y`: f: "), "{problem}");
    }
}

#[test]
fn numbers_that_are_none_are_problems() {
    for text in ["nan", "inf", "-Infinity", "1e999"] {
        assert!(problem(format!("a={text}"), Pick::Regex("a=(.*)".into())).contains("is not a finite number"));
        assert!(problem(format!("a\n{text}\n"), Pick::Column("a".into())).contains("is not a finite number"));
        let series = problem(format!("a\n1\n{text}\n"), Pick::Series("a".into()));
        assert_eq!(series, format!("output `y`: f: line 3: `{text}` is not a finite number"));
    }
    for json in ["null", "[]", "[1, \"a\"]", "{}", "1e999"] {
        problem(format!(r#"{{"a": {json}}}"#), Pick::JsonPath("$.a".into()));
    }
    problem(format!("a={}", "x".repeat(5000)), Pick::Regex("a=(.*)".into()));
}

#[test]
fn nothing_but_a_regular_file_in_the_folder_is_opened() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("f");
    fs::write(folder.path().join("real"), "a=1").unwrap();
    for pick in every_pick() {
        assert!(only_problem(in_folder(folder.path(), pick.clone())).contains("No such file"));
        mknodat(CWD, &file, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let problem = only_problem(in_folder(folder.path(), pick.clone()));
        assert_eq!(problem, "output `y`: f: it is a FIFO, not a regular file");
        fs::remove_file(&file).unwrap();
        for target in ["real", "/etc/passwd", "/dev/zero"] {
            symlink(target, &file).unwrap();
            let problem = only_problem(in_folder(folder.path(), pick.clone()));
            assert_eq!(problem, "output `y`: f: a symbolic link leads to it");
            fs::remove_file(&file).unwrap();
        }
        fs::create_dir(&file).unwrap();
        let problem = only_problem(in_folder(folder.path(), pick.clone()));
        assert_eq!(problem, "output `y`: f: it is a folder, not a regular file");
        fs::remove_dir(&file).unwrap();
        for path in ["../f", "/etc/passwd"] {
            let extractor = Extractor::new(&[output(Some(path), pick.clone())]).unwrap();
            let problem = only_problem(extractor.extract(folder.path(), Path::new("/nonexistent")));
            assert!(problem.ends_with("its path leads out of the folder"), "{problem}");
        }
    }
}

#[test]
fn a_sparse_file_of_any_size_is_refused_at_once() {
    let folder = TempDir::new().unwrap();
    let file = fs::File::create(folder.path().join("f")).unwrap();
    file.set_len(1 << 40).unwrap();
    for pick in every_pick().into_iter().filter(|pick| *pick != Pick::Size) {
        only_problem(in_folder(folder.path(), pick));
    }
    let row = [b"a\n\"".as_slice(), &vec![b'\n'; 8 << 20]].concat();
    assert_eq!(problem(row, Pick::Series("a".into())), "output `y`: f: a row has more than 4 MiB");
}

#[test]
fn outputs_that_cannot_work_are_refused_before_the_first_point() {
    for (pick, what) in [
        (Pick::Regex("a=.*".into()), "has no group"),
        (Pick::Regex("(".into()), "unclosed group"),
        (Pick::JsonPath("a.b".into()), "is no JSON path"),
        (Pick::Sql("selec 1".into()), "syntax error"),
        (Pick::Sql("vacuum into '/tmp/x'".into()), "changes the database"),
    ] {
        let error = Extractor::new(&[output(Some("f"), pick)]).unwrap_err().to_string();
        assert!(error.starts_with("prepare output `y`: ") && error.contains(what), "{error}");
    }
}

proptest! {
    #[test]
    fn no_content_panics(content in proptest::collection::vec(any::<u8>(), 0..300), pick in 0..6_usize) {
        let extracted = from(&content, every_pick()[pick].clone());
        let finite = |value: &Value| value.number().is_none_or(f64::is_finite);
        prop_assert!(extracted.values.iter().flatten().all(finite));
    }

    #[test]
    fn a_series_is_read_as_it_was_written(numbers in proptest::collection::vec(-1e300..1e300_f64, 1..200)) {
        let mut text = "t,a\n".to_owned();
        for number in &numbers {
            let _ = writeln!(text, "x,{number}");
        }
        let extracted = from(text, Pick::Series("a".into()));
        prop_assert_eq!(extracted.series, vec![(0, numbers)]);
    }
}

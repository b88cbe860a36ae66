//! Campaigns whose results are in a bucket, on a real S3 server on loopback. The program slipway-s3 must be beside slipway:
//! `cargo build -p slipway-s3 -p slipway-query` builds both, and so does a build of the workspace.

mod common;
#[path = "campaign_s3/server.rs"]
mod server;

use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::storm::{self, Blow, agents, descendants};
use common::{Inventory, Place, as_before, await_that, told};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use server::{ID, SECRET, Server};
use slipway_campaign::model::Bucket;
use slipway_results::Digest;
use slipway_results::objects::service::{Owner, PROGRAM, Service};
use slipway_results::objects::{self, ObjectError, Out, Remote, Storage as _};

/// Points that leave a value, a series and files. All leave `same.txt` with the same content, and look for the key.
const POINTS: &str = "\
attempts: 100
run: [sh, -c, 'sleep 0.05; echo same > same.txt; echo {x} > out.txt; echo t,v > s.csv; echo 1,{x} >> s.csv;
  cat /proc/[0-9]*/environ > seen 2> /dev/null; env >> seen; echo value {x} leaks $(grep -ac that-nobody-may-see seen); rm seen']
variables: {x: {integer: [1, 1000000]}}
pause: 1ms
workers: 2
outputs:
  value: 'value ([0-9]+)'
  leaks: 'leaks ([0-9]+)'
  series: {file: s.csv, series: v}
";

/// A campaign in a bucket.
struct Campaign {
    place: Place,
    server: Option<Server>,
    port: u16,
}

impl Campaign {
    fn new(points: u32) -> Self {
        let place = Place::new();
        fs::create_dir_all(place.path().join("s3/bucket")).expect("a bucket is a folder");
        let server = Server::start(&place.path().join("s3"), 0);
        let campaign = Self { place, port: server.port, server: Some(server) };
        campaign.write(points, "s3://bucket/some/where", "");
        campaign
    }

    fn write(&self, points: u32, url: &str, more: &str) {
        let (name, port) = (self.place.name("c"), self.port);
        let storage = format!("storage:\n  url: {url}\n  endpoint: http://127.0.0.1:{port}\n{more}");
        let text = format!("campaign: {name}\n{storage}design: {{random: {points}}}\n{POINTS}");
        fs::write(self.place.path().join("campaign.yaml"), text).expect("the campaign file can be written");
    }

    fn slipway<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = self.place.slipway(["campaign"].into_iter().chain(arguments));
        command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET).env_remove("AWS_SESSION_TOKEN");
        command
    }

    #[track_caller]
    fn run<const N: usize>(&self, arguments: [&str; N]) -> String {
        let output = self.slipway(arguments).output().expect("slipway can be started");
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        String::from_utf8(output.stdout).expect("answers are UTF-8")
    }

    #[track_caller]
    fn json<const N: usize>(&self, arguments: [&str; N]) -> Value {
        let text = self.run(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Points with this state, or 0 before there is a queue.
    fn count(&self, of: &str) -> u64 {
        let output = self.slipway(["status", "--json"]).output().expect("slipway can be started");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status[of].as_u64().unwrap_or_default()
    }

    /// Files of objects in the server's folder.
    fn objects(&self) -> Vec<PathBuf> {
        let folder = self.place.path().join("s3/bucket/some/where/objects");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    #[track_caller]
    fn is_whole(&self, points: u64) {
        let rows = self.json(["results", "--json"]);
        let rows = rows.as_array().expect("rows");
        let mut numbers: Vec<u64> = rows.iter().map(|row| row["point"].as_u64().expect("a number")).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..points).collect::<Vec<_>>(), "exactly one result a point");
        assert!(rows.iter().all(|row| row["x"] == row["value"]), "each result is that of its point");
        assert!(rows.iter().all(|row| row["leaks"] == 0), "no program in a node sees the key: {rows:?}");
        assert!(self.run(["verify"]).contains("agree"));
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        let _ = self.place.slipway(["down", "--all"]).output();
    }
}

/// Runs a command that fails with these words.
#[track_caller]
fn fails(command: &mut Command, words: &str) {
    let output = command.output().expect("slipway can be started");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains(words), "`{words}` is not in {}", told(&output));
    assert!(!error.contains(SECRET), "{error}");
}

/// Files below a folder that have a text in them.
fn files_with(folder: &Path, text: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("it has a kind");
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() {
            let bytes = fs::read(&path).expect("it can be read");
            found.extend(bytes.windows(text.len()).any(|window| window == text).then_some(path));
        }
    }
    found
}

#[test]
fn results_go_to_the_bucket_and_every_command_reads_them_there() {
    let campaign = Campaign::new(12);
    let before = Inventory::of(&campaign.place);
    let answer = campaign.json(["run", "--json"]);
    assert_eq!((&answer["done"], &answer["failed"]), (&12.into(), &0.into()), "{answer}");
    as_before(&campaign.place, &before, "its lab went down");
    campaign.is_whole(12);
    // 12 points with a series, a list of files, out.txt and s.csv each; the output of each differs, and `same.txt` is one.
    // Where two points draw the same value there are fewer.
    let objects = campaign.objects().len();
    assert!((40..=12 * 5 + 2).contains(&objects), "{objects} objects: equal content is there once");
    let local = campaign.place.path().join("slipway-campaigns").join(campaign.place.name("c")).join("objects");
    assert_eq!(fs::read_dir(local).expect("the folder is there").count(), 0, "no object stays on this machine");
    assert_eq!(files_with(campaign.place.path(), SECRET.as_bytes()), Vec::<PathBuf>::new(), "no file has the key");

    let log = campaign.run(["logs", "3"]);
    assert!(log.starts_with("value "), "{log}");
    campaign.run(["export", "3", "kept"]);
    let kept = fs::read_to_string(campaign.place.path().join("kept/same.txt")).expect("the file was written");
    assert_eq!(kept, "same\n");
    let sums = campaign.run([
        "query",
        "--csv",
        "select count(*) as n from series s join results r on r.point = s.point where s.value = r.x",
    ]);
    assert_eq!(sums, "n\n12\n");
}

#[test]
fn the_example_runs() {
    let mut campaign = Campaign::new(1);
    fs::create_dir(campaign.place.path().join("s3/simulations")).expect("a bucket is a folder");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/campaigns/bucket/campaign.yaml");
    let text = fs::read_to_string(example).expect("the example is there");
    let text = text.replace(":9000", &format!(":{}", campaign.port));
    let text = text.replace("campaign: bucket", &format!("campaign: {}", campaign.place.name("c")));
    fs::write(campaign.place.path().join("campaign.yaml"), text).expect("the campaign file can be written");
    campaign.run(["run"]);
    assert_eq!(campaign.run(["query", "--csv", "select count(*) as n from series"]), "n\n600\n");
    // The tables are on this machine: they need no server once they are made.
    drop(campaign.server.take());
    assert_eq!(campaign.run(["query", "--csv", "select count(*) as n from series"]), "n\n600\n");
}

#[test]
fn nothing_is_lost_where_the_server_dies_and_comes_back() {
    let mut campaign = Campaign::new(100);
    let run = campaign.slipway(["run", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let run = run.expect("slipway can be started");
    await_that("points have results", || campaign.count("done") >= 4);
    drop(campaign.server.take());
    let output = run.wait_with_output().expect("it can be awaited");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("gives no answer"), "{}", told(&output));
    let done = campaign.count("done");
    assert!((4..100).contains(&done), "{done} points have results");
    // Queries of values need no storage, and the rest says why it cannot go on.
    assert_eq!(campaign.json(["results", "--json"]).as_array().map(Vec::len), usize::try_from(done).ok());
    fails(&mut campaign.slipway(["verify"]), "gives no answer");
    campaign.server = Some(Server::start(&campaign.place.path().join("s3"), campaign.port));
    let answer = campaign.json(["run", "--json"]);
    assert_eq!((&answer["done"], &answer["failed"]), (&100.into(), &0.into()), "{answer}");
    campaign.is_whole(100);
}

#[test]
fn the_program_that_speaks_s3_may_be_killed() {
    goes_on_after(Signal::KILL, &[2, 10, 20]);
}

#[test]
fn a_frozen_program_that_speaks_s3_gets_a_successor() {
    goes_on_after(Signal::STOP, &[2]);
}

/// Kills the server, the program that speaks S3, workers and the coordinator at random moments. The server comes back.
fn storm(kills: u32, points: u32, seed: u64) {
    let mut campaign = Campaign::new(points);
    let server = RefCell::new(campaign.server.take());
    let before = Inventory::of(&campaign.place);
    let start = || {
        let run = campaign.slipway(["run", "--json"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        run.expect("slipway can be started")
    };
    let again = || {
        // A dead coordinator's lab goes down first.
        await_that("the campaign is at rest", || {
            let output = campaign.slipway(["status", "--json"]).output().expect("slipway can be started");
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["runs"] == false
        });
        start()
    };
    let restart = |random: &mut ChaCha8Rng, _: &Child| {
        drop(server.borrow_mut().take());
        storm::pause(random, 1000);
        *server.borrow_mut() = Some(Server::start(&campaign.place.path().join("s3"), campaign.port));
        true
    };
    let speaker = |random: &mut ChaCha8Rng, run: &Child| {
        let mut all = descendants(Pid::from_child(run));
        all.retain(|process| process.name == PROGRAM);
        storm::kill_any(random, &all)
    };
    let blows = [
        Blow::new("servers", 2, restart),
        Blow::new("programs that speak S3", 3, speaker),
        Blow::new("workers", 2, |_, run| agents(run).first().is_some_and(|&agent| storm::kill(agent))),
        Blow::new("others below", 2, |random, run| storm::kill_any(random, &descendants(Pid::from_child(run)))),
        Blow::new("coordinators", 1, |_, run| storm::kill(Pid::from_child(run))),
    ];
    let first = start();
    await_that("points have results", || campaign.count("done") > 0);
    storm::rage(kills, seed, first, &again, &|| campaign.count("waiting") + campaign.count("running"), &blows);
    let output = again().wait_with_output().expect("it can be awaited");
    assert!(output.status.success(), "{}: {}", output.status, campaign.run(["status"]));
    campaign.is_whole(points.into());
    as_before(&campaign.place, &before, "nothing is left but the campaign's folder");
}

#[test]
fn nothing_is_lost_in_kills_of_server_program_workers_and_coordinator() {
    storm(8, 120, 1);
}

#[test]
#[ignore = "takes minutes; `make test-long` runs it"]
fn nothing_is_lost_in_a_hundred_kills() {
    let seed = std::env::var("SLIPWAY_SEED").map_or(2, |seed| seed.parse().expect("a number"));
    storm(100, 1500, seed);
}

/// Sends a signal to the program when so many points are done.
fn goes_on_after(signal: Signal, moments: &[u64]) {
    let campaign = Campaign::new(60);
    let run = campaign.slipway(["run", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let run = run.expect("slipway can be started");
    let mut hit = 0;
    for &done in moments {
        await_that("points have results", || campaign.count("done") >= done);
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap_or_default();
        for child in children.split_whitespace() {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            let pid = child.parse().ok().and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| name.trim() == PROGRAM) {
                hit += usize::from(kill_process(pid, signal).is_ok());
            }
        }
    }
    assert!(hit > 0, "the coordinator has a program that speaks S3");
    let output = run.wait_with_output().expect("it can be awaited");
    assert!(output.status.success(), "{}", told(&output));
    campaign.is_whole(60);
}

#[test]
fn what_is_wrong_with_storage_is_told_before_the_first_point() {
    let mut campaign = Campaign::new(3);
    let no_point = |campaign: &Campaign| assert_eq!(campaign.count("done") + campaign.count("failed"), 0);
    fails(campaign.slipway(["run"]).env("AWS_SECRET_ACCESS_KEY", "wrong"), "SignatureDoesNotMatch");
    fails(campaign.slipway(["run"]).env("AWS_ACCESS_KEY_ID", "wrong"), "refuses the key");
    fails(campaign.slipway(["run"]).env_remove("AWS_SECRET_ACCESS_KEY"), "are not both set");
    fails(campaign.slipway(["run", "--dry-run"]).env("AWS_SECRET_ACCESS_KEY", "wrong"), "SignatureDoesNotMatch");
    assert_eq!(
        fs::read_dir(campaign.place.path().join("s3/bucket")).expect("it is there").count(),
        0,
        "nothing is sent"
    );
    campaign.run(["run", "--dry-run"]);
    assert_eq!(
        fs::read_dir(campaign.place.path().join("s3/bucket")).expect("it is there").count(),
        0,
        "nothing is sent"
    );
    no_point(&campaign);

    campaign.write(3, "s3://other", "  folder: other\n");
    fails(&mut campaign.slipway(["run"]), "has no bucket `other`");
    let key = format!("[default]\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n");
    let file = campaign.place.path().join("s3.key");
    fs::write(&file, key).expect("the file can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    campaign.write(3, "s3://bucket/file", "  credentials: s3.key\n  folder: second\n");
    let bare = |campaign: &Campaign| {
        let mut run = campaign.slipway(["run"]);
        run.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        run
    };
    fails(&mut bare(&campaign), "chmod 600");
    no_point(&campaign);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let output = bare(&campaign).output().expect("slipway can be started");
    assert!(output.status.success(), "{}", told(&output));

    // A second campaign would have the first one's results removed by `gc`.
    campaign.write(3, "s3://bucket/file", "  folder: third\n");
    fails(&mut campaign.slipway(["run"]), "it belongs to campaign");
    drop(campaign.server.take());
    fails(&mut campaign.slipway(["run"]), "gives no answer");
    no_point(&campaign);
}

#[test]
fn a_truncated_object_is_found_and_gc_removes_what_no_result_names() {
    let campaign = Campaign::new(6);
    campaign.run(["run"]);
    for bytes in [0, 5] {
        let object = campaign.objects().first().cloned().expect("there are results");
        let file = fs::OpenOptions::new().write(true).open(object).expect("it can be opened");
        file.set_len(bytes).expect("it can be cut");
        let output = campaign.slipway(["verify"]).output().expect("slipway can be started");
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        let output = campaign.slipway(["verify", "--again"]).output().expect("slipway can be started");
        assert!(String::from_utf8_lossy(&output.stdout).contains("will run again"), "{}", told(&output));
        campaign.run(["run"]);
        campaign.is_whole(6);
    }
    // An object that no result names, as an attempt leaves whose result came too late.
    let stray = campaign.objects()[0].with_file_name(format!("{}.zst", Digest::of(b"stray")));
    fs::write(&stray, "stray").expect("it can be written");
    let before = campaign.objects();
    let answer = campaign.json(["gc", "--dry-run", "--json"]);
    let (objects, bytes) = (answer["objects"].as_u64().expect("a number"), answer["bytes"].as_u64());
    assert!(objects >= 1 && bytes.is_some_and(|bytes| bytes >= 5), "{answer}");
    assert_eq!(campaign.objects(), before, "a dry run removes nothing");
    assert_eq!(campaign.json(["gc", "--json"])["objects"], objects);
    assert_eq!(campaign.objects().len() as u64, before.len() as u64 - objects);
    assert!(!stray.exists());
    assert_eq!(campaign.json(["gc", "--json"])["objects"], 0);
    campaign.is_whole(6);
}

#[test]
fn objects_are_stored_whole_and_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["s3/bucket", "out"] {
        fs::create_dir_all(path(name)).expect("a folder can be made");
    }
    let key = format!("aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n");
    fs::write(path("key"), key).expect("the file can be written");
    fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let server = Server::start(&path("s3"), 0);
    let bucket = Bucket {
        name: "bucket".into(),
        prefix: String::new(),
        endpoint: Some(server.url()),
        region: "us-east-1".into(),
        credentials: Some(path("key")),
    };
    let program = Path::new(env!("CARGO_BIN_EXE_slipway")).with_file_name(PROGRAM);
    let storage = Remote::new(Service { program, bucket });
    storage.begin(Owner { campaign: "one".into(), id: "1".into() }).expect("the bucket is free");
    let other = storage.begin(Owner { campaign: "two".into(), id: "2".into() }).expect_err("it has an owner");
    assert!(other.to_string().contains("belongs to campaign `one`"), "{other}");

    // Bytes that do not compress, in several pieces of an upload, and others in one.
    let mut random = fs::File::open("/dev/urandom").expect("it is there").take(20 << 20);
    let (mut large, small) = (Vec::new(), b"small".to_vec());
    random.read_to_end(&mut large).expect("it has bytes");
    let add = |content: &[u8]| Out::new(&path("out")).add(content, u64::MAX).expect("it can be written").0;
    let digests = [add(&large), add(&small)];
    let grew = storage.adopt(&path("out"), &digests).expect("both are stored");
    assert!(grew > 20 << 20, "{grew}");
    assert_eq!(fs::read_dir(path("out")).expect("a folder").count(), 0, "nothing stays in the worker's folder");
    for (digest, content) in digests.iter().zip([&large, &small]) {
        let mut back = Vec::new();
        let mut reader = objects::read(&storage, digest, u64::MAX).expect("it is there");
        reader.read_to_end(&mut back).expect("it can be read");
        assert!(back == *content, "the content is the same");
    }
    // Again, and without a file: a worker that repeats itself.
    add(&small);
    assert_eq!(storage.adopt(&path("out"), &digests).expect("all are there"), 0);
    // A worker that lies changes nothing.
    fs::write(path("out").join(format!("{}.zst", digests[1])), "a lie").expect("it can be written");
    assert_eq!(storage.adopt(&path("out"), &digests[1..]).expect("the old one stays"), 0);
    assert_eq!(objects::verify(&storage, &digests[1]).expect("it is right"), 5);
    let none = Digest::of(b"none");
    assert!(matches!(storage.adopt(&path("out"), &[none]), Err(ObjectError::Missing(digest)) if digest == none));
    assert!(matches!(objects::verify(&storage, &none), Err(ObjectError::Gone(_))));

    let mut listed = Vec::new();
    let list = storage.list(&mut |object| {
        listed.push(object.digest);
        Ok(())
    });
    list.expect("the bucket can be listed");
    listed.sort();
    let mut sorted = digests;
    sorted.sort();
    assert_eq!(listed, sorted);
    storage.remove(&digests[0]).expect("it is there");
    storage.remove(&digests[0]).expect("one that is gone is no error");
    assert!(matches!(objects::verify(&storage, &digests[0]), Err(ObjectError::Gone(_))));
}

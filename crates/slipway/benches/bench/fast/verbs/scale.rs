//! Queue pairs that are many: their shares, what connecting costs, what memory costs, and what idle ones cost.
//! `cargo bench -p slipway --bench bench -- verbs-scale`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::super::site::{Plan, Site, numbers, up};
use super::super::table::{Measured, Task, table};
use super::{VERBS, plug_in};
use crate::common::{Slipway, less, more};
use crate::pair::{command, end};

const ROUNDS: u32 = 7;
const PORT: &str = "7100";
/// The load in a node.
const LOAD: &str = "/var/tmp/verbs-scale";
/// Idle queue pairs, below the cap of a node.
const IDLE: u32 = 1000;
const GIB: f64 = (1_u64 << 30) as f64;
/// Bytes that are registered: a quarter of a GiB, so that two nodes have room.
const REGISTERED: u64 = 256 << 20;

pub(crate) fn run() {
    plug_in::build(&["--release"]);
    let slipway = Slipway::new();
    let sites = up(&slipway, &[Plan::new(VERBS, "{driver: fast, rdma: true}", 1)]);
    let load = build(slipway.folder());
    for site in &sites {
        for node in [&site.pair.server, &site.pair.client] {
            put(node, &load);
        }
    }
    let mut tasks = Vec::new();
    for count in ["1", "8", "64", "512"] {
        tasks.push(Task::new("queue pairs", move |site| shares(site, count)));
    }
    for clients in ["1", "8"] {
        tasks.push(Task::new("connects", move |site| connects(site, clients)));
    }
    tasks.push(Task::new("registration", registration));
    tasks.push(Task::new("idle queue pairs", idle));
    table("Many queue pairs within a host", ROUNDS, &sites, &tasks, &[]);
}

/// Compiles the load.
fn build(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/bench/fast/verbs/scale.cc");
    let built = folder.join("verbs-scale");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-pthread", "-o"]).args([&built, &source]).args(["-lrdmacm", "-libverbs"]);
    assert!(compiler.status().expect("a compiler").success(), "`make setup-bench` installs librdmacm-dev");
    built
}

fn put(node: &[String], load: &Path) {
    let script = format!("cat > {LOAD} && chmod +x {LOAD}");
    let mut put = command(&[node, &["sh".to_owned(), "-c".to_owned(), script]].concat());
    let status = put.stdin(File::open(load).expect("it is built")).status().expect("slipway runs");
    assert!(status.success(), "the load is in the node");
}

/// A server that stays until it is dropped.
struct Serving(Option<Child>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(end);
    }
}

fn serve(site: &Site<'_>) -> Result<Serving, String> {
    let (child, said) = started(&site.pair.server, &["serve", PORT])?;
    if said == "listens" { Ok(Serving(Some(child))) } else { Err(format!("the server said {said}")) }
}

/// Starts the load in a node, and gives its first line.
fn started(node: &[String], words: &[&str]) -> Result<(Child, String), String> {
    let words: Vec<String> = [LOAD].iter().chain(words).map(|&word| word.to_owned()).collect();
    let mut child = command(&[node, words.as_slice()].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("run the load: {error}"))?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().ok_or("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).map_err(|error| error.to_string())?;
    Ok((child, line.trim().to_owned()))
}

fn client(site: &Site<'_>, words: &[&str]) -> Result<Vec<f64>, String> {
    numbers(&site.client(&[&[LOAD], words].concat())?)
}

fn shares(site: &Site<'_>, count: &str) -> Measured {
    let _serving = serve(site)?;
    let address = site.pair.address.to_string();
    let [index, total] = client(site, &["flows", &address, PORT, count, "1000"])?[..] else {
        return Err("not two numbers".to_owned());
    };
    Ok(vec![
        more(&format!("{count} queue pairs, writes of 64 KiB: all together"), "Gb/s", total),
        more(&format!("{count} queue pairs: Jain's index"), "", index),
    ])
}

fn connects(site: &Site<'_>, clients: &str) -> Measured {
    let _serving = serve(site)?;
    let address = site.pair.address.to_string();
    let rate = client(site, &["connects", &address, PORT, "2000", clients])?;
    let who = if clients == "1" { "1 client".to_owned() } else { format!("{clients} clients at once") };
    let figure = format!("connections by rdma_cm a second, made and ended, {who}");
    Ok(vec![more(&figure, "", *rate.first().ok_or("no number")?)])
}

fn registration(site: &Site<'_>) -> Measured {
    let times = client(site, &["register", &REGISTERED.to_string()])?;
    let names = ["register, for this node", "release it", "register, for others to write", "release it again"];
    let of_a_gib = |seconds: f64| seconds * 1e3 * GIB / REGISTERED as f64;
    Ok(names.iter().zip(times).map(|(name, it)| less(&format!("a GiB: {name}"), "ms", of_a_gib(it))).collect())
}

/// Processor time and memory of queue pairs that nothing goes over.
fn idle(site: &Site<'_>) -> Measured {
    let _serving = serve(site)?;
    let address = site.pair.address.to_string();
    let hold = |count: u32| started(&site.pair.client, &["idle", &address, PORT, &count.to_string()]);
    let (one, _) = hold(1)?;
    let least = private(&one)?;
    finish(one)?;
    let (many, _) = hold(IDLE)?;
    let each = private(&many)?.saturating_sub(least) as f64 / f64::from(IDLE - 1);
    let before = site.cpu()?;
    thread::sleep(Duration::from_secs(2));
    let spent = site.cpu()?.saturating_sub(before);
    finish(many)?;
    Ok(vec![
        less(&format!("{IDLE} idle queue pairs: memory of each beyond its rings"), "KiB", each),
        less(&format!("{IDLE} idle queue pairs: processor time of the whole lab"), "ms/s", spent.as_secs_f64() * 500.0),
    ])
}

/// Ends a client that waits for the end of its input.
fn finish(mut client: Child) -> Result<(), String> {
    drop(client.stdin.take());
    client.wait().map(drop).map_err(|error| error.to_string())
}

/// Memory of a node's program that is its own, KiB (`RssAnon` of `/proc/PID/status`). It is a child of `slipway exec`, or that process.
fn private(of: &Child) -> Result<u64, String> {
    let program = Path::new(LOAD).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let all = std::iter::once(i32::try_from(of.id()).map_err(|error| error.to_string())?);
    let mut all = all.chain(super::super::site::processes(&program[..program.len().min(15)]));
    let anonymous = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let size: u64 = line.split_whitespace().next()?.parse().ok()?;
        arguments.starts_with(LOAD).then_some(()).filter(|()| arguments.contains("idle")).map(|()| size)
    };
    all.find_map(anonymous).ok_or_else(|| "the client is not found".to_owned())
}

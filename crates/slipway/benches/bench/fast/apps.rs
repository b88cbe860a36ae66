//! Real programs: what each does in a second, how long a request takes, and what processor time it costs, of both ends and all that is
//! between them.

use std::cell::Cell;

use slipway_measure::probe::{Netpipe, Output, Probe};

use super::site::{ONE_HOST, Plan, Serving, Site, TWO_HOSTS, up};
use super::table::{Measured, Task, table};
use crate::common::{Slipway, arg, less, more};

const ROUNDS: u32 = 6;

const NGINX: &str = "daemon off; user root; worker_processes 1; error_log /dev/null; pid /run/bench-nginx.pid;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 10000000; server { listen 8080; location / { return 200 '0123456789abcdef'; } } }";

/// A database of its own, of which every write is forgotten when the machine stops: it is the network that is measured.
const POSTGRES: &str =
    "exec setpriv --reuid=postgres --regid=postgres --clear-groups $(ls -d /usr/lib/postgresql/*/bin | tail -n 1)";
const MAKE_DATABASE: &str = "install -d -o postgres -g postgres /scratch/pg
(POSTGRES/initdb --auth=trust --no-sync -D /scratch/pg) >/dev/null
echo 'host all all all trust' >> /scratch/pg/pg_hba.conf";
const SERVE_DATABASE: &str =
    "POSTGRES/postgres -D /scratch/pg -c listen_addresses='*' -c unix_socket_directories=/scratch/pg -c fsync=off";

pub(crate) fn apps_of_one_host() {
    run("Programs on the fast path, within a host", &ONE_HOST, "bridge");
}

pub(crate) fn apps_of_two_hosts() {
    run("Programs on the fast path, between hosts", &TWO_HOSTS, "vxlan");
}

fn run(title: &str, plans: &[Plan], beneath: &str) {
    let slipway = Slipway::new();
    let sites = up(&slipway, plans);
    let serving: Result<Vec<Serving>, String> = sites.iter().try_fold(Vec::new(), |mut all, site| {
        all.extend(serve(site)?);
        Ok(all)
    });
    let serving = serving.unwrap_or_else(|error| panic!("{error}\nHint: scripts/setup.sh run test bench"));
    let outputs = tempfile::tempdir().expect("a temporary folder");
    let number = Cell::new(0);
    let tasks = [
        Task::new("redis", |site| redis(site, "redis", 50_000, &["-c", "16"])),
        Task::new("redis", |site| redis(site, "redis, 16 in a pipeline", 400_000, &["-c", "16", "-P", "16"])),
        Task::new("redis", |site| redis(site, "redis, a connection each", 5_000, &["-c", "16", "-k", "0"])),
        Task::new("nginx", |site| nginx(site, "nginx", &[])),
        Task::new("nginx", |site| nginx(site, "nginx, a connection each", &["-H", "Connection: close"])),
        Task::new("postgres", |site| postgres(site, "PostgreSQL, select", &[])),
        Task::new("postgres", |site| postgres(site, "PostgreSQL, a connection each", &["-C"])),
        Task::new("memcached", memcached),
        Task::new("Open MPI", |site| {
            number.set(number.get() + 1);
            mpi(site, arg(&outputs.path().join(number.get().to_string())))
        }),
    ];
    table(title, ROUNDS, &sites, &tasks, &[["fast", beneath], ["fast", "host"]]);
    drop(serving);
}

fn serve(site: &Site<'_>) -> Result<[Serving; 4], String> {
    let database = |script: &str| script.replace("POSTGRES", POSTGRES);
    site.server(&["sh", "-ec", &database(MAKE_DATABASE)])?;
    let shell = |script: &str, port| site.serve(&["sh", "-c", script], port);
    let serving = [
        site.serve(
            &["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", "/scratch"],
            6379,
        )?,
        shell(&format!("echo \"{NGINX}\" > /run/bench-nginx.conf; exec nginx -c /run/bench-nginx.conf"), 8080)?,
        shell(&database(SERVE_DATABASE), 5432)?,
        site.serve(&["memcached", "-u", "nobody", "-l", "0.0.0.0", "-t", "2"], 11211)?,
    ];
    let address = site.pair.address.to_string();
    site.client(&["pgbench", "-h", &address, "-U", "postgres", "-q", "-i", "postgres"])?;
    Ok(serving)
}

/// What a load generator says.
struct Said {
    requests: f64,
    /// A second, each with a name where there are several.
    rates: Vec<(String, f64)>,
    /// Of one request, ms.
    latency: Option<f64>,
}

/// Runs a load generator, and reads what it says.
fn load(site: &Site<'_>, what: &str, argv: &[&str], read: impl Fn(&str) -> Option<Said>) -> Measured {
    let before = site.cpu()?;
    let printed = site.client(argv)?;
    let spent = site.cpu()?.saturating_sub(before).as_secs_f64();
    let said = read(&printed).ok_or_else(|| format!("{argv:?} said something else: {printed}"))?;
    let rates = said.rates.into_iter().map(|(name, rate)| more(&format!("{what}{name}"), "1/s", rate));
    let latency = said.latency.map(|latency| less(&format!("{what}: median latency"), "ms", latency));
    let cost = less(&format!("{what}: processor time of each"), "µs", spent * 1e6 / said.requests);
    Ok(rates.chain(latency).chain([cost]).collect())
}

/// The number that stands right after `before`.
fn after(text: &str, before: &str) -> Option<f64> {
    let (_, rest) = text.split_once(before)?;
    let number: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.parse().ok()
}

fn redis(site: &Site<'_>, what: &str, requests: u32, options: &[&str]) -> Measured {
    let (address, count) = (site.pair.address.to_string(), requests.to_string());
    let argv =
        [&["redis-benchmark", "-h", &address, "-t", "set,get", "-d", "64", "-n", &count, "--csv"], options].concat();
    load(site, what, &argv, |printed| {
        // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…
        let line = |test: &str| {
            let line = printed.lines().find_map(|line| line.strip_prefix(&format!("\"{test}\",")))?;
            let numbers: Vec<f64> = line.split(',').filter_map(|cell| cell.trim_matches('"').parse().ok()).collect();
            (numbers.len() > 3).then_some(numbers)
        };
        let (set, get) = (line("SET")?, line("GET")?);
        Some(Said {
            requests: 2.0 * f64::from(requests),
            rates: vec![(", SET".to_owned(), set[0]), (", GET".to_owned(), get[0])],
            latency: Some(get[3]),
        })
    })
}

fn nginx(site: &Site<'_>, what: &str, options: &[&str]) -> Measured {
    let url = format!("http://{}:8080/", site.pair.address);
    let argv = [&["wrk", "-t", "1", "-c", "16", "-d", "1s", "--latency"], options, &[&url]].concat();
    load(site, what, &argv, |printed| {
        let (before, _) = printed.split_once(" requests in ")?;
        let median = printed.lines().find_map(|line| line.trim().strip_prefix("50%"))?.trim();
        let unit = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)].into_iter().find(|(unit, _)| median.ends_with(unit))?;
        Some(Said {
            requests: before.split_whitespace().next_back()?.parse().ok()?,
            rates: vec![(String::new(), after(printed, "Requests/sec:")?)],
            latency: Some(median.trim_end_matches(unit.0).parse::<f64>().ok()? * unit.1),
        })
    })
}

fn postgres(site: &Site<'_>, what: &str, options: &[&str]) -> Measured {
    let address = site.pair.address.to_string();
    let argv = [
        &["pgbench", "-h", &address, "-U", "postgres", "-S", "-n", "-c", "8", "-j", "1", "-T", "1"],
        options,
        &["postgres"],
    ]
    .concat();
    let mut samples = load(site, what, &argv, |printed| {
        Some(Said {
            requests: after(printed, "transactions actually processed:")?,
            rates: vec![(String::new(), after(printed, "tps =")?)],
            latency: after(printed, "latency average ="),
        })
    })?;
    for sample in &mut samples {
        sample.figure = sample.figure.replace("median", "mean");
    }
    Ok(samples)
}

fn memcached(site: &Site<'_>) -> Measured {
    let server = format!("{}:11211", site.pair.address);
    load(site, "memcached", &["memcaslap", "-s", &server, "-T", "1", "-c", "16", "-t", "1s"], |printed| {
        let (rate, requests) = (after(printed, "TPS:")?, after(printed, "Ops:")?);
        Some(Said { requests, rates: vec![(String::new(), rate)], latency: None })
    })
}

/// Ranks of Open MPI wait in a loop: their processor time says nothing.
fn mpi(site: &Site<'_>, folder: &str) -> Measured {
    // A connection from one of a host's addresses to another comes from the latter, and Open MPI drops it as a stranger's.
    if site.name == "host" && site.hosts == 1 {
        return Ok(Vec::new());
    }
    let netpipe = ["NPopenmpi", "-p", "0", "-u", "262144", "-n", "50", "-o", "/dev/null"];
    let words = [
        &["run", "--quiet", "--mpi", "openmpi", "--timeout", "20s", "--out", folder, &site.lab, "--"],
        netpipe.as_slice(),
    ]
    .concat();
    let ran = site.slipway.command(&words).output().map_err(|error| format!("run slipway: {error}"))?;
    let stderr = std::fs::read(format!("{folder}/n1.stderr")).unwrap_or_default();
    let code = ran.status.code().unwrap_or(1);
    let output = Output { stdout: ran.stdout, stderr, code, wall: std::time::Duration::ZERO };
    let samples = Probe::Netpipe(Netpipe::default()).read(&[output]).map_err(|error| error.to_string())?;
    Ok(samples
        .into_iter()
        .map(|sample| {
            let figure = format!("Open MPI, {}", sample.figure);
            if sample.higher_is_better {
                more(&figure, &sample.unit, sample.value)
            } else {
                less(&figure, &sample.unit, sample.value)
            }
        })
        .collect())
}

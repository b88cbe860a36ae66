//! How well a processor limit makes a slower processor, by the period that it is counted over.
//! `cargo bench -p slipway --bench bench -- cpu`.
//!
//! A program that always computes is paced right by any period: its share is all there is to it. One that computes for
//! 3 ms and then sleeps for 7 ms is not: on a processor of half the speed its round takes 6 + 7 ms, but a limit of half a
//! core counted over 100 ms never stops it, for it uses 30 ms of its 50. The figure is how far the pace is off that of the
//! slower processor: 0 is exact, +30 % is too fast by so much.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::common::{Slipway, arg};

/// The word that makes this program the load instead of the benchmark.
pub(super) const LOAD: &str = "cpu-load";

/// 4 ms is a tick where `CONFIG_HZ` is 250.
const PERIODS_MS: [u32; 6] = [1, 4, 5, 10, 20, 100];
const SHARES: [f64; 4] = [0.05, 0.25, 0.5, 0.75];
const COMPUTE: Duration = Duration::from_millis(3);
const SLEEP: Duration = Duration::from_millis(7);
const ROUNDS: usize = 5;
/// A load runs this long before it is measured, and then this long.
const TIMES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// The kernel counts no finer (`min_cfs_quota_period`).
const SHORTEST_QUOTA_MS: f64 = 1.0;

pub(super) fn run() {
    let slipway = Slipway::new();
    let exe = std::env::current_exe().expect("this program has a file");
    let text = format!("lab: cpu\nnodes: {{n: {{mounts: [\"{}:/bench:ro\"]}}}}\n", exe.display());
    let file = slipway.lab("cpu", &text);
    slipway.run(&["up", arg(&file)]);
    println!(
        "### Processor limits by period\n\nHow far off the pace of a slower processor (%), median of {ROUNDS} (least – most)\n"
    );
    print!("| load | threads | share |");
    for period in PERIODS_MS {
        print!(" {period} ms |");
    }
    println!("\n| --- | ---: | ---: |{}", " ---: |".repeat(PERIODS_MS.len()));
    for load in ["steady", "bursty"] {
        for threads in [1_u32, 2] {
            for share in SHARES {
                let cells = row(&slipway, load, threads, share);
                println!("| {load} | {threads} | {} % | {} |", share * 100.0, cells.join(" | "));
            }
        }
    }
    println!();
    slipway.run(&["down", "cpu"]);
}

/// A cell for each period, measured in turn.
fn row(slipway: &Slipway, load: &str, threads: u32, share: f64) -> Vec<String> {
    let mut off = vec![Vec::new(); PERIODS_MS.len()];
    for round in 0..ROUNDS {
        for (period, off) in PERIODS_MS.iter().zip(&mut off) {
            if share * f64::from(threads) * f64::from(*period) < SHORTEST_QUOTA_MS {
                continue;
            }
            let cores = format!("cpu={} cores", share * f64::from(threads));
            slipway.run(&["set", "cpu", "n", &cores, &format!("cpu_period={period}ms")]);
            let output = slipway.run(&["exec", "cpu", "n", "--", "/bench", LOAD, load, &threads.to_string()]);
            let text = String::from_utf8_lossy(&output.stdout);
            let pace: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            assert_eq!(pace.len(), threads as usize, "a pace for each thread: {text}");
            let ideal = match load {
                "steady" => share,
                _ => 1.0 / (COMPUTE.as_secs_f64() / share + SLEEP.as_secs_f64()),
            };
            off.push((pace.iter().sum::<f64>() / f64::from(threads) / ideal - 1.0) * 100.0);
            eprintln!("{load}, {threads} threads, {share}: round {round}, {period} ms: {:+.1} %", off[off.len() - 1]);
        }
    }
    off.into_iter().map(cell).collect()
}

fn cell(mut off: Vec<f64>) -> String {
    off.sort_by(f64::total_cmp);
    match (off.first(), off.get(off.len() / 2), off.last()) {
        (Some(least), Some(median), Some(most)) => format!("{median:+.1} ({least:+.1} – {most:+.1})"),
        _ => "–".to_owned(),
    }
}

/// The load: prints the pace of each thread, in seconds of computing or rounds per second.
pub(super) fn load(kind: &str, threads: &str) {
    let bursty = kind == "bursty";
    let threads: u32 = threads.parse().expect("a number of threads");
    let threads: Vec<_> =
        (0..threads).map(|_| std::thread::spawn(move || TIMES.map(|time| pace(bursty, time))[1])).collect();
    for thread in threads {
        println!("{}", thread.join().expect("it ends"));
    }
}

fn pace(bursty: bool, time: Duration) -> f64 {
    let (begun, computed) = (Instant::now(), thread_time());
    let mut rounds = 0_u32;
    while begun.elapsed() < time {
        compute(COMPUTE);
        if bursty {
            std::thread::sleep(SLEEP);
        }
        rounds += 1;
    }
    let took = begun.elapsed().as_secs_f64();
    if bursty { f64::from(rounds) / took } else { thread_time().saturating_sub(computed).as_secs_f64() / took }
}

/// Computes until this thread has had a processor for so long.
fn compute(time: Duration) {
    let begun = thread_time();
    while thread_time().saturating_sub(begun) < time {
        std::hint::spin_loop();
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time does not run backwards")
}

//! The benchmarks behind `docs/benchmarks.md`. All of them: `make bench`; some:
//! `cargo bench -p slipway --bench bench -- lifecycle mpi`. With `--quick` one round is all, which tells only whether they work.
//!
//! They need root, what `make setup-bench` installs, and a machine that does nothing else.

mod campaign;
mod campaign_query;
mod common;
mod cpu;
mod datapath;
mod disk;
mod fast;
mod lifecycle;
mod machines;
mod mpi;
mod pair;
mod plan;
mod policy;
mod scenario;
mod transfer;
mod versions;
mod wire;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, cpu::LOAD, kind, threads] => return cpu::load(kind, threads),
        [_, disk::LOAD, action, way, block, before, operations] => {
            return disk::load([action, way, block, before, operations]);
        }
        [_, fast::LOAD, ref words @ ..] => return fast::load(words),
        _ => {}
    }
    let benches: [(&str, fn()); 31] = [
        ("lifecycle", lifecycle::run),
        ("datapath", datapath::run),
        ("mpi", mpi::run),
        ("wire", wire::run),
        ("cpu", cpu::run),
        ("disk", disk::run),
        ("scenario", scenario::run),
        ("plan", plan::run),
        ("machines", machines::run),
        ("machines-openfoam", machines::openfoam),
        ("policy", policy::run),
        ("campaign-overhead", campaign::overhead),
        ("campaign-memory", campaign::memory),
        ("campaign-storage", campaign::storage),
        ("campaign-elastic", campaign::elastic),
        ("campaign-energyplus", campaign::energyplus),
        ("campaign-query", campaign_query::run),
        ("fast-hosts", fast::hosts),
        ("fast-host", fast::host),
        ("fast-setup", fast::setup),
        ("fast-flows", fast::flows),
        ("fast-router", fast::router),
        ("fast-apps", fast::apps_of_one_host),
        ("fast-apps-hosts", fast::apps_of_two_hosts),
        ("verbs", fast::verbs),
        ("verbs-hosts", fast::verbs_hosts),
        ("verbs-rates", fast::verbs_rates),
        ("verbs-scale", fast::verbs_scale),
        ("verbs-sizes", fast::verbs_sizes),
        ("transfer", transfer::run),
        ("versions", versions::run),
    ];
    // cargo adds `--bench`.
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    common::heading();
    for (name, bench) in benches {
        if asked.is_empty() || asked.iter().any(|word| word == name) {
            bench();
        }
    }
}

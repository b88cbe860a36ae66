//! What a virtual cluster adds to the shortest parallel program: `/bin/true` under mpirun, natively, in a lab that is up,
//! and in a lab made for it. `cargo bench -p slipway --bench bench -- mpi`.
//!
//! Gankevich et al. (CSIT 2015) measured a constant 1.5 s added: 1 s of cold file cache, 0.5 s of creation.

use std::process::Command;

use super::common::{Slipway, Way, arg, compare, less, run as program, seconds};

const RANKS: &str = "8";

pub(super) fn run() {
    let slipway = Slipway::new();
    let up = slipway.lab("mpi-up", "nodes: {n: {count: 4, slots: 2}}\n");
    let passing = slipway.lab("mpi-passing", "nodes: {n: {count: 4, slots: 2}}\n");
    let outputs = tempfile::tempdir().expect("a temporary folder");
    let mut number = 0;
    let mut in_lab = |lab: &str| {
        number += 1;
        let out = outputs.path().join(number.to_string());
        let words = ["run", "--quiet", "--mpi", "openmpi", "-n", RANKS, "--out", arg(&out), lab, "--", "/bin/true"];
        seconds(|| drop(slipway.run(&words)))
    };
    slipway.run(&["up", arg(&up)]);
    let native = || {
        let mut mpirun = Command::new("mpirun.openmpi");
        mpirun.args(["--oversubscribe", "-np", RANKS, "/bin/true"]);
        mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        seconds(|| drop(program(&mut mpirun)))
    };
    let taken = |took: f64| vec![less("mpirun -np 8 /bin/true", "s", took)];
    let in_lab = std::cell::RefCell::new(&mut in_lab);
    let mut ways = [
        Way::new("native", || taken(native())),
        Way::new("lab that is up", || taken(in_lab.borrow_mut()("mpi-up"))),
        Way::new("lab made for it", || taken(in_lab.borrow_mut()(arg(&passing)))),
        Way::new("up + down alone", || {
            let file = arg(&passing);
            taken(seconds(|| {
                slipway.run(&["up", file]);
                slipway.run(&["down", "mpi-passing"]);
            }))
        }),
    ];
    compare("An empty MPI program on 4 nodes", 10, &mut ways);
    drop(ways);
    slipway.run(&["down", "mpi-up"]);
}

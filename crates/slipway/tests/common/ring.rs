//! A small MPI program, compiled for Open MPI and for MPICH.

use std::path::Path;
use std::process::Command;

use super::told;

/// Every rank sends to the next around a ring, all are told what came back and add up the same together, and the first one
/// prints how many agree; with an argument, each only says which it is.
const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
static int block[65536];
int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) {
        printf("%d of %d\n", rank, size);
        return MPI_Finalize();
    }
    if (rank) MPI_Recv(block, 65536, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    block[65535] += rank;
    MPI_Send(block, 65536, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (!rank) MPI_Recv(block, 65536, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int sum = 0, all = 0;
    MPI_Bcast(block, 65536, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    sum = sum == block[65535];
    MPI_Reduce(&sum, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank) {
        printf("%d ranks add up to %d\n", all, block[65535]);
        fflush(stdout);
    }
    return MPI_Finalize();
}
"#;

/// Makes a folder with the program: `openmpi` and `mpich`.
pub fn compile(folder: &Path) {
    std::fs::create_dir(folder).expect("made");
    let source = folder.join("ring.c");
    std::fs::write(&source, RING).expect("written");
    for (mpi, package) in [("openmpi", "libopenmpi-dev"), ("mpich", "libmpich-dev")] {
        let name = format!("mpicc.{mpi}");
        let output = Command::new(&name).arg("-o").arg(folder.join(mpi)).arg(&source).output();
        let output = output.unwrap_or_else(|error| panic!("{name}: {error}: install {package}"));
        assert!(output.status.success(), "{name}: {}", told(&output));
    }
}

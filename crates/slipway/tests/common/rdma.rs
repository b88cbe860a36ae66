//! Programs of verbs, in nodes `a` and `b`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Lab, Place, await_that, told};

/// A program in a node, which ends within a minute.
pub fn program(lab: &Lab<'_>, node: &str, words: &[&str]) -> Command {
    let mut command = lab.program(node, ["timeout", "60"].iter().chain(words).copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A program that connects by `rdma_cm`. A client is refused until its server listens.
#[track_caller]
pub fn by_rdma_cm(lab: &Lab<'_>, server: &[&str], client: &[&str]) -> String {
    let child = program(lab, "a", server).spawn().expect("started");
    let mut printed = String::new();
    await_that("the client is served", || {
        let asked = program(lab, "b", client).output().expect("started");
        printed = String::from_utf8_lossy(&asked.stdout).into_owned();
        asked.status.success()
    });
    let heard = child.wait_with_output().expect("ended");
    assert!(heard.status.success(), "{server:?}: {}", told(&heard));
    String::from_utf8_lossy(&heard.stdout).into_owned() + &printed
}

/// Puts a file into a node.
#[track_caller]
pub fn put(lab: &Lab<'_>, node: &str, path: &str, bytes: &[u8]) {
    let mut command = lab.program(node, ["sh", "-c", "mkdir -p $(dirname $0) && cat > $0 && chmod +x $0", path]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it is read");
    assert!(child.wait().expect("ended").success(), "{path}");
}

/// Runs hpcc by Open MPI on `a` and `b`. Gives what it and Open MPI said: which path the ranks took, too.
pub fn hpcc(place: &Place, lab: &Lab<'_>) -> String {
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hpcc/hpccinf.txt");
    let input = std::fs::read_to_string(input).expect("the example's input is there");
    let input = input.replace("240          Ns", "64           Ns").replace("2            Ps", "1            Ps");
    for node in ["a", "b"] {
        put(lab, node, "/tmp/hpcc/hpccinf.txt", input.as_bytes());
    }
    let run = ["run", &lab.name, "--on", "a,b", "--mpi", "openmpi", "-e", "OMPI_MCA_pml_base_verbose=10"];
    let script = "cd /tmp/hpcc && hpcc && if [ $OMPI_COMM_WORLD_RANK = 0 ]; then grep Success= hpccoutf.txt; fi";
    told(&place.slipway(run.into_iter().chain(["--", "sh", "-c", script])).output().expect("started"))
}

/// `mckey` in a node, a member of a group that waits for five datagrams.
pub struct Member {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Member {
    /// Joins, and waits until the queue pair is a member.
    #[track_caller]
    pub fn join(lab: &Lab<'_>, node: &str, group: &str) -> Self {
        let words = ["stdbuf", "-oL", "mckey", "-m", group, "-C", "5"];
        let mut child = program(lab, node, &words).spawn().expect("started");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        // It says so in a handler, which runs after the queue pair has joined.
        while !line.contains("joined dgid") {
            line.clear();
            assert_ne!(said.read_line(&mut line).expect("text"), 0, "{node} joins");
        }
        Self { child, said }
    }

    /// The member has ended, with all datagrams.
    #[track_caller]
    pub fn hears_all(mut self) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        assert!(self.child.wait().expect("it ends").success() && rest.contains("data transfers complete"), "{rest}");
    }

    /// The member waits on. By when others have all datagrams, the sender has sent.
    #[track_caller]
    pub fn hears_nothing(mut self) {
        assert!(self.child.try_wait().expect("a child").is_none());
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

//! Real programs between the machines of a lab: hpcc, `NetPIPE`, redis and ssh, over the fast path.

mod common;

use std::process::{Child, Stdio};

use common::machines::Machines;
use common::{await_that, told};

/// Starts a program of a server in a node. It ends with the lab.
fn serve(machines: &Machines, machine: usize, node: &str, words: &[&str]) -> Child {
    let all = ["exec", "real", node, "--"].into_iter().chain(words.iter().copied());
    machines.slipway(machine, all).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slipway can be started")
}

#[test]
fn hpcc_netpipe_and_redis_run_between_machines() {
    let machines = Machines::new(3);
    let folder = machines.path().join("hpcc");
    std::fs::create_dir(&folder).expect("made");
    let input = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hpcc/hpccinf.txt");
    let input = std::fs::read_to_string(input).expect("the example's input is there");
    let input = input.replace("240          Ns", "64           Ns").replace("2            Ps", "1            Ps");
    std::fs::write(folder.join("hpccinf.txt"), input).expect("written");
    let mounts = format!("mounts: [\"{}:/opt/hpcc\"]", folder.display());
    let file =
        machines.file("real", &format!("networks: {{net: fast}}\nnodes: {{n: {{count: 3, sshd: true, {mounts}}}}}\n"));
    machines.run(0, ["up".as_ref(), file.as_os_str()]);

    let script = "mkdir /tmp/h && cd /tmp/h && cp /opt/hpcc/hpccinf.txt . && hpcc && if [ $OMPI_COMM_WORLD_RANK = 0 ]; then cat hpccoutf.txt; fi";
    let hpcc = ["run", "--mpi", "openmpi", "real", "--", "sh", "-c", script];
    let output = machines.slipway(0, hpcc).output().expect("slipway can be started");
    assert!(output.status.success() && told(&output).contains("Success=1"), "{}", told(&output));
    assert!(told(&output).contains("CommWorldProcs=3"), "{}", told(&output));

    let mut servers = vec![serve(&machines, 2, "n3", &["redis-server", "--protected-mode", "no", "--save", ""])];
    let ask = |words: &[&str]| {
        let all = ["exec", "real", "n1", "--"].into_iter().chain(words.iter().copied());
        machines.slipway(0, all).output().expect("slipway can be started")
    };
    await_that("redis answers", || told(&ask(&["redis-cli", "-h", "n3", "ping"])).contains("PONG"));
    let output = ask(&["redis-benchmark", "-h", "n3", "-n", "2000", "-q", "-t", "set,get"]);
    assert!(output.status.success() && told(&output).contains("GET: "), "{}", told(&output));

    // Each machine has the lab's keys.
    assert_eq!(told(&ask(&["ssh", "n3", "hostname"])).matches("n3").count(), 1);
    let back = ["exec", "real", "n3", "--", "ssh", "n1", "ssh", "n2", "hostname"];
    assert_eq!(machines.run(2, back), "n2\n");

    servers.push(serve(&machines, 1, "n2", &["NPtcp", "-u", "4096", "-n", "20"]));
    let listens = ["exec", "real", "n2", "--", "grep", "-q", ":138A .* 0A ", "/proc/net/tcp"];
    await_that("NetPIPE listens", || machines.slipway(1, listens).status().is_ok_and(|status| status.success()));
    let output = ask(&["sh", "-c", "cd /tmp && NPtcp -h n2 -u 4096 -n 20"]);
    assert!(output.status.success() && told(&output).contains("4096 bytes"), "{}", told(&output));

    machines.run(1, ["down", "real"]);
    for mut server in servers {
        server.wait().expect("it ended with the lab");
    }
    assert_eq!(machines.remains(), [""; 0]);
}

//! Labs over machines that reach each other by their agents, in the place of ssh.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use common::machines::{Machines, address, name};
use common::told;

/// Agents on all machines. Dropped, they end.
struct Agents<'a> {
    machines: &'a Machines,
    all: Vec<Child>,
}

impl<'a> Agents<'a> {
    /// Machines that know each other.
    fn new(machines: &'a Machines, count: usize) -> Self {
        let lines = (0..count).map(|number| {
            let key = machines.run(number, ["agent", "key", "--folder", &folder(machines, number)]);
            format!("{} {} {key}", name(number), address(number))
        });
        let list: String = lines.collect();
        for number in 0..count {
            fs::write(format!("{}/machines", folder(machines, number)), &list).expect("the list can be written");
        }
        let mut agents = Self { machines, all: Vec::new() };
        for number in 0..count {
            let agent = agents.start(number);
            agents.all.push(agent);
        }
        agents
    }

    fn start(&self, number: usize) -> Child {
        let folder = folder(self.machines, number);
        let mut command = self.slipway(number, &["agent", "serve", "--folder", &folder, "--listen", "0.0.0.0:7412"]);
        let mut agent = command.stdout(Stdio::piped()).spawn().expect("slipway can be started");
        let mut line = String::new();
        BufReader::new(agent.stdout.take().expect("piped")).read_line(&mut line).expect("it says something");
        assert!(line.starts_with("commands are taken at 0.0.0.0:7412"), "{line}");
        agent
    }

    fn end(&mut self, number: usize) {
        self.all[number].kill().expect("it lives");
        self.all[number].wait().expect("it ends");
    }

    /// `slipway ARGS` on a machine, which reaches others by their agents.
    fn slipway(&self, number: usize, words: &[&str]) -> Command {
        let mut command = self.machines.slipway(number, words);
        command.env("SLIPWAY_RSH", format!("slipway agent run --folder {}", folder(self.machines, number)));
        command
    }

    #[track_caller]
    fn run(&self, number: usize, words: &[&str]) -> String {
        String::from_utf8(common::machines::must(&mut self.slipway(number, words)).stdout).expect("UTF-8")
    }

    /// The exit code, and all that is said.
    fn fails(&self, number: usize, words: &[&str]) -> (Option<i32>, String) {
        let output = self.slipway(number, words).output().expect("slipway can be started");
        (output.status.code(), told(&output))
    }
}

impl Drop for Agents<'_> {
    fn drop(&mut self) {
        for agent in &mut self.all {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

fn folder(machines: &Machines, number: usize) -> String {
    machines.path().join(name(number)).join("agent").display().to_string()
}

#[test]
fn agents_carry_a_lab_over_three_machines() {
    let machines = Machines::new(3);
    let mut agents = Agents::new(&machines, 3);
    let file = machines.file("wide", "networks: {net: vxlan}\nnodes: {n: {count: 3}}\n").display().to_string();
    agents.run(0, &["up", &file]);
    agents.run(0, &["exec", "wide", "n1", "--", "ping", "-q", "-c1", "-W2", "n3"]);
    // Input, output, errors and the exit code of a program elsewhere.
    let script = "cat; echo over there >&2; exit 7";
    let mut cat = agents.slipway(0, &["exec", "wide", "n2", "--", "sh", "-c", script]);
    cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut cat = cat.spawn().expect("slipway can be started");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| u8::try_from(number % 251).expect("small")).collect();
    let mut input = cat.stdin.take().expect("piped");
    let to_send = sent.clone();
    let sending = std::thread::spawn(move || input.write_all(&to_send));
    let output = cat.wait_with_output().expect("it ends");
    sending.join().expect("no panic").expect("it takes all");
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    assert!(output.stdout == sent && output.stderr == b"over there\n");
    let ran = agents.run(1, &["run", "wide", "--", "hostname"]);
    assert!((1..=3).all(|node| ran.contains(&format!("n{node}"))), "{ran}");

    // The lab outlives an agent.
    agents.end(2);
    let (code, said) = agents.fails(1, &["exec", "wide", "n3", "--", "true"]);
    assert!(code == Some(255) && said.contains("reach the agent of `c`"), "{code:?}: {said}");
    agents.all[2] = agents.start(2);
    agents.run(1, &["exec", "wide", "n3", "--", "ping", "-q", "-c1", "-W2", "n1"]);
    agents.run(0, &["down", "wide"]);
    assert_eq!(machines.remains(), [""; 0]);
}

#[test]
fn an_agent_serves_known_machines_alone_and_executes_slipway_alone() {
    let machines = Machines::new(2);
    let agents = Agents::new(&machines, 2);
    let own = folder(&machines, 0);
    let ask = |words: &[&str]| agents.fails(0, &[&["agent", "run", "--folder", &own], words].concat());
    assert_eq!(ask(&["b", "slipway", "--version"]).0, Some(0));
    let (code, said) = ask(&["b", "sh", "-c", "id"]);
    assert!(code == Some(127) && said.contains("it executes `slipway` and nothing else"), "{code:?}: {said}");
    let (code, said) = ask(&["b", "slipway", "'no end"]);
    assert!(code == Some(127) && said.contains("read the command"), "{code:?}: {said}");
    let (code, said) = ask(&["z", "slipway", "ps"]);
    assert!(code == Some(255) && said.contains("find the machine `z`"), "{code:?}: {said}");

    // Bytes of a stranger end that connection alone.
    let script = "for bytes in \"$(head -c 100000 /dev/urandom | base64)\" 'GET / HTTP/1.0'; do echo \"$bytes\" > /dev/tcp/192.0.2.2/7412; done";
    let _ = machines.program(0, "bash").args(["-c", script]).output().expect("bash can be started");
    assert_eq!(ask(&["b", "slipway", "--version"]).0, Some(0));

    // Another key in the place of the agent's, and a client's that is taken out.
    let list = |number: usize| format!("{}/machines", folder(&machines, number));
    let good = fs::read_to_string(list(0)).expect("the list is there");
    let keys: Vec<&str> = good.split_whitespace().filter(|word| word.len() == 64).collect();
    fs::write(list(0), good.replace(keys[1], &"ab".repeat(32))).expect("written");
    let (code, said) = ask(&["b", "slipway", "--version"]);
    assert!(code == Some(255) && said.contains("another key than is known"), "{code:?}: {said}");
    fs::write(list(0), &good).expect("written");
    fs::write(list(1), good.lines().skip(1).collect::<Vec<_>>().join("\n")).expect("written");
    let (code, said) = ask(&["b", "slipway", "--version"]);
    assert!(code == Some(255) && said.contains("reach the agent of `b`"), "{code:?}: {said}");
}

//! RDMA beside devices of the kernel's own: soft `RoCE` (`rdma_rxe`), as Debian's kernel has it. `make test-vm` runs this.

mod common;
#[path = "verbs_kernel/outside.rs"]
mod outside;

use std::process::{Command, Stdio};

use common::rdma::program;
use common::{Lab, Place, await_that, told};

const LAB: &str = "networks: {net: {driver: fast, rdma: true}}\nnodes: {a: , b: }\n";

/// Makes two network cards that a wire joins, each with a device. Packets between their addresses leave the machine's own shortcut
/// aside: the rules of routing send them by the wire. In Debian 12's kernel such devices work in the first network namespace alone.
const PEERS: &str = "
modprobe -a rdma_rxe ib_uverbs rdma_ucm
ip link add v0 type veth peer name v1
for n in 0 1; do
  ip address add 192.0.2.$((n + 1))/24 dev v$n
  ip link set v$n up
  rdma link add rxe$n type rxe netdev v$n
  echo 1 > /proc/sys/net/ipv4/conf/v$n/accept_local
  echo 0 > /proc/sys/net/ipv4/conf/v$n/rp_filter
  ip route add 192.0.2.$((2 - n)) dev v$n table 10$n
  ip rule add pref 1$n iif lo from 192.0.2.$((n + 1)) to 192.0.2.$((2 - n)) lookup 10$n
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
ip rule add pref 100 lookup local
ip rule del pref 0
";

/// Runs a program on the machine itself, which must succeed.
#[track_caller]
fn on_machine(words: &[&str]) -> String {
    let output = Command::new("timeout").arg("60").args(words).output().expect("it can be started");
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Packets that a device has sent.
fn sent(device: &str) -> u64 {
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    let text = std::fs::read_to_string(&path).expect("the device counts");
    text.trim().parse().expect("a number")
}

/// `rping` between the machine's own devices, as ordinary peers.
fn pings_by_devices() {
    let server = ["60", "rping", "-s", "-C", "3", "-a", "192.0.2.2"];
    let mut server = Command::new("timeout").args(server).stdout(Stdio::null()).spawn().expect("it can be started");
    let before = sent("rxe0");
    let client = ["60", "rping", "-c", "-v", "-C", "3", "-a", "192.0.2.2", "-I", "192.0.2.1"];
    await_that("the client is served", || {
        let asked = Command::new("timeout").args(client).stderr(Stdio::null()).output().expect("it can be started");
        asked.status.success() && String::from_utf8_lossy(&asked.stdout).contains("ping data: rdma-ping-2")
    });
    assert!(server.wait().expect("it ends").success());
    assert!(sent("rxe0") > before);
}

fn writes_in_lab(lab: &Lab<'_>) {
    let words = ["ib_write_bw", "-n", "20"];
    let server = program(lab, "a", &words).spawn().expect("started");
    let listens = "grep -qi ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6";
    await_that("the server listens", || {
        lab.program("a", ["sh", "-c", listens]).status().is_ok_and(|status| status.success())
    });
    let asked = program(lab, "b", &[&words[..], &["a"]].concat()).output().expect("started");
    let heard = server.wait_with_output().expect("ended");
    assert!(asked.status.success() && heard.status.success(), "{} {}", told(&asked), told(&heard));
}

#[test]
#[ignore = "the kernel needs `rdma_rxe`, and this changes the machine's routes: `make test-vm`"]
fn beside_devices_a_node_sees_its_own_alone() {
    common::verbs::plug_in();
    on_machine(&["sh", "-ec", PEERS]);
    let devices = || on_machine(&["ibv_devices"]).matches("rxe").count();
    assert_eq!(devices(), 2);
    pings_by_devices();

    let place = Place::new();
    let lab = place.up("beside", LAB);
    let said = lab.exec("a", ["ibv_devices"]);
    assert!(said.contains("slipway0") && !said.contains("rxe"), "{said}");
    for folder in ["/sys/class/infiniband", "/sys/class/infiniband_verbs"] {
        let names = lab.exec("a", ["ls", folder]);
        assert!(!names.contains("rxe") && !names.contains("uverbs1"), "{names}");
    }
    let before = sent("rxe0") + sent("rxe1");
    writes_in_lab(&lab);
    let said = lab.exec("b", ["ibv_devinfo"]);
    assert_eq!((said.matches("hca_id").count(), said.contains("slipway0")), (1, true), "{said}");
    assert_eq!(sent("rxe0") + sent("rxe1"), before, "nothing of the lab goes by the machine's devices");

    // Both at once, and the machine keeps its devices when the lab goes.
    pings_by_devices();
    drop(lab);
    let name = place.name("beside");
    place.run(["down", &name]);
    assert_eq!(devices(), 2);
    pings_by_devices();
}

/// Gives the machine a device at its network card.
const DEVICE: &str =
    "modprobe -a rdma_rxe ib_uverbs rdma_ucm; rdma link show rxe0/1 >&2 || rdma link add rxe0 type rxe netdev eth0";

/// A command on machine `b`.
fn on_b(words: &[&str]) -> Command {
    let rsh = std::env::var("SLIPWAY_RSH").expect("`scripts/vm.sh --pair` sets it");
    let mut command = Command::new("timeout");
    command.arg("90").args(rsh.split(' ')).arg("b").args(words).stdin(Stdio::null());
    command
}

/// `rping` between two machines, or two nodes: a server that serves until it is ended, and a client.
fn serves(mut server: Command, mut client: impl FnMut() -> Command) {
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started");
    await_that("the client is served", || {
        let asked = client().output().expect("it can be started");
        asked.status.success() && String::from_utf8_lossy(&asked.stdout).contains("ping data: rdma-ping-2")
    });
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

/// The machine's carriers.
fn carriers() -> Vec<String> {
    let output = Command::new("pgrep").arg("slipway-carrier").output().expect("pgrep can be started");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "it takes two machines, each with a device: `make test-vm`"]
fn between_machines_devices_carry_queue_pairs() {
    common::verbs::plug_in();
    on_machine(&["sh", "-ec", DEVICE]);
    await_that("machine b answers", || on_b(&["true"]).status().is_ok_and(|status| status.success()));
    assert!(on_b(&[DEVICE]).status().expect("ssh can be started").success());
    // Ordinary peers, which know nothing of labs.
    let client = ["60", "rping", "-c", "-v", "-C", "3", "-a", "192.0.2.2"];
    let by_machine = || {
        let mut command = Command::new("timeout");
        command.args(client);
        command
    };
    serves(on_b(&["timeout", "80", "rping", "-s", "-P", "-a", "192.0.2.2"]), by_machine);

    let place = Place::new();
    let spread = format!(
        "machines: {{a: 192.0.2.1, b: 192.0.2.2}}\nnetworks: {{net: {{driver: fast, rdma: true}}}}\n{}",
        "nodes: {n: {count: 2}}\n"
    );
    let lab = place.up("spread", &spread);
    let slipway = |words: &[&str]| place.run(words.iter().copied());
    let said = slipway(&["fast", "explain", &lab.name, "n1", "n2"]);
    assert!(said.contains("run by the RDMA devices of their machines"), "{said}");
    let said = slipway(&["fast", "status", &lab.name]);
    assert_eq!(said.matches("with an RDMA device by rxe0").count(), 2, "{said}");

    let server = || program(&lab, "n2", &["rping", "-s", "-P"]);
    let address = lab.exec("n2", ["hostname", "-i"]);
    let client = || program(&lab, "n1", &["rping", "-c", "-v", "-C", "3", "-a", address.trim()]);
    let before = sent("rxe0");
    serves(server(), client);
    assert!(sent("rxe0") > before, "the device carries it");

    // Bytes of messages go by the device, too.
    let words = ["ib_write_bw", "-n", "20", "--report_gbits"];
    let listening = program(&lab, "n1", &words).spawn().expect("started");
    lab.listens("n1", 18515);
    let before = sent("rxe0");
    let asked = program(&lab, "n2", &[&words[..], &["n1"]].concat()).output().expect("started");
    let heard = listening.wait_with_output().expect("ended");
    assert!(asked.status.success() && heard.status.success(), "{} {}", told(&asked), told(&heard));
    // The other machine writes, and this one acknowledges.
    assert!(sent("rxe0") > before, "the device carries them");

    // Behind a cut nothing moves, and the device falls silent.
    let mut listening = server().stdout(Stdio::null()).spawn().expect("started");
    let endless = ["rping", "-c", "-a", address.trim()];
    await_that("a client that does not end is served", || {
        let mut asking = program(&lab, "n1", &endless).stdout(Stdio::null()).spawn().expect("started");
        let before = sent("rxe0");
        await_that("it ends, or is served", || {
            sent("rxe0") > before + 100 || asking.try_wait().expect("a child").is_some()
        });
        let is_served = asking.try_wait().expect("a child").is_none();
        if is_served {
            slipway(&["cut", &lab.name, "n2"]);
            let mut last = u64::MAX;
            await_that("the device falls silent", || {
                std::thread::sleep(std::time::Duration::from_secs(1));
                let before = std::mem::replace(&mut last, sent("rxe0"));
                before == last
            });
            slipway(&["heal", &lab.name, "n2"]);
        }
        let _ = asking.kill();
        asking.wait().expect("it ends");
        is_served
    });
    listening.kill().expect("it runs");
    listening.wait().expect("it ends");

    // Without its carrier a machine goes by the hosts' network, until there is the next.
    let before = carriers();
    assert_eq!(before.len(), 1);
    on_machine(&["kill", "-KILL", &before[0]]);
    await_that("the next carrier runs", || !carriers().is_empty() && carriers() != before);
    let before = sent("rxe0");
    serves(server(), client);
    assert!(sent("rxe0") > before, "the next one carries it");

    drop(lab);
    let name = place.name("spread");
    place.run(["down", &name]);
    assert_eq!(carriers(), [""; 0]);
    serves(on_b(&["timeout", "80", "rping", "-s", "-P", "-a", "192.0.2.2"]), by_machine);
}

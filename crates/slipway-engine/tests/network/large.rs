//! More nodes than a bridge has ports, and than a node can know.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use slipway_engine::network::graph::Kind;
use slipway_lab::id::NodeId;

use super::lab::Up;

#[test]
fn a_network_of_1100_nodes() {
    let up = Up::new("hosts: 1\nnodes:\n  n:\n    count: 1100\n");
    let graph = up.fabric.graph();
    let bridges = graph.links.iter().filter(|link| link.kind == Kind::Bridge).count();
    assert_eq!(bridges, 3, "two leaves and a root");
    // Same bridge, next bridge, both ways, both families.
    for (from, to) in [(0, 1), (0, 1099), (1099, 0), (500, 1050)] {
        assert!(up.ping(from, up.ipv4(to)), "{from} to {to}");
        assert!(up.ping(from, up.ipv6(to)), "{from} to {to} by IPv6");
    }
}

#[test]
fn a_node_that_cannot_know_all_asks_the_bridge_or_the_one_that_it_looks_for() {
    for hosts in [1, 2] {
        for driver in ["bridge", "vxlan"] {
            let up = Up::new(&format!("hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes:\n  n:\n    count: 100\n"));
            let (bystander, others) = (50, [1, 2, 70, 99]);
            let requests = Heard::by(&up, bystander, "arp or icmp");
            let solicitations = Heard::by(&up, bystander, "icmp6 and ip6[40] = 135");
            for to in others {
                assert!(up.ping(0, up.ipv4(to)), "{driver} on {hosts} hosts: reaches {to}");
                assert!(up.ping(0, up.ipv6(to)), "{driver} on {hosts} hosts: reaches {to} by IPv6");
            }
            for family in ["-4", "-6"] {
                let known = up.must(0, &format!("ip {family} neigh show"));
                assert!(known.matches("lladdr").count() >= others.len(), "it asked, and was answered: {known}");
            }
            // What it hears first is meant for itself, although it listened before the others were looked for. ARP for it
            // is answered by the bridge; a solicitation is its own to answer.
            assert!(up.ping(0, up.ipv4(bystander)) && up.ping(0, up.ipv6(bystander)));
            let [first_request, first] = [requests.first(), solicitations.first()];
            assert!(first_request.contains("ICMP echo request"), "{driver} on {hosts} hosts: {first_request}");
            assert!(first.contains(&format!("who has {},", up.ipv6(bystander))), "{driver} on {hosts} hosts: {first}");
        }
    }
}

/// What a node hears on its first interface, from now on.
struct Heard(Child);

impl Heard {
    fn by(up: &Up, node: usize, filter: &str) -> Self {
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-l", "-n", "--immediate-mode", "-i", "eth0", filter]);
        let mut tcpdump = up
            .inside(NodeId(node), || tcpdump.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
            .expect("tcpdump is installed");
        let said = BufReader::new(tcpdump.stderr.take().expect("piped"));
        let listens = said.lines().map_while(Result::ok).any(|line| line.starts_with("listening"));
        assert!(listens, "tcpdump takes the filter `{filter}`");
        Self(tcpdump)
    }

    /// Waits for the first packet.
    fn first(mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        line
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

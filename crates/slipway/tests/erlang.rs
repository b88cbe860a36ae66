//! Programs of Erlang, which copy their listener's options to what they accept, find each other whatever carries their connections.
//! Needs root and the packages of `scripts/setup.sh test`, and of `bench` for what is ignored.

mod common;

use common::{Lab, Place, await_that, told};

/// The drivers, and on how many hosts.
const LABS: [(&str, u32); 4] = [("bridge", 1), ("vxlan", 2), ("fast", 1), ("fast", 2)];

/// On the fast path at least so many connections were fast, and none was left alone for its options.
#[track_caller]
fn were_fast(lab: &Lab<'_>, least: u64) {
    if lab.is_fast() {
        assert!(lab.connections() >= least, "{} fast connections", lab.connections());
        let left: Vec<_> =
            lab.routers().iter().map(|router| router["status"]["connections"]["native"].clone()).collect();
        assert!(left.iter().all(|native| native.get("options").is_none()), "{left:?}");
    }
}

/// One node of Erlang calls a function of another's and gets megabytes back.
const CALL: &str = "
    pong = net_adm:ping(one@server),
    Sent = binary:copy(<<\"x\">>, 5000000),
    Sent = rpc:call(one@server, erlang, hd, [[Sent]]),
    [one@server] = nodes(),
    [Self] = rpc:call(one@server, erlang, nodes, []), Self = node(),
    io:format(\"two nodes~n\"), halt().";

#[test]
fn two_nodes_of_erlang_call_each_other() {
    let erl = |name: &str| format!("HOME=/tmp exec erl -noinput -sname {name} -setcookie shared");
    let serve = format!("{} -kernel inet_dist_listen_min 9100 inet_dist_listen_max 9100", erl("one@server"));
    for (driver, hosts) in LABS {
        let place = Place::new();
        let text = format!(
            "hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes:\n  server: {{command: {}}}\n  client:\n",
            serde_json::json!(["sh", "-c", serve])
        );
        let lab = place.up(driver, &text);
        await_that("epmd knows the server", || lab.exec("server", ["sh", "-c", "epmd -names || true"]).contains("one"));
        let said = lab.exec("client", ["timeout", "60", "sh", "-c", &format!("{} -eval '{CALL}'", erl("two@client"))]);
        assert_eq!(said, "two nodes\n", "{driver} on {hosts} hosts");
        // To epmd, and to the other node.
        were_fast(&lab, 2);
    }
}

const SERVE: &str = "
export HOME=/tmp RABBITMQ_NODENAME=rabbit@$1 RABBITMQ_MNESIA_BASE=/tmp/data RABBITMQ_LOG_BASE=/tmp/log
export RABBITMQ_CONFIG_FILE=/opt/test/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=/tmp/plugins
export RABBITMQ_PID_FILE=/tmp/pid RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-setcookie shared'
exec /usr/lib/rabbitmq/bin/rabbitmq-server
";

const CONFIGURATION: &str = "
loopback_users = none
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = rabbit@rabbit1
cluster_formation.classic_config.nodes.2 = rabbit@rabbit2
cluster_formation.classic_config.nodes.3 = rabbit@rabbit3
";

#[test]
#[ignore = "RabbitMQ takes most of a minute to start; `make test-long` installs it and runs this"]
fn a_cluster_of_rabbitmq_passes_messages_on() {
    for (driver, hosts) in LABS {
        let place = Place::new();
        std::fs::create_dir(place.path().join("opt")).expect("made");
        std::fs::write(place.path().join("opt/serve.sh"), SERVE).expect("written");
        std::fs::write(place.path().join("opt/rabbitmq.conf"), CONFIGURATION).expect("written");
        let nodes: Vec<String> = (1..=3).map(|number| format!("rabbit{number}")).collect();
        let node = |name: &String| {
            let command = serde_json::json!(["sh", "/opt/test/serve.sh", name]);
            format!("  {name}: {{command: {command}, mounts: [\"./opt:/opt/test:ro\"]}}\n")
        };
        let nodes_text: String = nodes.iter().map(node).collect();
        let lab = place.up(driver, &format!("hosts: {hosts}\nnetworks: {{net: {driver}}}\nnodes:\n{nodes_text}"));
        for name in &nodes {
            let ports = || lab.exec(name, ["sh", "-c", "epmd -names || true"]);
            await_that("epmd knows the broker", || ports().contains("rabbit"));
        }
        let control = |node: &str, words: &str| {
            let program = "HOME=/tmp /usr/lib/rabbitmq/bin/rabbitmqctl --quiet --erlang-cookie shared";
            let script = format!("{program} --node rabbit@{node} {words}");
            let output = lab.program(node, ["timeout", "300", "sh", "-c", &script]).output().expect("slipway runs");
            assert!(output.status.success(), "{driver} on {hosts} hosts: {}", told(&output));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for name in &nodes {
            control(name, "await_startup --timeout 280");
        }
        control("rabbit1", "await_online_nodes 3 --timeout 200");
        // Queues live on the broker that made them; another hands their messages out.
        lab.exec("rabbit1", ["amqp-declare-queue", "-s", "rabbit1", "-q", "work"]);
        let publish = "for n in $(seq 20); do amqp-publish -s rabbit1 -r work -b \"$n,\"; done";
        lab.exec("rabbit1", ["sh", "-euc", publish]);
        let consumed =
            lab.exec("rabbit3", ["timeout", "60", "amqp-consume", "-s", "rabbit3", "-q", "work", "-c", "20", "cat"]);
        let expected: Vec<String> = (1..=20).map(|number| format!("{number},")).collect();
        assert_eq!(consumed, expected.concat(), "{driver} on {hosts} hosts");
        were_fast(&lab, 6);
    }
}

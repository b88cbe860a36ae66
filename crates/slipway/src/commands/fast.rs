//! `slipway fast`

mod serve;
mod verbs;
mod whole;

use std::net::{SocketAddr, TcpListener};

use nix::sys::signal::Signal;
use serde::Serialize;
use slipway_engine::fast::metrics::{MEDIA_TYPE, metrics};
use slipway_engine::fast::{Connection, FastReport, Reason, RouterReport, Socket, SocketRoute, Tally};
use slipway_engine::lab::Running;
use slipway_engine::verbs::BrokerStatus;
use slipway_lab::id::HostId;
use slipway_sys::signals::Taken;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{labs, view};
use whole::{Placed, Whole};

/// Show fast connections, and why others are not fast
#[derive(Debug, clap::Args)]
#[command(after_help = "\
These commands are for labs with networks of driver fast. Other connections use
the base network; routers count the reason of each.

Examples:
  slipway fast status demo                 routers, connections, reasons
  slipway fast status demo --flows         with live connections
  slipway fast status demo --json | jq '.routers[].status.connections'
  slipway fast metrics demo --listen 127.0.0.1:9464        for Prometheus
  slipway fast explain 12345               the sockets of a process, one by one
  slipway fast explain n1 n2               how verbs from n1 reach n2, or why not")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show routers and their counts: fast connections, and others by reason
    Status {
        /// Lab (name or file; may be left out where one runs)
        lab: Option<String>,
        /// List live connections too
        #[arg(long)]
        flows: bool,
    },
    /// Print the counts for Prometheus, or serve them over HTTP until Ctrl-C
    Metrics {
        /// Lab (name or file; may be left out where one runs)
        lab: Option<String>,
        /// Serve the counts at /metrics of this address, such as 127.0.0.1:9464
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Show the way of each TCP socket of a process, or of verbs between nodes or to an outside peer, and the reason
    #[command(
        override_usage = "slipway fast explain [OPTIONS] [LAB] <PID>\n       slipway fast explain [OPTIONS] [LAB] <FROM> <TO>"
    )]
    Explain {
        /// The lab, which may be left out, and the process ID on this machine, or two nodes, or a node and an address
        #[arg(value_names = ["LAB", "FROM", "TO"], num_args = 1..=3, required = true)]
        words: Vec<String>,
    },
}

#[derive(Serialize)]
struct Status<'a> {
    lab: &'a str,
    /// One for each host with nodes on fast networks.
    routers: Vec<Placed<'a, RouterReport>>,
    /// The brokers of RDMA.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    brokers: Vec<Placed<'a, BrokerStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<Connection>>,
}

#[derive(Serialize)]
struct Explained<'a> {
    lab: &'a str,
    node: &'a str,
    pid: i32,
    sockets: Vec<Socket>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        labs::need_privilege()?;
        match self.what {
            What::Status { lab, flows } => status(context, &running(context, lab.as_deref())?, flows)?,
            What::Metrics { lab, listen: None } => {
                context.print(&page(context, &running(context, lab.as_deref())?)?)?;
            }
            What::Metrics { lab, listen: Some(at) } => {
                let name = running(context, lab.as_deref())?.lab.name;
                return publish(context, &name, at);
            }
            What::Explain { words } => {
                if let [lab @ .., from, to] = &*words
                    && to.parse::<i32>().is_err()
                {
                    let lab = lab.first().map(String::as_str);
                    verbs::explain(context, &running(context, lab)?, from, to)?;
                    return Ok(Exit::Success);
                }
                let (pid, lab) = words.split_last().ok_or_else(|| Failure::usage("explain nothing"))?;
                let number = pid.parse().ok().filter(|&number: &i32| number > 0);
                let number = number.ok_or_else(|| {
                    Failure::usage(format!("explain `{pid}`: it is no process\nHint: `slipway inspect LAB NODE --json` lists those of a node"))
                })?;
                let lab = match lab.first() {
                    Some(lab) => lab.clone(),
                    None => labs::of_process(&context.root, number)?.lab.name,
                };
                explain(context, &running(context, Some(&lab))?, number)?;
            }
        }
        Ok(Exit::Success)
    }
}

fn page(context: &Context, running: &Running) -> Result<String, Failure> {
    let Whole { report, flows } = Whole::ask(context, running, true)?;
    Ok(metrics(&running.lab, &report, &flows.unwrap_or_default()))
}

/// The address at which metrics are published.
#[derive(Serialize)]
struct Published<'a> {
    lab: &'a str,
    url: String,
}

/// Serves metrics until it is told to end. A lab that is down, or down and up again, is no reason to.
fn publish(context: &Context, lab: &str, at: SocketAddr) -> Result<Exit, Failure> {
    let interrupt = Taken::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(Failure::io("take signals"))?;
    let listener = TcpListener::bind(at).map_err(Failure::io(format!("listen at {at}")))?;
    let at = listener.local_addr().map_err(Failure::io("see where it listens"))?;
    let published = Published { lab, url: format!("http://{at}/metrics") };
    context.tell(&published, |published| format!("metrics of lab {lab} are at {} until Ctrl-C\n", published.url))?;
    let now = || {
        let running = Running::open(&context.root, lab).map_err(|error| error.to_string())?;
        page(context, &running).map_err(|failure| failure.account())
    };
    serve::serve(&listener, &interrupt, MEDIA_TYPE, now).map_err(Failure::io("serve metrics"))?;
    Ok(Exit::Success)
}

/// A lab that runs and has a fast network.
fn running(context: &Context, lab: Option<&str>) -> Result<Running, Failure> {
    let running = labs::running(&context.root, lab)?;
    if running.lab.networks.iter().any(|network| network.bypasses.tcp.is_some()) {
        return Ok(running);
    }
    let name = &running.lab.name;
    Err(Failure::usage(format!(
        "look at the fast path of lab {name}: none of its networks is fast\nHint: write `driver: fast`"
    )))
}

fn status(context: &Context, running: &Running, flows: bool) -> Result<(), Failure> {
    let Whole { report: FastReport { routers, brokers }, flows } = Whole::ask(context, running, flows)?;
    let lab = &running.lab;
    let routers = routers.into_iter().map(|one| Placed::new(lab, one.router.host, one)).collect();
    let brokers = brokers.into_iter().map(|one| Placed::new(lab, one.host, one)).collect();
    let answer = Status { lab: &lab.name, routers, brokers, flows };
    context.answer(&answer, |answer| {
        let routers = answer.routers.iter().map(|router| router_text(running, router));
        let with_links = answer.flows.is_some();
        let brokers = answer.brokers.iter().map(|broker| verbs::text(running, &broker.of, with_links));
        routers.chain(brokers).chain(answer.flows.as_deref().map(flows_text)).collect::<Vec<String>>().join("\n")
    })
}

fn flows_text(flows: &[Connection]) -> String {
    if flows.is_empty() {
        return "no connection is on the fast path now\n".to_owned();
    }
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    view::table(
        ["CLIENT", "SERVER", "PATH", "SENT", "RECEIVED", "RTT US", "UNREAD"],
        flows.iter().map(|flow| {
            let figures = flow.figures;
            [
                format!("{}:{}", flow.client, flow.client_port),
                format!("{}:{}", flow.server, flow.server_port),
                flow.path.word().to_owned(),
                number(figures.sent),
                number(figures.received),
                number(figures.rtt_us.map(u64::from)),
                number(figures.unread),
            ]
        }),
    )
}

fn router_text(running: &Running, report: &Placed<'_, RouterReport>) -> String {
    let RouterReport { router, listeners, status, memory: _ } = &report.of;
    let host = report.host(&running.lab.hosts[router.host].name);
    let process = router.pid.map_or_else(|| "none: calls wait for the next".to_owned(), |pid| format!("process {pid}"));
    let mut facts = vec![("host", host), ("router", process)];
    if router.restarts > 0 {
        let why = router.trouble.as_deref().unwrap_or("ended");
        facts.push(("before it", format!("{}; the last {why}", view::count(router.restarts, "router"))));
    }
    facts.push(("programs", format!("{} heard", view::count(*listeners, "tree"))));
    let Some(status) = status else {
        facts.push(("status", "it does not answer".to_owned()));
        return view::facts(&facts);
    };
    let Tally { pair, tcp, accepted, native, revoked, refused, between: _ } = &status.connections;
    facts.push(("fast", format!("{pair} by pairs of sockets, {tcp} by TCP")));
    if *accepted > 0 {
        facts.push(("accepted", format!("{accepted} from other hosts, which count them")));
    }
    for (reason, count) in native {
        // No path but the network beneath is for these.
        let what = if *reason == Reason::Udp { "beside" } else { "not fast" };
        facts.push((what, format!("{count}: {reason}")));
    }
    for (reason, count) in revoked {
        facts.push(("ended", format!("{count}: {reason}")));
    }
    facts.push(("refused", format!("{refused}: nobody listened")));
    facts.push(("waiting", format!("{} to be accepted", status.waiting)));
    if status.listed > 0 {
        let why = "the machine has no watches left for them (fs.inotify), so ends are noticed late";
        facts.push(("counted", format!("{} by the list of sockets: {why}", status.listed)));
    }
    for peer in &status.peers {
        let name = usize::try_from(peer.host).ok().and_then(|host| running.lab.hosts.get(HostId(host)));
        let name = name.map_or("another host", |host| &host.name);
        let trouble = peer.trouble.as_ref().map_or_else(String::new, |trouble| format!("; {trouble}"));
        facts.push(("peer", format!("{name}: {} ready{trouble}", view::count(peer.ready, "connection"))));
    }
    view::facts(&facts)
}

fn explain(context: &Context, running: &Running, pid: i32) -> Result<(), Failure> {
    let (node, sockets) = running.explain(pid)?;
    let answer = Explained { lab: &running.lab.name, node: &running.lab.nodes[node].name, pid, sockets };
    context.answer(&answer, |answer| {
        if answer.sockets.is_empty() {
            return format!("process {pid} in node {} has no TCP sockets\n", answer.node);
        }
        let ip = |address: Option<std::net::SocketAddr>| {
            address.map_or_else(|| "-".to_owned(), |address| address.to_string())
        };
        view::table(
            ["FD", "LOCAL", "PEER", "WAY", "WHY"],
            answer.sockets.iter().map(|socket| {
                let way = match socket.way {
                    SocketRoute::Pair => "fast, within the host",
                    SocketRoute::Tcp => "fast, by the host's network",
                    SocketRoute::Listening => "listening",
                    SocketRoute::Native => "container network",
                    SocketRoute::Unconnected => "not connected",
                };
                [socket.descriptor.to_string(), ip(socket.local), ip(socket.peer), way.to_owned(), socket.why.clone()]
            }),
        )
    })
}

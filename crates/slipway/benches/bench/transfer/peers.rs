//! Other programs that data transfer nodes run: `GridFTP`, `XRootD` and rclone, each with a server of its own in node `n2`.
//!
//! Their servers run before the clock starts, so they save the start over ssh. `slipway transfer` to a server of its own
//! stands beside them. `GridFTP`, `XRootD` and `WebDAV` move data in the clear; rclone's sftp encrypts. Servers of `GridFTP` and
//! `XRootD` give up root, and write to a folder that anyone may write to.

use std::process::Child;

use slipway_measure::probe::Server;

use super::super::common::Slipway;
use super::super::pair::{Pair, end};

/// A program with a server.
pub(super) struct Peer {
    pub(super) name: &'static str,
    port: u16,
    /// The server's words for `sh -c`.
    serve: String,
    /// The client's words for `sh -c` of one large file, and of many small ones. `{}` stands for the destination's folder.
    large: String,
    small: String,
    /// The folder below the destination that the client makes of its own accord, in which the files are.
    pub(super) below: &'static str,
    /// It waits some round trips for each file, one after the other: minutes where there are many.
    pub(super) waits: bool,
}

/// A token, and a password of rclone as `rclone obscure` writes it: the nodes see nobody else.
const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const PASSWORD: &str = "$(rclone obscure bench)";

impl Peer {
    /// The client's words.
    pub(super) fn client(&self, is_many: bool) -> [&str; 3] {
        ["sh", "-c", if is_many { &self.small } else { &self.large }]
    }

    fn server(&self) -> Server {
        Server { argv: ["sh", "-c", &self.serve].map(str::to_owned).to_vec(), port: self.port }
    }
}

/// All of them. `ours` is the program under test, and `set` the folder that is sent.
pub(super) fn all(ours: &str, set: &str) -> Vec<Peer> {
    let token = format!("umask 077; echo {TOKEN} > /run/token;");
    let transfer =
        |more: &str| format!("{token} exec {ours} --quiet transfer {more} --token-file /run/token {set} n2:{{}}");
    let serve = |port: u16, more: &str| {
        format!(
            "{token} exec {ours} --quiet transfer serve --listen 0.0.0.0:{port} --root / --token-file /run/token {more}"
        )
    };
    let with_tls = transfer("--port 7411");
    let clear = transfer("--port 7412 --clear");
    let gridftp =
        |how: &str| format!("exec globus-url-copy -q {how} -r -cd file://{set} ftp://anonymous:bench@n2:2811{{}}");
    let sftp = |how: &str| {
        format!(
            "RCLONE_CONFIG= exec rclone copy {how} {set} \":sftp,host=n2,port=2022,user=bench,pass={PASSWORD}:{{}}\""
        )
    };
    let webdav =
        |how: &str| format!("RCLONE_CONFIG= exec rclone copy {how} {set} \":webdav,url='http://n2:2023':{{}}\"");
    vec![
        Peer {
            name: "slipway transfer, to a server",
            port: 7411,
            serve: serve(7411, ""),
            large: with_tls.clone(),
            small: with_tls,
            below: "",
            waits: false,
        },
        Peer {
            name: "slipway transfer --clear, to a server",
            port: 7412,
            serve: serve(7412, "--clear"),
            large: clear.clone(),
            small: clear,
            below: "",
            waits: false,
        },
        Peer {
            name: "GridFTP",
            port: 2811,
            serve: "exec globus-gridftp-server -c /dev/null -aa -anonymous-user nobody -p 2811".to_owned(),
            large: gridftp("-p 4 -fast"),
            // Many files at a time instead, with commands ahead of answers.
            small: gridftp("-cc 16 -pp -fast"),
            below: "",
            waits: false,
        },
        Peer {
            name: "xrdcp",
            port: 1094,
            serve: "mkdir -p -m 777 /run/xrootd && \
                    printf 'all.export /scratch\\nall.adminpath /run/xrootd\\nall.pidpath /run/xrootd\\n' > /run/xrootd.cfg && \
                    exec xrootd -R daemon -c /run/xrootd.cfg -n bench -l /run/xrootd/log"
                .to_owned(),
            large: format!("exec xrdcp -s -r -S 4 {set} root://n2/{{}}"),
            small: format!("exec xrdcp -s -r --parallel 64 {set} root://n2/{{}}"),
            below: "set/",
            waits: false,
        },
        Peer {
            name: "rclone, sftp",
            port: 2022,
            serve: "RCLONE_CONFIG= exec rclone serve sftp / --addr :2022 --user bench --pass bench".to_owned(),
            large: sftp(""),
            small: sftp("--transfers 64 --checkers 64 --sftp-disable-hashcheck"),
            below: "",
            waits: true,
        },
        Peer {
            name: "rclone, WebDAV",
            port: 2023,
            serve: "RCLONE_CONFIG= exec rclone serve webdav / --addr :2023".to_owned(),
            large: webdav(""),
            small: webdav("--transfers 64 --checkers 64"),
            below: "",
            waits: true,
        },
    ]
}

/// Servers that listen in node `n2` of a lab, until they are dropped.
pub(super) struct Serving(Vec<Child>);

impl Serving {
    /// Starts the servers of `peers`, and waits until they listen.
    pub(super) fn start(slipway: &Slipway, lab: &str, peers: &[Peer]) -> Self {
        Self(peers.iter().map(|peer| serve(slipway, lab, &peer.server())).collect())
    }

    /// Starts iperf3, for one client.
    pub(super) fn iperf3(slipway: &Slipway, lab: &str) -> Self {
        let argv = ["iperf3", "--server", "--one-off"].map(str::to_owned).to_vec();
        Self(vec![serve(slipway, lab, &Server { argv, port: 5201 })])
    }
}

/// Starts a server in node `n2`, and waits until it listens.
fn serve(slipway: &Slipway, lab: &str, server: &Server) -> Child {
    let [there, client] = ["n2", "n1"].map(|node| slipway.words(lab, node));
    let pair = Pair { server: there, client, address: std::net::Ipv4Addr::UNSPECIFIED.into() };
    pair.serve(server).unwrap_or_else(|error| panic!("{error}\nHint: scripts/setup.sh run test bench"))
}

impl Drop for Serving {
    fn drop(&mut self) {
        for child in self.0.drain(..) {
            end(child);
        }
    }
}

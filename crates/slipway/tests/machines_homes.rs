//! Homes on `GlusterFS` that the machines of a lab share: the example `homes`, on real servers.
//!
//! Needs root, iproute2, openssh-server, glusterfs-server and glusterfs-client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

mod common;

use common::machines::{Machines, address};
use common::{await_that, told};

/// Servers of homes, which end with this value.
struct Servers<'a> {
    machines: &'a Machines,
    folder: PathBuf,
    all: Vec<Child>,
}

impl<'a> Servers<'a> {
    fn start(machines: &'a Machines, count: usize, folder: &Path) -> Self {
        let mut servers = Self { machines, folder: folder.to_owned(), all: Vec::new() };
        for number in 0..count {
            let own = machines.path().join(format!("gluster{number}"));
            let script = format!(
                "mkdir -p {0}/lib {0}/log /run/gluster && mount --bind {0}/lib /var/lib/glusterd && mount --bind {0}/log /var/log/glusterfs",
                own.display()
            );
            let made = machines.program(number, "sh").args(["-ec", &script]).output().expect("sh runs");
            assert!(made.status.success(), "{}", told(&made));
            let mut server = machines.program(number, "glusterd");
            let server = server.arg("-N").stdout(Stdio::null()).spawn().expect("glusterd runs (glusterfs-server)");
            servers.all.push(server);
            await_that("the server answers", || {
                machines.program(number, "gluster").args(["pool", "list"]).output().is_ok_and(|it| it.status.success())
            });
        }
        servers
    }

    /// Ends a machine's servers of files, as a power cut does.
    fn kill(&self, number: usize) {
        let script = "for file in $(find /run/gluster -name '*.pid'); do kill -9 $(cat $file) || true; done";
        let _ = self.machines.program(number, "sh").args(["-c", script]).output();
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for number in 0..self.all.len() {
            // Best effort: the test has its verdict already.
            let _ = self.machines.program(number, "umount").arg("-l").arg(&self.folder).output();
            self.kill(number);
        }
        for server in &mut self.all {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Bricks of all machines that have a file.
fn copies(folder: &Path, file: &str) -> usize {
    let bricks = fs::read_dir(folder.with_extension("bricks")).expect("there").flatten();
    bricks.filter(|brick| brick.path().join(file).exists()).count()
}

#[test]
fn homes_are_on_two_machines_each_and_outlive_one() {
    let machines = Machines::new(3);
    let homes = machines.path().join("homes");
    let servers = Servers::start(&machines, 3, &homes);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/homes/homes.sh");
    let mut made = machines.program(0, "sh");
    made.arg(script).arg(&homes).args((0..3).map(address));
    let made = made.output().expect("sh runs");
    assert!(made.status.success(), "{}", told(&made));

    let mount = format!("{{source: {}, target: /home, shared: true}}", homes.display());
    let file = machines.file("vps", &format!("nodes:\n  n: {{count: 3, mounts: [{mount}]}}\n"));
    machines.run(0, ["up", "--quiet", file.to_str().expect("plain")]);
    machines.run(0, ["exec", "vps", "n1", "--", "sh", "-c", "echo mine > /home/paper"]);
    assert_eq!(machines.run(0, ["exec", "vps", "n3", "--", "cat", "/home/paper"]), "mine\n");
    assert_eq!(copies(&homes, "paper"), 2);
    // A copy is on machine 1, 2 or 3 and on the next one: each has one alive after this.
    servers.kill(1);
    assert_eq!(machines.run(0, ["exec", "vps", "n3", "--", "cat", "/home/paper"]), "mine\n");
    machines.run(0, ["down", "--quiet", "vps"]);
    let left = Command::new("find").arg(&homes).output().expect("find runs");
    assert!(left.status.success());
    drop(servers);
    assert!(machines.remains().is_empty(), "{:?}", machines.remains());
}

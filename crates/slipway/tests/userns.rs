//! Labs of somebody who is nobody: in a user namespace of their own, without any right on the machine.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::told;

/// `nobody`, as everywhere.
const NOBODY: u32 = 65534;

/// A folder that belongs to nobody, with a copy of the program: the build's own folder may be closed to others.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test becomes somebody else, which takes root: use sudo");
        let folder = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().expect("made");
        common::copy_program(env!("CARGO_BIN_EXE_slipway"), &folder.path().join("slipway"));
        std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give files away");
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("written");
    }

    /// Runs a script as root of a user namespace of nobody's, which ends with the first step that fails.
    fn script(&self, text: &str) -> Output {
        self.within(&["--net", "--mount", "--pid", "--fork", "--mount-proc"], text)
    }

    /// The same, with these namespaces beside the user namespace.
    fn within(&self, namespaces: &[&str], text: &str) -> Output {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        command.args(["unshare", "--user", "--map-root-user"]).args(namespaces).args(["sh", "-euxc", text]);
        command.current_dir(self.0.path()).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        for (variable, folder) in
            [("SLIPWAY_STATE", "state"), ("SLIPWAY_IMAGES", "images"), ("SLIPWAY_SCRATCH", "scratch")]
        {
            command.env(variable, self.0.path().join(folder));
        }
        command.output().expect("setpriv and unshare (util-linux) are installed")
    }

    #[track_caller]
    fn runs(&self, text: &str) -> String {
        let output = self.script(text);
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

#[test]
fn a_lab_of_three_nodes() {
    let home = Home::new();
    home.write(
        "lab.yaml",
        "lab: own\nhosts: 2\nnetworks: {net: bridge, over: vxlan}\nnodes: {n: {count: 3, networks: [net, over]}}\n",
    );
    let said = home.runs(
        r#"
        ./slipway up lab.yaml
        ./slipway exec own n1 -- ping -q -c1 -W60 n2
        ./slipway exec own n1 -- ping -q -c1 -W60 n3.over
        ./slipway exec own n3 -- ping -q -c1 -W60 ip6-n1
        # A root of its own: what is deleted, replaced or made in one node is so there alone.
        ./slipway exec own n1 -- sh -c 'rm /etc/issue /usr/bin/env; rm -r /usr/share/doc; mkdir /usr/share/doc; echo x > /usr/share/doc/x; echo new > /etc/hello'
        ./slipway exec own n1 -- sh -c 'test ! -e /etc/issue; test ! -e /usr/bin/env; ls /usr/share/doc; cat /etc/hello'
        ./slipway exec own n2 -- sh -c 'test -e /usr/bin/env; test ! -e /etc/hello; test ! -e /usr/share/doc/x'
        test -e /etc/issue
        # What programs expect.
        ./slipway exec own n2 -- sh -c 'echo > /dev/null; head -c1 /dev/urandom | wc -c; test -w /dev/shm; test -w /tmp; test -w /scratch'
        ./slipway exec own n2 -- sh -c 'test "$(cat /proc/1/comm)" = slipway-init; test "$(ls /sys/class/net | wc -w)" = 3'
        ./slipway exec own n2 -- sh -c 'test "$(hostname)" = n2'
        ./slipway stop own n2
        ./slipway start own n2
        ./slipway exec own n2 -- ping -q -c1 -W60 n1
        ./slipway run own --out ran -- hostname
        ./slipway run own --mpi openmpi --out mpi -- hostname
        ./slipway ps own
        ./slipway down own
        ./slipway down --all
        ls -A state scratch state/.locks
        "#,
    );
    assert!(said.contains("lab own is up") && said.contains("lab own is down"), "{said}");
    assert!(said.ends_with("no lab is up: nothing to remove\nscratch:\n\nstate:\n.locks\n\nstate/.locks:\n"), "{said}");
}

#[test]
fn an_archive_is_an_image_there_too() {
    let home = Home::new();
    home.write("lab.yaml", "lab: own\nimages: {box: box.tar}\nnodes: {n: {count: 2, image: box}}\n");
    home.runs(
        r"
        mkdir -p root/bin root/etc
        cp /bin/busybox root/bin/
        ln -s busybox root/bin/sh
        echo box > root/etc/name
        tar -C root -cf box.tar .
        ./slipway up lab.yaml
        test $(./slipway exec own n1 -- sh -c 'busybox cat /etc/name') = box
        ./slipway exec own n1 -- busybox rm /etc/name
        ./slipway exec own n2 -- busybox test -e /etc/name
        ./slipway exec own n1 -- busybox ping -q -c1 -W60 n2
        ./slipway down own
        ",
    );
}

/// No control groups are delegated: what needs them says so, and leaves nothing behind.
#[test]
fn what_is_lost_is_said() {
    let home = Home::new();
    home.write("limits.yaml", "lab: own\nnodes: {n: {count: 2, memory: 64MiB}}\n");
    let output = home.script("./slipway up limits.yaml");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(said.contains("/sys/fs/cgroup") && said.contains("Permission denied"), "{said}");
    assert!(said.contains("Hint: control groups belong to root; run as root, or have a part delegated"), "{said}");
    assert_eq!(home.runs("./slipway down --all"), "no lab is up: nothing to remove\n");

    home.write("lab.yaml", "lab: own\nnodes: {n: {count: 2}}\n");
    let output =
        home.script("./slipway up lab.yaml; ./slipway freeze own n1 || code=$?; ./slipway down own; exit ${code:-0}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(said.contains("node `n1`: it has no control group"), "{said}");

    let said = home.runs("./slipway doctor");
    assert!(said.contains("root of a user namespace: no control groups unless some are delegated"), "{said}");
    assert!(said.contains("✔ driver bridge") && said.contains("✔ driver vxlan"), "{said}");
    let output = home.script("./slipway doctor --strict");
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
}

/// Programs enter nodes by way of the PID namespace, which must be the user namespace's own.
#[test]
fn without_a_pid_namespace_of_ones_own_it_says_how_to_get_one() {
    let home = Home::new();
    home.write("lab.yaml", "lab: own\nnodes: {n: }\n");
    let output = home.within(&["--net", "--mount"], "./slipway up lab.yaml");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(said.contains("Hint: make both: unshare -Urnmpf --mount-proc"), "{said}");
    assert!(home.runs("./slipway down --all").contains("nothing to remove"));
}

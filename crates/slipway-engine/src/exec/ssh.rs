//! A real OpenSSH server in each node with `sshd: true`, for programs that insist on one.
//!
//! The lab has one host key and one user key, made for it and gone with it. Whoever is root in one of its nodes may log in
//! as root to the others, and nobody else anywhere.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;

use slipway_lab::model::{Lab, Node};

use super::program::Program;
use crate::state::LabDir;

/// The folder of keys below what nodes see at `/run/slipway`.
const FOLDER: &str = "node/ssh";

/// For `sshd(8)`. The folder belongs to root and is read-only in nodes, whatever its path looks like to `StrictModes`.
const SERVER: &str = "\
HostKey /run/slipway/ssh/host
AuthorizedKeysFile /run/slipway/ssh/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
PrintMotd no
Subsystem sftp internal-sftp
";

/// For `ssh(1)`. A server may still be starting when the first client asks.
const CLIENT: &str = "\
Host *
    IdentityFile /run/slipway/ssh/id
    IdentitiesOnly yes
    UserKnownHostsFile /run/slipway/ssh/known_hosts
    StrictHostKeyChecking yes
    ConnectionAttempts 5
    LogLevel ERROR
";

/// Where a node has them, in its root.
pub(crate) const SETTINGS: &str = "etc/ssh/ssh_config.d/00-slipway.conf";

/// The lab's keys or settings could not be made. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum SshError {
    #[error("{doing} for the lab's ssh: {source}")]
    File { doing: &'static str, source: io::Error },
    /// The program's own account.
    #[error("make a key with ssh-keygen: {0}")]
    Keygen(String),
    #[error("make a key for nodes with `sshd: true`: ssh-keygen: {0}\nHint: apt-get install openssh-client")]
    NoKeygen(io::Error),
}

/// Makes the lab's keys and settings, where a node asks for a server.
///
/// # Errors
/// When there is no `ssh-keygen` on this machine, or the folder cannot be written.
pub(crate) fn prepare(lab: &Lab, dir: &LabDir) -> Result<(), SshError> {
    if !lab.nodes.iter().any(|node| node.sshd) {
        return Ok(());
    }
    let folder = dir.join(FOLDER);
    let says = |doing: &'static str| move |source| SshError::File { doing, source };
    fs::DirBuilder::new().mode(0o755).create(&folder).map_err(says("make a folder"))?;
    for key in ["host", "id"] {
        make_key(&folder.join(key))?;
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).map_err(says("read a key"));
    let files = [
        ("known_hosts", format!("* {}", read("host.pub")?)),
        ("authorized_keys", read("id.pub")?),
        ("sshd_config", SERVER.to_owned()),
        ("ssh_config", CLIENT.to_owned()),
    ];
    for (name, text) in files {
        let file = fs::File::create_new(folder.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(says("write settings"))?;
    }
    Ok(())
}

fn make_key(path: &Path) -> Result<(), SshError> {
    let output =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "slipway", "-f"]).arg(path).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(SshError::Keygen(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(SshError::NoKeygen(error)),
    }
}

/// What makes a node ready for the server, to be run to its end before it.
pub(crate) fn setup() -> Program {
    let script = format!("mkdir -p /run/sshd /etc/ssh/ssh_config.d && cp /run/slipway/ssh/ssh_config /{SETTINGS}");
    Program { argv: ["/bin/sh", "-c", &script].map(OsString::from).into(), ..Program::default() }
}

/// The server of a node. It listens on the node's own addresses, since on driver `host` others share the rest with it.
pub(crate) fn server(node: &Node) -> Program {
    let addresses = node.interfaces.iter().flat_map(|one| {
        let v6 = one.ipv6.map(|address| format!("[{address}]"));
        std::iter::once(one.ipv4.to_string()).chain(v6)
    });
    let options = addresses.flat_map(|address| ["-o".to_owned(), format!("ListenAddress={address}")]);
    let fixed = ["/usr/sbin/sshd", "-D", "-e", "-f", "/run/slipway/ssh/sshd_config"].map(str::to_owned);
    Program { argv: fixed.into_iter().chain(options).map(OsString::from).collect(), ..Program::default() }
}

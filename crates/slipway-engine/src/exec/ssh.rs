//! A real OpenSSH server in each node with `sshd: true`, for programs that insist on one.
//!
//! The lab has one host key and one user key, made for it and gone with it. Whoever is root in one of its nodes may log in
//! as root to the others, and nobody else anywhere. Machines of a lab derive the same keys from its secret.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use slipway_fast::channel::Key;
use slipway_lab::model::{Lab, Node};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{LineEnding, PrivateKey};

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
    #[error("make a key for the lab's ssh")]
    Key,
}

/// Makes the lab's keys and settings, where a node asks for a server.
///
/// # Errors
/// When the folder cannot be written, or the kernel gives no random bytes.
pub(crate) fn prepare(lab: &Lab, dir: &LabDir) -> Result<(), SshError> {
    if !lab.nodes.iter().any(|node| node.sshd) {
        return Ok(());
    }
    let folder = dir.join(FOLDER);
    let says = |doing: &'static str| move |source| SshError::File { doing, source };
    fs::DirBuilder::new().mode(0o755).create(&folder).map_err(says("make a folder"))?;
    let secret = lab.part.secret.map_or_else(Key::draw, |secret| Ok(secret.into())).map_err(says("draw a key"))?;
    let (host, id) = (key(&secret.derived("ssh host"))?, key(&secret.derived("ssh user"))?);
    let public = |key: &PrivateKey| key.public_key().to_openssh().map_err(|_| SshError::Key);
    let private = |key: &PrivateKey| key.to_openssh(LineEnding::LF).map_err(|_| SshError::Key);
    let files = [
        ("host", 0o600, private(&host)?.as_bytes()),
        ("id", 0o600, private(&id)?.as_bytes()),
        ("known_hosts", 0o644, format!("* {}\n", public(&host)?).as_bytes()),
        ("authorized_keys", 0o644, public(&id)?.as_bytes()),
        ("sshd_config", 0o644, SERVER.as_bytes()),
        ("ssh_config", 0o644, CLIENT.as_bytes()),
    ]
    .map(|(name, mode, bytes)| {
        let file = fs::File::options().write(true).create_new(true).mode(mode).open(folder.join(name));
        file.and_then(|mut file| file.write_all(bytes)).map_err(says("write settings"))
    });
    files.into_iter().collect()
}

/// A key of Ed25519 (RFC 8032) from its seed.
fn key(seed: &Key) -> Result<PrivateKey, SshError> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed.bytes()).map_err(|_| SshError::Key)?;
    let public = pair.public_key().as_ref().try_into().map_err(|_| SshError::Key)?;
    let pair =
        Ed25519Keypair { public: Ed25519PublicKey(public), private: Ed25519PrivateKey::from_bytes(seed.bytes()) };
    PrivateKey::new(KeypairData::Ed25519(pair), "slipway").map_err(|_| SshError::Key)
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

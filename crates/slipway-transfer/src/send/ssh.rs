//! Starts the other end over ssh, which carries the token to it and the port back.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::{Child, Command, Stdio};

use crate::error::TransferError;
use crate::token::Token;

/// Longest line that the other end may answer with, bytes.
const LONGEST: u64 = 4096;
/// First word of the line with the port; a login shell may print others before it.
pub const READY: &str = "slipway-transfer-port";

/// The other end, which ends with this value.
pub struct Remote {
    child: Child,
    /// The address at which the other end listens.
    pub address: SocketAddr,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It ends by itself with its session, or when it reads the end of its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Starts `program transfer serve --once` on `host`. `ssh` is the command with its options.
pub fn start(ssh: &[String], host: &str, program: &str, clear: bool, token: &Token) -> Result<Remote, TransferError> {
    let (command, options) = ssh.split_first().ok_or_else(|| TransferError::Refused("no ssh command".to_owned()))?;
    let mut words = vec![program, "transfer", "serve", "--once"];
    if clear {
        words.push("--clear");
    }
    // Behind `--` no host is taken for an option.
    let mut child = Command::new(command)
        .args(options)
        .args(["--", host])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(TransferError::io(format!("start {command}")))?;
    match child.stdin.as_mut().map_or(Ok(()), |input| writeln!(input, "{}", token.text())) {
        // ssh has ended already: it names no port, and the error below says what to look at.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(TransferError::io("send the token over ssh")(error));
        }
        _ => {}
    }
    // It takes as long as a short command: meanwhile the other end starts.
    let name = {
        let (command, options, host) = (command.clone(), options.to_vec(), host.to_owned());
        std::thread::spawn(move || hostname(&command, &options, &host))
    };
    let output = child.stdout.take().map(|output| BufReader::new(output.take(LONGEST)));
    let port = output.into_iter().flat_map(BufRead::lines).map_while(Result::ok).find_map(|line| {
        let port = line.strip_prefix(READY)?;
        port.trim().parse::<u16>().ok()
    });
    let Some(port) = port else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(TransferError::Refused(format!(
            "`{program} transfer serve` did not start on {host}\nHint: try `ssh {host} {program} --version`; --remote names the program elsewhere"
        )));
    };
    let name = name.join().unwrap_or_else(|_| host.to_owned());
    let addresses = (name.as_str(), port).to_socket_addrs().map_err(TransferError::io(format!("look up {name}")));
    match addresses.map(|mut addresses| addresses.next()) {
        Ok(Some(address)) => Ok(Remote { child, address }),
        Ok(None) => Err(TransferError::Refused(format!("{name} has no address"))),
        Err(error) => Err(error),
    }
}

/// The host's name or address, as the configuration of ssh has it.
#[must_use]
pub fn hostname(command: &str, options: &[String], host: &str) -> String {
    let plain = host.rsplit_once('@').map_or(host, |(_, name)| name).to_owned();
    let shown = Command::new(command).args(options).args(["-G", "--", host]).stderr(Stdio::null()).output();
    let shown = shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned()).unwrap_or_default();
    shown.lines().find_map(|line| line.strip_prefix("hostname ")).map_or(plain, |name| name.trim().to_owned())
}

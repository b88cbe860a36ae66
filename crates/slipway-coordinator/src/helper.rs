//! Processes that the coordinator starts and speaks with over pipes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tokio::io::BufReader;
use tokio::net::unix::pipe;

/// A process beside the coordinator. It ends with this value.
#[derive(Debug)]
pub(crate) struct Helper(Child);

impl Helper {
    /// Starts the process, with pipes to its standard input and from its standard output.
    pub(crate) fn start(command: &mut Command) -> io::Result<(Self, pipe::Sender, BufReader<pipe::Receiver>)> {
        // A Ctrl-C is the coordinator's to handle: points that run are stored before it ends.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).expect("both are pipes");
        let helper = Self(child);
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(input))?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
        Ok((helper, input, BufReader::new(output)))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

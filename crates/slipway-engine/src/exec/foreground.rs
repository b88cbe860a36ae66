//! A program that the caller sits in front of: signals, window size and, with a terminal, every key passed on.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::Winsize;
use slipway_sys::pty::{self, RawMode};
use slipway_sys::signals::Taken;

use super::{Child, Entry, ExecError, Exit, Launcher, Program, Stdio, hand_over};

/// Passed on to the program rather than acted on.
const PASSED_ON: [Number; 6] =
    [Number::SIGINT, Number::SIGQUIT, Number::SIGTERM, Number::SIGHUP, Number::SIGUSR1, Number::SIGUSR2];

/// What a terminal is sized as where the caller has none.
const USUAL: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

impl Launcher {
    /// Runs a program with the caller's standard input, output and error, or with a new terminal between, and waits for
    /// it. Signals that reach the caller are passed on.
    ///
    /// # Errors
    /// When the program does not come to be executed, or the caller's terminal fails.
    pub fn foreground(&self, entry: &Entry, program: &Program, terminal: bool) -> Result<Exit, ExecError> {
        let fail = |doing| ExecError::start(&entry.node, doing);
        // Before there is a program: one that is sent a signal because of the first thing that it prints is to get it.
        let signals = Taken::new(&[&PASSED_ON[..], &[Number::SIGWINCH]].concat()).map_err(fail("take signals"))?;
        let spawn = |stdio| {
            let mut executes = |link: BorrowedFd<'_>| wait_for_exec(link, &signals);
            self.spawn_heard(entry, program, stdio, None, &mut hand_over, &mut executes)
        };
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        if !terminal {
            let child = spawn(Stdio::Descriptors([input.as_fd(), output.as_fd(), error.as_fd()]))?;
            return wait(&child, &signals).map_err(fail("wait"));
        }
        let child = spawn(Stdio::Terminal(pty::size(input.as_fd()).unwrap_or(USUAL)))?;
        // It may have changed meanwhile.
        resize(&child).map_err(fail("size the terminal"))?;
        let raw = if input.is_terminal() {
            Some(RawMode::enter(input.as_fd()).map_err(fail("put the terminal into raw mode"))?)
        } else {
            None
        };
        let exit = attend(&child, &signals).map_err(fail("pass the terminal on"));
        drop(raw);
        exit
    }
}

/// Waits until the child has something to say, at last by its exec. A signal that comes before ends this process, once it no
/// longer takes signals: what the child does until it executes may take for ever, in a node that is frozen meanwhile.
fn wait_for_exec(link: BorrowedFd<'_>, signals: &Taken) -> io::Result<()> {
    loop {
        let mut on = [PollFd::new(&link, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        poll_all(&mut on)?;
        if !on[0].revents().is_empty() {
            return Ok(());
        }
        if let Some(signal) = signals.take()?.filter(|signal| PASSED_ON.contains(signal)) {
            nix::sys::signal::raise(signal)?;
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

fn wait(child: &Child, signals: &Taken) -> io::Result<Exit> {
    loop {
        let mut on = [PollFd::new(child, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        poll_all(&mut on)?;
        let ended = !on[0].revents().is_empty();
        pass_on(child, signals)?;
        if ended {
            return child.wait();
        }
    }
}

/// Carries bytes between the caller's terminal and the program's until the program ends.
fn attend(child: &Child, signals: &Taken) -> io::Result<Exit> {
    let Some(terminal) = &child.terminal else { return wait(child, signals) };
    let input = io::stdin();
    let mut typed: Vec<u8> = Vec::new();
    let mut input_open = true;
    loop {
        let towards = if typed.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut on = vec![
            PollFd::new(child, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(terminal, PollFlags::IN | towards),
        ];
        // Nothing more is read while the program has not taken what was typed.
        if input_open && typed.is_empty() {
            on.push(PollFd::new(&input, PollFlags::IN));
        }
        poll_all(&mut on)?;
        let ready: Vec<PollFlags> = on.iter().map(PollFd::revents).collect();
        pass_on(child, signals)?;
        if ready[2].contains(PollFlags::OUT) {
            write_some(terminal, &mut typed)?;
        }
        if ready.get(3).is_some_and(|input| !input.is_empty()) {
            typed = read_keys(input.as_fd());
            if typed.is_empty() {
                input_open = false;
                // End of file, as it is typed (`termios(3)`, VEOF).
                typed.push(4);
            }
        }
        let mut printed = Printed::Nothing;
        if ready[2].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            printed = copy_out(terminal)?;
        }
        if !ready[0].is_empty() {
            // What it printed last may still be in the terminal, which others that it started may hold on to.
            while copy_out(terminal)? == Printed::Some {}
            return child.wait();
        }
        if printed == Printed::Closed {
            return wait(child, signals);
        }
    }
}

/// What was typed; nothing where the input has ended. A terminal that hung up reads as an error.
fn read_keys(input: BorrowedFd<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = rustix::io::read(input, &mut bytes).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

#[derive(PartialEq, Eq)]
enum Printed {
    Some,
    /// Nothing now.
    Nothing,
    /// Nothing ever: the last program has closed the terminal.
    Closed,
}

fn copy_out(terminal: &OwnedFd) -> io::Result<Printed> {
    let mut bytes = [0; 16384];
    match rustix::io::read(terminal, &mut bytes) {
        Ok(0) | Err(Errno::IO) => Ok(Printed::Closed),
        Ok(count) => {
            let mut output = io::stdout().lock();
            output.write_all(&bytes[..count])?;
            output.flush()?;
            Ok(Printed::Some)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Printed::Nothing),
        Err(error) => Err(error.into()),
    }
}

fn write_some(terminal: &OwnedFd, typed: &mut Vec<u8>) -> io::Result<()> {
    match rustix::io::write(terminal, typed) {
        Ok(count) => {
            typed.drain(..count);
            Ok(())
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        // The last program has closed the terminal; nobody will read this.
        Err(Errno::IO) => {
            typed.clear();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn pass_on(child: &Child, signals: &Taken) -> io::Result<()> {
    while let Some(signal) = signals.take()? {
        match signal {
            Number::SIGWINCH => resize(child)?,
            // A terminal sends these to all that run in its foreground.
            Number::SIGINT => child.signal_group(Signal::INT)?,
            Number::SIGQUIT => child.signal_group(Signal::QUIT)?,
            Number::SIGTERM => child.signal(Signal::TERM)?,
            Number::SIGHUP => child.signal(Signal::HUP)?,
            Number::SIGUSR1 => child.signal(Signal::USR1)?,
            Number::SIGUSR2 => child.signal(Signal::USR2)?,
            _ => {}
        }
    }
    Ok(())
}

/// Makes the program's terminal as large as the caller's, where both have one.
fn resize(child: &Child) -> io::Result<()> {
    match (&child.terminal, pty::size(io::stdin().as_fd())) {
        (Some(terminal), Some(size)) => pty::set_size(terminal.as_fd(), size),
        _ => Ok(()),
    }
}

fn poll_all(on: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(on, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

//! A program that the caller sits in front of: its bytes, signals and window size, and every key, passed on.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal as Number;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::termios::Winsize;
use slipway_sys::pty;
use slipway_sys::signals::Taken;

use super::beside::Beside;
use super::entry::Entry;
use super::error::ExecError;
use super::launch::{Launcher, hand_over};
use super::program::{Program, Stdio, Stream, Streams};
use super::pump::{self, End, Input, Keyboard, Output, Pumps, Suspends};
use super::running::{Child, Exit};

/// Passed on to the program rather than acted on.
const PASSED_ON: [Number; 6] =
    [Number::SIGINT, Number::SIGQUIT, Number::SIGTERM, Number::SIGHUP, Number::SIGUSR1, Number::SIGUSR2];

/// What a terminal is sized as where the caller has none.
const USUAL: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };

impl Launcher {
    /// Runs a program with the caller's standard input, output and error, and waits for it. Signals that reach the caller are
    /// passed on. The program has a terminal of its own where `terminal` says so, or the caller sits at one.
    ///
    /// # Errors
    /// When the program does not come to be executed, or the caller's input or output fails.
    pub fn foreground(&self, entry: &Entry, program: &Program, terminal: bool) -> Result<Exit, ExecError> {
        self.foreground_beside(entry, program, terminal, Beside::default())
    }

    /// As [`foreground`](Self::foreground), with ways beside the streams. The process has several threads afterwards.
    ///
    /// # Errors
    /// As [`foreground`](Self::foreground).
    pub fn foreground_beside(
        &self,
        entry: &Entry,
        program: &Program,
        terminal: bool,
        beside: Beside,
    ) -> Result<Exit, ExecError> {
        let fail = |doing| ExecError::start(&entry.node, doing);
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let ours = [input.as_fd(), output.as_fd(), error.as_fd()];
        let layout = Layout::choose(ours, terminal).map_err(fail("look at standard input and output"))?;
        let made = Made::make(&layout).map_err(fail("open pipes"))?;
        // Before there is a program: one that is sent a signal because of the first thing that it prints is to get it.
        let taken = [&PASSED_ON[..], &[Number::SIGWINCH, Number::SIGCONT]].concat();
        let signals = Taken::new(&taken).map_err(fail("take signals"))?;
        let mut executes = |link: BorrowedFd<'_>| wait_for_exec(link, &signals);
        let stdio = Stdio::Streams(made.streams(&layout, beside.kept()));
        let mut child = self.spawn_heard(entry, program, stdio, None, &mut hand_over, &mut executes)?;
        beside.serve().map_err(fail("join it with its process manager"))?;
        let terminal = child.terminal.take();
        let mut pumps = made.pumps(&layout, terminal.as_ref(), child.pid()).map_err(fail("pass bytes on"))?;
        let mut front =
            Front { child: &child, signals: &signals, terminal: terminal.as_ref(), size_of: layout.size_of };
        // It may have changed meanwhile.
        front.resize().map_err(fail("size the terminal"))?;
        let exit = front.attend(&mut pumps).map_err(fail("pass bytes on"))?;
        match pumps.trouble() {
            Some((doing, error)) => Err(fail(doing)(error)),
            None => Ok(exit),
        }
    }
}

/// The stand-in for one of the caller's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Null,
    Pipe,
    /// Shares the pipe of the output, as the caller's do.
    AsOutput,
    Terminal,
}

#[derive(Debug)]
struct Layout<'a> {
    ours: [BorrowedFd<'a>; 3],
    ways: [Way; 3],
    /// The terminal whose size the program's has.
    size_of: Option<BorrowedFd<'a>>,
    /// Asked for, so that every key is the program's.
    asked: bool,
}

impl<'a> Layout<'a> {
    /// A program that reads from a terminal and writes to it has one of its own. One that only writes to it has one that only
    /// shows; one that only reads from it has a pipe.
    fn choose(ours: [BorrowedFd<'a>; 3], asked: bool) -> io::Result<Self> {
        let [input, output, error] = ours;
        let size_of = ours.into_iter().find(BorrowedFd::is_terminal);
        if asked {
            return Ok(Self { ours, ways: [Way::Terminal; 3], size_of, asked });
        }
        let one = |fd: BorrowedFd<'_>, terminal: Way| -> io::Result<Way> {
            Ok(match () {
                () if pump::is_null(&fstat(fd)?) => Way::Null,
                () if fd.is_terminal() => terminal,
                () => Way::Pipe,
            })
        };
        let way_in = one(input, if output.is_terminal() { Way::Terminal } else { Way::Pipe })?;
        let way_out = one(output, Way::Terminal)?;
        let together = pump::are_one(output, error)?;
        let way_err = match one(error, Way::Terminal)? {
            Way::Pipe if together => Way::AsOutput,
            // There is one terminal, and it shows on one.
            Way::Terminal if !together && way_out == Way::Terminal => Way::Pipe,
            way => way,
        };
        Ok(Self { ours, ways: [way_in, way_out, way_err], size_of, asked })
    }

    fn has_terminal(&self) -> bool {
        self.ways.contains(&Way::Terminal)
    }
}

/// Pipes: the program's ends, and this process's.
#[derive(Debug, Default)]
struct Made {
    theirs: [Option<OwnedFd>; 3],
    own: [Option<OwnedFd>; 3],
}

impl Made {
    fn make(layout: &Layout<'_>) -> io::Result<Self> {
        let mut made = Self::default();
        for (at, _) in layout.ways.iter().enumerate().filter(|(_, way)| **way == Way::Pipe) {
            let (theirs, own) = if at == 0 { pump::pipe_to_program()? } else { pump::pipe_from_program()? };
            (made.theirs[at], made.own[at]) = (Some(theirs), Some(own));
        }
        Ok(made)
    }

    fn streams<'a>(&'a self, layout: &Layout<'_>, kept: &'a [OwnedFd]) -> Streams<'a> {
        let pipe = |at: usize| self.theirs[at].as_ref().map_or(Stream::Null, |pipe| Stream::Pipe(pipe.as_fd()));
        let each = std::array::from_fn(|at| match layout.ways[at] {
            Way::Null => Stream::Null,
            Way::Pipe => pipe(at),
            Way::AsOutput => pipe(1),
            Way::Terminal => Stream::Terminal,
        });
        let size = layout.has_terminal().then(|| layout.size_of.and_then(pty::size).unwrap_or(USUAL));
        Streams { each, size, kept }
    }

    /// Closes the program's ends, and carries bytes from and to this process's.
    fn pumps<'a>(self, layout: &Layout<'a>, terminal: Option<&'a OwnedFd>, program: Pid) -> io::Result<Pumps<'a>> {
        let [input, output, error] = layout.ours;
        let terminal = terminal.map(OwnedFd::as_fd);
        let [own_input, own_output, own_error] = self.own;
        let typed_on = terminal.filter(|_| layout.ways[0] == Way::Terminal);
        let to = own_input.map(End::Pipe).or(typed_on.map(End::Terminal));
        let keyboard = input.is_terminal().then(|| {
            let suspends = typed_on.filter(|_| !layout.asked).map(|terminal| Suspends { terminal, program });
            Keyboard::new(input, typed_on.is_some(), suspends)
        });
        let mut pumps = Pumps::default();
        if let Some(to) = to {
            pumps.input = Some(Input::new(input, to, keyboard.transpose()?)?);
        }
        // Shown where the caller sees it: on its output, or where that is no terminal, on its error.
        let screen = if layout.ways[1] == Way::Terminal { output } else { error };
        let shown = terminal.map(|terminal| (End::Terminal(terminal), screen));
        let piped = [(own_output, output), (own_error, error)];
        let piped = piped.into_iter().filter_map(|(own, to)| Some((End::Pipe(own?), to)));
        pumps.outputs = piped.chain(shown).map(|(from, to)| Output::new(from, to)).collect::<io::Result<_>>()?;
        Ok(pumps)
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

/// A program that runs, and what this process does for it.
#[derive(Debug)]
struct Front<'a> {
    child: &'a Child,
    signals: &'a Taken,
    /// The outside of the program's.
    terminal: Option<&'a OwnedFd>,
    size_of: Option<BorrowedFd<'a>>,
}

impl Front<'_> {
    /// Carries bytes and signals until the program has ended, and all that it wrote is written.
    fn attend(&mut self, pumps: &mut Pumps<'_>) -> io::Result<Exit> {
        let mut ended = false;
        while !(ended && pumps.is_dry()) {
            // Once the program has ended, signals alone are waited for.
            let [child, signalled] =
                pumps.turn([if ended { self.signals.as_fd() } else { self.child.as_fd() }, self.signals.as_fd()])?;
            if signalled && self.pass_on(pumps)? && ended {
                break;
            }
            suspend_if_asked(pumps)?;
            if child && !ended {
                ended = true;
                pumps.finish();
            }
        }
        self.child.wait()
    }

    /// Passes on what has come. Whether it asks the program to end.
    fn pass_on(&self, pumps: &mut Pumps<'_>) -> io::Result<bool> {
        let mut asked = false;
        while let Some(signal) = self.signals.take()? {
            asked |= matches!(signal, Number::SIGINT | Number::SIGQUIT | Number::SIGTERM | Number::SIGHUP);
            match signal {
                Number::SIGWINCH => self.resize()?,
                Number::SIGCONT => {
                    if let Some(keyboard) = keyboard(pumps) {
                        keyboard.settle()?;
                    }
                }
                // A terminal sends these to all that run in its foreground.
                Number::SIGINT => self.child.signal_group(Signal::INT)?,
                Number::SIGQUIT => self.child.signal_group(Signal::QUIT)?,
                Number::SIGTERM => self.child.signal(Signal::TERM)?,
                Number::SIGHUP => self.child.signal(Signal::HUP)?,
                Number::SIGUSR1 => self.child.signal(Signal::USR1)?,
                Number::SIGUSR2 => self.child.signal(Signal::USR2)?,
                _ => {}
            }
        }
        Ok(asked)
    }

    /// Makes the program's terminal as large as the caller's, where both have one.
    fn resize(&self) -> io::Result<()> {
        match (self.terminal, self.size_of.and_then(pty::size)) {
            (Some(terminal), Some(size)) => pty::set_size(terminal.as_fd(), size),
            _ => Ok(()),
        }
    }
}

/// Stops this process and what runs in front of the terminal with it, as the key does where it is the terminal's.
fn suspend_if_asked(pumps: &mut Pumps<'_>) -> io::Result<()> {
    let Some(keyboard) = keyboard(pumps).filter(|keyboard| keyboard.suspended) else { return Ok(()) };
    keyboard.suspended = false;
    keyboard.release();
    kill_process_group(getpgrp(), Signal::TSTP)?;
    // Gone on, or never stopped: an orphaned process group is not.
    keyboard.settle()
}

fn keyboard<'p, 'a>(pumps: &'p mut Pumps<'a>) -> Option<&'p mut Keyboard<'a>> {
    pumps.input.as_mut().and_then(|input| input.keyboard.as_mut())
}

fn poll_all(on: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(on, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

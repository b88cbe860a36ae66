//! The carrier's life.
//!
//! Standard input is a socket for the orders of brokers, and the carrier ends with it. The first line of standard output says
//! `ready PORT`, or `failed` with the length of a text that follows.

use std::io::{PipeReader, Write as _, pipe};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::Order;
use super::rdmacm::{Library, Socket};
use super::table::Table;
use crate::wire::{WireError, receive};
use libc::{POLLIN, pollfd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_name;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// Lives the life of a carrier, whose one argument is an address and a port.
#[must_use]
pub fn run() -> ExitCode {
    // It was executed by a descriptor, so its name is a number. Others of its user may not trace it.
    let _ = set_name(c"slipway-carrier");
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let begun = begin();
    let word = match &begun {
        Ok((_, _, port)) => format!("ready {port}\n"),
        Err(why) => format!("failed {}\n{why}", why.len()),
    };
    let mut output = std::io::stdout();
    if output.write_all(word.as_bytes()).and_then(|()| output.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok((listener, table, _)) = begun else { return ExitCode::FAILURE };
    match accept(listener).and_then(|visitors| serve(&visitors, table)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log(&format!("go on: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn begin() -> Result<(Socket, Table, u16), String> {
    let mut words = std::env::args().skip(1);
    let (Some(at), None) = (words.next(), words.next()) else {
        return Err("a lab's anchor starts this program; users do not".to_owned());
    };
    let at: SocketAddrV4 = at.parse().map_err(|_| format!("`{at}` is no address"))?;
    let library = Library::load()?;
    let (listener, port) = library.listen(at).map_err(|errno| match errno {
        Errno::NODEV | Errno::ADDRNOTAVAIL => format!("no RDMA device of this machine has the address {}", at.ip()),
        errno => format!("listen at {} by the device: {errno}", at.ip()),
    })?;
    let table = Table::new(library, *at.ip());
    Ok((listener, table, port))
}

/// Standard error is the log of the lab's RDMA.
fn log(what: &str) {
    // A full disk is no reason to end connections.
    let _ = writeln!(std::io::stderr(), "carrier failed to {what}");
}

/// Connections that have come, and a pipe that has a byte for each.
struct Visitors {
    sockets: Receiver<Socket>,
    bell: PipeReader,
}

/// Accepts connections from now on.
fn accept(listener: Socket) -> Result<Visitors, Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (bell, mut rings) = pipe().map_err(failed)?;
    let (sender, sockets) = channel();
    let accept = move || {
        loop {
            match listener.accept() {
                Ok(socket) => {
                    if sender.send(socket).is_err() || rings.write_all(&[1]).is_err() {
                        return;
                    }
                }
                // A caller that is gone again, or a lack of memory or descriptors.
                Err(errno) => {
                    log(&format!("accept a connection of the device: {errno}"));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    };
    std::thread::Builder::new().name("accepts".into()).spawn(accept).map_err(failed)?;
    Ok(Visitors { sockets, bell })
}

fn serve(visitors: &Visitors, mut table: Table) -> Result<(), Errno> {
    let library = table.library();
    let control = std::io::stdin();
    loop {
        let waited = table.waits_for();
        let fixed = [(control.as_raw_fd(), POLLIN), (visitors.bell.as_raw_fd(), POLLIN)];
        let all = fixed.into_iter().chain(waited.iter().map(|&(_, fd, events)| (fd, events)));
        let mut on: Vec<pollfd> = all.map(|(fd, events)| pollfd { fd, events, revents: 0 }).collect();
        let left = table.due().map(|due| due.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let left = left.map_or(-1, |left| i32::try_from(left.as_millis()).unwrap_or(i32::MAX));
        library.poll(&mut on, left)?;
        let has_happened = |at: usize| on[at].revents != 0;
        let mut ids: Vec<u64> =
            waited.iter().enumerate().filter(|(at, _)| has_happened(at + 2)).map(|(_, it)| it.0).collect();
        ids.dedup();
        for why in ids.into_iter().filter_map(|id| table.turn(id)) {
            log(&why);
        }
        if has_happened(0) && !obey(&mut table)? {
            return Ok(());
        }
        if has_happened(1) {
            let _ = rustix::io::read(&visitors.bell, &mut [0; 64]);
            for far in visitors.sockets.try_iter() {
                table.met(far);
            }
        }
        table.expire();
    }
}

/// Carries out the orders that have come. False where no broker can give any more.
fn obey(table: &mut Table) -> Result<bool, Errno> {
    loop {
        match receive::<Order>(std::io::stdin().as_fd(), RecvFlags::DONTWAIT) {
            Ok((order, fds)) => {
                if let Err(why) = table.obey(order, fds) {
                    log(&why);
                }
            }
            Err(WireError::Socket(Errno::AGAIN)) => return Ok(true),
            Err(WireError::Ended) => return Ok(false),
            Err(WireError::Malformed) => log("understand an order"),
            Err(WireError::Socket(errno)) => return Err(errno),
        }
    }
}

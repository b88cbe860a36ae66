//! The carrier's life.

use std::io::{PipeReader, Write as _, pipe};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use libc::{POLLIN, pollfd};
use rustix::io::Errno;

use super::rdmacm::{Library, Socket};
use super::table::Table;
use crate::servant::Servant;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

const CARRIER: Servant = Servant { process: c"slipway-carrier", name: "carrier" };

/// Lives the life of a carrier, whose one argument is an address and a port. It says the port that it has.
#[must_use]
pub fn run() -> ExitCode {
    CARRIER.live(begin, |(listener, table)| serve(&accept(listener)?, table))
}

fn begin(at: &str) -> Result<((Socket, Table), String), String> {
    let at: SocketAddrV4 = at.parse().map_err(|_| format!("`{at}` is no address"))?;
    let library = Library::load()?;
    let (listener, port) = library.listen(at).map_err(|errno| match errno {
        Errno::NODEV | Errno::ADDRNOTAVAIL => format!("no RDMA device of this machine has the address {}", at.ip()),
        errno => format!("listen at {} by the device: {errno}", at.ip()),
    })?;
    Ok(((listener, Table::new(library, *at.ip())), port.to_string()))
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
                    CARRIER.log(&format!("accept a connection of the device: {errno}"));
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
            CARRIER.log(&why);
        }
        if has_happened(0) && !CARRIER.obey(|order, fds| table.obey(order, fds))? {
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

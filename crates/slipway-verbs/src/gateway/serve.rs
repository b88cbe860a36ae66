//! The gateway's life.
//!
//! Standard input is a socket for orders, and the gateway ends with it. The first line of standard output says `ready DEVICE`, or
//! `failed` with the length of a text that follows.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_name;

use super::Order;
use super::device::Device;
use super::table::{ORDERS, Table};
use crate::wire::{WireError, receive};

/// Orders before others have their turn.
const TURN: usize = 32;

/// Lives the life of a gateway, whose one argument is an address of the device.
#[must_use]
pub fn run() -> ExitCode {
    // It was executed by a descriptor, so its name is a number. Others of its user may not trace it.
    let _ = set_name(c"slipway-gateway");
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let begun = begin();
    let word = match &begun {
        Ok((_, name)) => format!("ready {name}\n"),
        Err(why) => format!("failed {}\n{why}", why.len()),
    };
    let mut output = std::io::stdout();
    if output.write_all(word.as_bytes()).and_then(|()| output.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok((table, _)) = begun else { return ExitCode::FAILURE };
    match serve(table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(errno) => {
            log(&format!("go on: {errno}"));
            ExitCode::FAILURE
        }
    }
}

fn begin() -> Result<(Table, String), String> {
    let mut words = std::env::args().skip(1);
    let (Some(own), None) = (words.next(), words.next()) else {
        return Err("a lab's anchor starts this program; users do not".to_owned());
    };
    let own: IpAddr = own.parse().map_err(|_| format!("`{own}` is no address"))?;
    let device = Device::open(SocketAddr::new(own, 0))?;
    let table = Table::new(device, std::io::stdin().as_fd()).map_err(|errno| format!("wait for orders: {errno}"))?;
    Ok((table, device.name()))
}

/// Standard error is the log of the lab's RDMA.
fn log(what: &str) {
    // A full disk is no reason to end connections.
    let _ = writeln!(std::io::stderr(), "gateway failed to {what}");
}

fn serve(mut table: Table) -> Result<(), Errno> {
    loop {
        let mut events = [MaybeUninit::uninit(); 64];
        let happened: Vec<u64> = match epoll::wait(&table, events.as_mut_slice(), None) {
            Ok((happened, _)) => happened.iter().map(|event| event.data.u64()).collect(),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        for source in happened {
            if source != ORDERS {
                table.turn(source);
                if table.is_over {
                    return Err(Errno::NODEV);
                }
            } else if !obey(&mut table)? {
                return Ok(());
            }
        }
    }
}

/// Carries out the orders that have come. False where nobody can give any more.
fn obey(table: &mut Table) -> Result<bool, Errno> {
    for _ in 0..TURN {
        match receive::<Order>(std::io::stdin().as_fd(), RecvFlags::DONTWAIT) {
            Ok((order, fds)) => {
                if let Err(errno) = table.obey(order, fds) {
                    log(&format!("carry out an order: {errno}"));
                }
            }
            Err(WireError::Socket(Errno::AGAIN)) => return Ok(true),
            Err(WireError::Ended) => return Ok(false),
            Err(WireError::Malformed) => log("understand an order"),
            Err(WireError::Socket(errno)) => return Err(errno),
        }
    }
    Ok(true)
}

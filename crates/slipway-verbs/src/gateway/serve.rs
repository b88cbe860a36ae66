//! The gateway's life.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use rustix::event::epoll;
use rustix::io::Errno;

use super::device::Device;
use super::table::{ORDERS, Table};
use crate::servant::Servant;

const GATEWAY: Servant = Servant { process: c"slipway-gateway", name: "gateway" };

/// Lives the life of a gateway, whose one argument is an address of the device. It says the device's name.
#[must_use]
pub fn run() -> ExitCode {
    GATEWAY.live(begin, serve)
}

fn begin(own: &str) -> Result<(Table, String), String> {
    let own: IpAddr = own.parse().map_err(|_| format!("`{own}` is no address"))?;
    let device = Device::open(SocketAddr::new(own, 0))?;
    let table = Table::new(device, std::io::stdin().as_fd()).map_err(|errno| format!("wait for orders: {errno}"))?;
    Ok((table, device.name()))
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

fn obey(table: &mut Table) -> Result<bool, Errno> {
    GATEWAY.obey(|order, fds| table.obey(order, fds).map_err(|errno| format!("carry out an order: {errno}")))
}

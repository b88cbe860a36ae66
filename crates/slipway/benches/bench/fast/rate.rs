//! Setting connections up.

use std::cell::Cell;

use super::load::{MOUNTED, WORD};
use super::site::{ONE_HOST, Serving, Site, TWO_HOSTS, up};
use super::table::{Measured, Task, table};
use crate::common::{Slipway, less, more};

const ROUNDS: u32 = 9;

/// Connections of one measurement, fewer than a client has ports: each keeps its own for a minute.
const COUNT: u32 = 4000;

pub(crate) fn run() {
    let slipway = Slipway::new();
    for (title, plans, beneath) in
        [("Setting up within a host", ONE_HOST, "bridge"), ("Setting up between hosts", TWO_HOSTS, "vxlan")]
    {
        let sites = up(&slipway, &plans);
        // Another port for each measurement, so that old connections are in nobody's way.
        let port = Cell::new(2000);
        let next = || {
            port.set(port.get() + 1);
            port.get()
        };
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for clients in [1, 8] {
            tasks.push(Task::new("connections", move |site| connections(site, next(), clients)));
        }
        // Half of what routers keep ready is taken before they make more; 256 are more than they ever have.
        for (what, count, times) in [("8 after a pause", 8, 5), ("256 in a row, held", 256, 2)] {
            tasks.push(Task::new("burst", move |site| burst(site, next(), (what, count, times))));
        }
        table(title, ROUNDS, &sites, &tasks, &[["fast", beneath], ["fast", "host"]]);
    }
}

fn answer(site: &Site<'_>, port: u16) -> Result<(Serving, String), String> {
    let serving = site.serve(&[MOUNTED, WORD, "answer", &port.to_string(), "8"], port)?;
    Ok((serving, format!("{}:{port}", site.pair.address)))
}

fn connections(site: &Site<'_>, port: u16, clients: u32) -> Measured {
    let (_serving, to) = answer(site, port)?;
    let before = site.cpu()?;
    let rate = site.load(&["connect", &to, &COUNT.to_string(), &clients.to_string()])?[0];
    let each = (site.cpu()?.saturating_sub(before)).as_secs_f64() * 1e6 / f64::from(COUNT);
    let who = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients at once") };
    Ok(vec![
        more(&format!("connections a second, {who}"), "", rate),
        less(&format!("processor time of each, {who}"), "µs", each),
    ])
}

fn burst(site: &Site<'_>, port: u16, (what, count, times): (&str, u32, u32)) -> Measured {
    let serving = site.serve(&[MOUNTED, WORD, "swallow", &port.to_string()], port)?;
    let to = format!("{}:{port}", site.pair.address);
    let each = site.load(&["burst", &to, &count.to_string(), &times.to_string()])?[0];
    drop(serving);
    Ok(vec![less(&format!("`connect`, {what}"), "µs", each)])
}

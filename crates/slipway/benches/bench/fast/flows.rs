//! Many connections at once: whether each has an even share, and what all have together.

use super::load::{MOUNTED, WORD};
use super::site::{ONE_HOST, Site, TWO_HOSTS, numbers, up};
use super::table::{Measured, Task, table};
use crate::common::{Slipway, more};
use crate::pair::{command, end};

const ROUNDS: u32 = 7;
const FLOWS: &str = "512";
const PORT: u16 = 7002;

pub(crate) fn run() {
    let slipway = Slipway::new();
    for (title, plans, beneath) in [
        ("512 connections at once, within a host", ONE_HOST, "bridge"),
        ("512 connections at once, between hosts", TWO_HOSTS, "vxlan"),
    ] {
        let sites = up(&slipway, &plans);
        table(title, ROUNDS, &sites, &[Task::new("512 flows", share)], &[["fast", beneath], ["fast", "host"]]);
    }
}

/// The server measures, and the client writes until that ends.
fn share(site: &Site<'_>) -> Measured {
    let serve = format!(
        "{MOUNTED} {WORD} share {PORT} {FLOWS} 4000 & until ss -ltnH 'sport = :{PORT}' | grep -q .; do :; done; echo ready >&2; wait $!"
    );
    let server = [site.pair.server.as_slice(), &["sh".to_owned(), "-c".to_owned(), serve]].concat();
    let mut server = command(&server);
    let mut server = server
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| format!("run the server: {error}"))?;
    let mut ready = [0; 6];
    let said = server.stderr.as_mut().map(|stderr| std::io::Read::read_exact(stderr, &mut ready));
    if !matches!(said, Some(Ok(()))) {
        end(server);
        return Err("the server does not listen".to_owned());
    }
    let to = format!("{}:{PORT}", site.pair.address);
    let client = site.client(&[MOUNTED, WORD, "spread", &to, FLOWS]);
    let output = server.wait_with_output().map_err(|error| format!("hear the server: {error}"))?;
    client?;
    let [index, total] = numbers(&String::from_utf8_lossy(&output.stdout))?[..] else {
        return Err(format!("the server said {:?}", String::from_utf8_lossy(&output.stderr)));
    };
    let status = site.running().fast().map_err(|error| error.to_string())?;
    let beneath = status.routers.iter().filter_map(|router| router.status.as_ref());
    let beneath: u64 = beneath.flat_map(|status| status.connections.native.values()).sum();
    if beneath > 0 {
        return Err(format!("{beneath} connections so far were left on the network beneath"));
    }
    Ok(vec![more("Jain's index", "", index), more("all together", "Gb/s", total)])
}

//! From hosts of a batch system to machines of a lab: their names and addresses.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use slipway_lab::model::Machine;
use slipway_sys::interfaces::own_ipv4;

use super::{BatchError, Offer};
use crate::ask::each;

/// Most characters of a machine's name in a lab file.
const LONGEST: usize = 32;

/// The machines of a lab. An address that is not given is that of the name.
///
/// # Errors
/// A name that has no address, or two with the same.
pub fn machines(offers: Vec<Offer>) -> Result<Vec<Machine>, BatchError> {
    let found = each(offers, |offer| {
        let address = match offer.address {
            Some(address) => address,
            None => of_host(offer.host.rsplit('@').next().unwrap_or(&offer.host))?,
        };
        Ok((offer, address))
    });
    let (mut names, mut addresses, mut machines) = (HashSet::new(), BTreeMap::<Ipv4Addr, String>::new(), Vec::new());
    for outcome in found {
        let (Offer { host, cores, memory, job, .. }, address) = outcome?;
        if let Some(one) = addresses.insert(address, host.clone()) {
            return Err(BatchError::Twice { one, other: host, address });
        }
        let name = name(&host, &names);
        names.insert(name.clone());
        machines.push(Machine { name, address, ssh: host, cores, memory, labels: Vec::new(), job });
    }
    Ok(machines)
}

/// The name of a host as a lab file may have it: `[a-z][a-z0-9-]*`, at most 32 characters, and none of `taken`.
fn name(host: &str, taken: &HashSet<String>) -> String {
    let host = host.rsplit('@').next().unwrap_or(host);
    let is_address = host.parse::<Ipv4Addr>().is_ok();
    // The domain says nothing, where all have the same.
    let short = if is_address { host } else { host.split('.').next().unwrap_or(host) };
    let mut name: String =
        short.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert(0, 'm');
    }
    name.truncate(LONGEST);
    let numbered = |number: usize| {
        let end = format!("-{number}");
        let room = LONGEST - end.len();
        format!("{}{end}", &name[..name.len().min(room)])
    };
    if !taken.contains(&name) {
        return name;
    }
    (2..taken.len() + 3).map(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

/// The first address of a host that other machines can use. This program has no name service of its own (ADR 0006), so
/// `getent(1)` asks the machine's.
fn of_host(host: &str) -> Result<Ipv4Addr, BatchError> {
    let failed = |reason: String| BatchError::NoAddress { host: host.to_owned(), reason };
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let mut getent = Command::new("getent");
    let output = getent.args(["ahostsv4", host]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error: io::Error| failed(format!("getent cannot be started: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut all = text.lines().filter_map(|line| line.split_whitespace().next()?.parse::<Ipv4Addr>().ok()).peekable();
    if all.peek().is_none() {
        return Err(failed("no name service knows it".to_owned()));
    }
    match all.find(|address| !address.is_loopback() && !address.is_unspecified()) {
        Some(address) => Ok(address),
        // Debian gives a machine's own name the address 127.0.1.1.
        None if rustix::system::uname().nodename().to_str() == Ok(host) => {
            let own = own_ipv4().map_err(|error| failed(error.to_string()))?;
            own.ok_or_else(|| failed("this machine has no address but the loopback's".to_owned()))
        }
        None => Err(failed("its name leads to the loopback only".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_lab_files() {
        let none = HashSet::new();
        assert_eq!(name("root@Node_07.cluster.example", &none), "node-07");
        assert_eq!(name("192.0.2.7", &none), "m192-0-2-7");
        let taken = HashSet::from(["n1".to_owned(), "n1-2".to_owned()]);
        assert_eq!(name("n1.b", &taken), "n1-3");
    }

    #[test]
    fn machines_have_addresses_of_their_own() {
        let offer = |host: &str, address: &str| Offer {
            host: host.to_owned(),
            address: Some(address.parse().unwrap()),
            cores: Some(4),
            memory: None,
            job: None,
        };
        let machines = super::machines(vec![offer("b", "192.0.2.2"), offer("a", "192.0.2.1")]).unwrap();
        assert_eq!(machines.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["b", "a"], "in their order");
        let twice = super::machines(vec![offer("b", "192.0.2.2"), offer("a", "192.0.2.2")]);
        assert!(matches!(twice, Err(BatchError::Twice { .. })));
    }

    proptest! {
        #[test]
        fn any_host_has_a_name(hosts in prop::collection::vec("[A-Za-z0-9_.@-]{1,50}", 1..20)) {
            let mut taken = HashSet::new();
            for host in &hosts {
                let name = name(host, &taken);
                prop_assert!((1..=LONGEST).contains(&name.len()) && name.starts_with(|c: char| c.is_ascii_lowercase()));
                prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
                prop_assert!(taken.insert(name));
            }
        }
    }
}

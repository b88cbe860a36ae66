//! A program of a node that shares its host's network, told which of the addresses there are the node's own. A launcher hands the
//! same environment to all nodes, so the agent finds the address in each.

use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};
use slipway_sys::interfaces::list;

/// As the agent's first argument: a network and a program with its arguments follow.
pub(crate) const OPTION: &str = "--own-address";

/// The reason why a node's own address is not found.
#[derive(Debug, thiserror::Error)]
enum NoAddress {
    #[error("read /etc/hosts: {0}")]
    Hosts(io::Error),
    #[error("/etc/hosts has no {0}")]
    Name(String),
    #[error("list its interfaces: {0}")]
    List(io::Error),
    #[error("no interface has {0}")]
    Interface(Ipv4Addr),
}

/// Executes the program. Gives an exit code, a shell's, where that fails.
pub(super) fn execute(words: &[String]) -> u8 {
    let [network, program, arguments @ ..] = words else {
        eprintln!("slipway agent: usage: agent {OPTION} NETWORK PROGRAM...");
        return 255;
    };
    let mut command = Command::new(program);
    match own(network) {
        Ok(device) => {
            command.env("OMPI_MCA_btl_tcp_if_include", &device).env("UCX_NET_DEVICES", &device);
        }
        Err(account) => {
            eprintln!("slipway agent: find this node's address on {network}: {account}");
            return 255;
        }
    }
    let error = command.args(arguments).exec();
    eprintln!("slipway agent: execute {program}: {error}");
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// The device that has this node's address on a network.
fn own(network: &str) -> Result<String, NoAddress> {
    let uname = rustix::system::uname();
    let name = format!("{}.{network}", uname.nodename().to_string_lossy());
    let hosts = std::fs::read_to_string("/etc/hosts").map_err(NoAddress::Hosts)?;
    let address = address_of(&hosts, &name).ok_or(NoAddress::Name(name))?;
    let question = || list(socket(AddressFamily::INET, SocketType::DGRAM, None)?, usize::MAX);
    let listed = question().map_err(NoAddress::List)?;
    device_of(&listed, address).ok_or(NoAddress::Interface(address))
}

fn address_of(hosts: &str, name: &str) -> Option<Ipv4Addr> {
    hosts.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word == name).then_some(address)
    })
}

/// In a list of `struct ifreq` (netdevice(7)): 16 bytes of name, then a `struct sockaddr_in`.
fn device_of(listed: &[u8], address: Ipv4Addr) -> Option<String> {
    let has = |one: &&[u8]| one.get(20..24) == Some(&address.octets()[..]);
    let one = listed.chunks_exact(40).find(has)?;
    let name = one[..16].split(|&byte| byte == 0).next()?;
    String::from_utf8(name.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_address_and_device_are_found_by_its_name() {
        let hosts = "10.64.0.1 n1 n1.net\nfd53::2 ip6-n2.net\n10.64.0.2 n2 n2.net\n10.65.0.2 n2.other\n";
        let address = Ipv4Addr::new(10, 64, 0, 2);
        assert_eq!(address_of(hosts, "n2.net"), Some(address));
        assert_eq!(address_of(hosts, "n3.net"), None);
        let mut listed = vec![0; 80];
        listed[40..46].copy_from_slice(b"nodes0");
        listed[60..64].copy_from_slice(&address.octets());
        assert_eq!(device_of(&listed, address).as_deref(), Some("nodes0"));
        assert_eq!(device_of(&listed[..70], address), None);
    }
}

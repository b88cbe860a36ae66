//! Packets that the kernel dropped, by place: those of a network namespace, and of the machine's processors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Packets dropped since the start, by place. The place is a plain name, such as `UDP receive buffer` or `eth0 receive`.
pub type Drops = BTreeMap<String, u64>;

/// Counters of `snmp` and `netstat` below `/proc/PID/net` (`Documentation/networking/snmp_counter.rst`), and what each means.
const COUNTERS: [(&str, &str, &str); 8] = [
    ("Udp", "RcvbufErrors", "UDP receive buffer"),
    ("Udp", "SndbufErrors", "UDP send buffer"),
    ("TcpExt", "TCPRcvQDrop", "TCP receive buffer"),
    ("TcpExt", "TCPBacklogDrop", "TCP backlog"),
    ("TcpExt", "ListenDrops", "listen queue"),
    ("TcpExt", "PFMemallocDrop", "memory"),
    ("Ip", "InDiscards", "IP receive"),
    ("Ip", "OutDiscards", "IP send"),
];

/// Reads the counters of the network namespace of process `pid`. Places without a drop are left out.
///
/// # Errors
/// When the process is gone.
pub fn drops(pid: i32) -> io::Result<Drops> {
    let folder = Path::new("/proc").join(pid.to_string()).join("net");
    let text = |name: &str| match fs::read_to_string(folder.join(name)) {
        // A kernel without the counter drops nothing that it would count.
        Err(error) if error.kind() == io::ErrorKind::NotFound && name != "dev" => Ok(String::new()),
        other => other,
    };
    let mut drops = protocols(&text("snmp")?);
    drops.extend(protocols(&text("netstat")?));
    drops.extend(devices(&text("dev")?));
    drops.extend(queues(&text("softnet_stat")?));
    Ok(drops)
}

/// Lines in pairs: names, then numbers.
fn protocols(text: &str) -> Drops {
    let mut drops = Drops::new();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2) {
        let (Some((protocol, names)), Some((same, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
            continue;
        };
        if protocol != same {
            continue;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            let counter = COUNTERS.iter().find(|(of, counter, _)| (*of, *counter) == (protocol, name));
            if let (Some((_, _, place)), Some(value @ 1..)) = (counter, value.parse().ok()) {
                drops.insert((*place).to_owned(), value);
            }
        }
    }
    drops
}

/// Of `proc_pid_net(5)`, `dev`: the fourth and twelfth number of each device.
fn devices(text: &str) -> Drops {
    let mut drops = Drops::new();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
        for (at, direction) in [(3, "receive"), (11, "send")] {
            if let Some(&count @ 1..) = numbers.get(at) {
                drops.insert(format!("{} {direction}", name.trim()), count);
            }
        }
    }
    drops
}

/// Of `softnet_stat`: the second number of each line, hexadecimal (`softnet_seq_show`, net/core/net-procfs.c).
fn queues(text: &str) -> Drops {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    let sum = text.lines().filter_map(dropped).fold(0, u64::saturating_add);
    if sum == 0 { Drops::new() } else { Drops::from([("processors' packet queue".to_owned(), sum)]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_drop_has_its_place() {
        let snmp = "Ip: Forwarding InDiscards\nIp: 1 0\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 5 0 9 5 9\n";
        assert_eq!(protocols(snmp), Drops::from([("UDP receive buffer".to_owned(), 9)]));
        let dev = "Inter-|   Receive |  Transmit\n face |bytes packets\n  eth0: 1 2 3 4 0 0 0 0 9 8 7 6 0 0 0 0\n lo: 1 2 0 0 0 0 0 0 1 2 0 0\n";
        assert_eq!(devices(dev), Drops::from([("eth0 receive".to_owned(), 4), ("eth0 send".to_owned(), 6)]));
        assert_eq!(queues("0000ff 0000000a 00\n000001 00000001 00\n").into_values().collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn this_process_has_a_network() {
        drops(rustix::process::getpid().as_raw_nonzero().get()).expect("it runs");
        drops(0).expect_err("it does not");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String, lines in "([a-zA-Z]{0,3}:( [0-9a-f]{1,20}){0,14}\n){0,6}") {
            for text in [text, lines] {
                protocols(&text);
                devices(&text);
                queues(&text);
            }
        }
    }
}

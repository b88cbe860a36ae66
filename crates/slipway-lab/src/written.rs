//! Ethernet addresses, processors, ports and the machine's word, as they are written in a lab file.

use std::ops::RangeInclusive;

use slipway_document::cpus::Cpus;
use slipway_document::form::Form;

/// An Ethernet address of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Form for Mac {
    const NAME: &'static str = "Mac";
    const WHAT: &'static str = "an Ethernet address of one interface";
    const PATTERN: &'static str = r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$";
    const EXAMPLE: &'static str = "02:00:00:00:00:0a";

    fn read(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut mac = [0; 6];
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'));
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or("is not an Ethernet address")?;
        }
        match mac {
            _ if parts.next().is_some() => Err("is not an Ethernet address".into()),
            [0, 0, 0, 0, 0, 0] => Err("is no address of an interface".into()),
            [first, ..] if first & 1 == 1 => Err("is a multicast address".into()),
            _ => Ok(Self(mac)),
        }
    }
}

/// An Ethernet address in JSON, as people write it.
pub(crate) mod mac_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::{Form as _, Mac};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    pub(crate) fn serialize<S: Serializer>(mac: &[u8; 6], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&mac.map(|byte| format!("{byte:02x}")).join(":"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 6], D::Error> {
        let text = String::deserialize(from)?;
        Mac::read(&text).map(|Mac(mac)| mac).map_err(|why| D::Error::custom(format!("`{text}` {why}")))
    }
}

/// Processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuList {
    /// As written, which is how the kernel takes it.
    pub(crate) text: String,
    cpus: Cpus,
}

impl CpuList {
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.cpus.within(&self.cpus)
    }
}

/// Source: cpuset(7), "List format".
impl Form for CpuList {
    const NAME: &'static str = "CpuList";
    const WHAT: &'static str = "a list of processors and ascending ranges";
    const PATTERN: &'static str = r"^\d+(-\d+)?(,\d+(-\d+)?)*$";
    const EXAMPLE: &'static str = "0-3,6";

    fn read(text: &str) -> Result<Self, String> {
        // A list in a file is one word, and names a processor at least.
        let cpus: Option<Cpus> = text.parse().ok().filter(|Cpus(cpus)| !cpus.is_empty() && text.trim() == text);
        let cpus = cpus.ok_or("is no list of processors")?;
        Ok(Self { text: text.to_owned(), cpus })
    }
}

/// Ports that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortRange(pub(crate) RangeInclusive<u16>);

impl Form for PortRange {
    const NAME: &'static str = "PortRange";
    const WHAT: &'static str = "a port, or an ascending range of ports";
    const PATTERN: &'static str = r"^\d{1,5}(-\d{1,5})?$";
    const EXAMPLE: &'static str = "8000-8010";

    fn read(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let [first, last] =
            [first, last].map(|port| port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse()));
        match (first, last) {
            (Some(Ok(first)), Some(Ok(last))) if first <= last => Ok(Self(first..=last)),
            _ => Err("is no range of ports".into()),
        }
    }
}

/// The word for this machine's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine;

impl Form for Machine {
    const NAME: &'static str = "Machine";
    const WHAT: &'static str = "the number of hosts, their names, or the word for this machine's own network";
    const PATTERN: &'static str = "^machine$";
    const EXAMPLE: &'static str = "machine";

    fn read(text: &str) -> Result<Self, String> {
        if text == "machine" { Ok(Self) } else { Err("says nothing about hosts".into()) }
    }
}

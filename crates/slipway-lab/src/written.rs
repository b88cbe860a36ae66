//! Ethernet addresses, processors, ports and the machine's word, as they are written in a lab file.

use std::ops::RangeInclusive;

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
    /// A bit for each processor.
    bits: Vec<u64>,
}

impl CpuList {
    /// As many as `CONFIG_NR_CPUS` can be.
    const MOST: usize = 8192;

    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).all(|(mine, theirs)| theirs & !mine == 0)
    }
}

/// Source: cpuset(7), "List format".
impl Form for CpuList {
    const NAME: &'static str = "CpuList";
    const WHAT: &'static str = "a list of processors and ascending ranges";
    const PATTERN: &'static str = r"^\d+(-\d+)?(,\d+(-\d+)?)*$";
    const EXAMPLE: &'static str = "0-3,6";

    fn read(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<usize>().ok().filter(|cpu| digits && *cpu < Self::MOST)
        };
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some(number(first)?..=number(last)?).filter(|range| !range.is_empty())
        };
        let mut bits = vec![0; Self::MOST / 64];
        for cpus in text.split(',') {
            for cpu in range(cpus).ok_or("is no list of processors")? {
                bits[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        Ok(Self { text: text.to_owned(), bits })
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

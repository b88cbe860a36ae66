//! Addresses and subnets as they are written in a lab file.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// A text with a form of its own: how it is read, and what the JSON Schema says of it.
pub(crate) trait Form: Sized {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const PATTERN: &'static str;
    const EXAMPLE: &'static str;

    /// `Err` holds what is wrong, as a predicate of the text.
    fn read(text: &str) -> Result<Self, String>;
}

/// A value of a form, read from its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String", bound = "")]
pub(crate) struct Written<T: Form>(pub(crate) T);

/// Why a text has not its form.
pub(crate) struct FormError {
    text: String,
    wrong: String,
    example: &'static str,
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.text.chars().take(60).collect();
        write!(f, "`{text}` {}; write for example `{}`", self.wrong, self.example)
    }
}

impl<T: Form> TryFrom<String> for Written<T> {
    type Error = FormError;

    fn try_from(text: String) -> Result<Self, FormError> {
        match T::read(&text) {
            Ok(value) => Ok(Self(value)),
            Err(wrong) => Err(FormError { text, wrong, example: T::EXAMPLE }),
        }
    }
}

impl<T: Form> JsonSchema for Written<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": T::DESCRIPTION,
            "pattern": T::PATTERN,
            "examples": [T::EXAMPLE],
        })
    }
}

fn read<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("is not {what}"))
}

impl Form for Ipv4Net {
    const NAME: &'static str = "Ipv4Subnet";
    const DESCRIPTION: &'static str = "An IPv4 subnet with its prefix length.";
    const PATTERN: &'static str = r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$";
    const EXAMPLE: &'static str = "10.80.0.0/16";

    fn read(text: &str) -> Result<Self, String> {
        let net: Self = read(text, "an IPv4 subnet")?;
        if net.trunc() == net { Ok(net) } else { Err(format!("is an address within a subnet ({})", net.trunc())) }
    }
}

impl Form for Ipv6Net {
    const NAME: &'static str = "Ipv6Subnet";
    const DESCRIPTION: &'static str = "An IPv6 subnet with its prefix length.";
    const PATTERN: &'static str = r"^[0-9a-fA-F:.]+/\d{1,3}$";
    const EXAMPLE: &'static str = "fd00:80::/64";

    fn read(text: &str) -> Result<Self, String> {
        let net: Self = read(text, "an IPv6 subnet")?;
        if net.trunc() == net { Ok(net) } else { Err(format!("is an address within a subnet ({})", net.trunc())) }
    }
}

impl Form for Ipv4Addr {
    const NAME: &'static str = "Ipv4Address";
    const DESCRIPTION: &'static str = "An IPv4 address.";
    const PATTERN: &'static str = r"^\d{1,3}(\.\d{1,3}){3}$";
    const EXAMPLE: &'static str = "10.64.0.10";

    fn read(text: &str) -> Result<Self, String> {
        read(text, "an IPv4 address")
    }
}

impl Form for Ipv6Addr {
    const NAME: &'static str = "Ipv6Address";
    const DESCRIPTION: &'static str = "An IPv6 address.";
    const PATTERN: &'static str = r"^[0-9a-fA-F:.]+$";
    const EXAMPLE: &'static str = "fd53:6c69:7000::10";

    fn read(text: &str) -> Result<Self, String> {
        read(text, "an IPv6 address")
    }
}

/// An Ethernet address of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Form for Mac {
    const NAME: &'static str = "Mac";
    const DESCRIPTION: &'static str = "An Ethernet address of one interface (not a multicast one).";
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

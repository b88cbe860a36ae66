//! Texts with a form of their own: addresses and subnets.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A text with a form of its own: how it is read, and what the JSON Schema says of it.
pub trait Form: Sized {
    /// The type's name in the JSON Schema.
    const NAME: &'static str;
    /// The thing that the text stands for, with its article.
    const WHAT: &'static str;
    /// Regular expression of the text, for the JSON Schema.
    const PATTERN: &'static str;
    /// One such text.
    const EXAMPLE: &'static str;

    /// Reads the text.
    ///
    /// # Errors
    /// The fault, as a predicate of the text.
    fn read(text: &str) -> Result<Self, String>;
}

/// A value of a form, read from its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written<T>(pub T);

impl<'de, T: Form> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);

        impl<T: Form> Visitor<'_> for Text<T> {
            type Value = Written<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, for example `{}`", T::WHAT, T::EXAMPLE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let refused = |wrong| {
                    let text: String = text.chars().take(60).collect();
                    E::custom(format!("`{text}` {wrong}; write {}", &self as &dyn de::Expected))
                };
                T::read(text).map(Written).map_err(refused)
            }
        }

        deserializer.deserialize_str(Text(PhantomData))
    }
}

impl<T: Form> JsonSchema for Written<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": format!("{}{}.", T::WHAT[..1].to_uppercase(), &T::WHAT[1..]),
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
    const WHAT: &'static str = "an IPv4 subnet with its prefix length";
    const PATTERN: &'static str = r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$";
    const EXAMPLE: &'static str = "10.80.0.0/16";

    fn read(text: &str) -> Result<Self, String> {
        let net: Self = read(text, "an IPv4 subnet")?;
        if net.trunc() == net { Ok(net) } else { Err(format!("is an address within a subnet ({})", net.trunc())) }
    }
}

impl Form for Ipv6Net {
    const NAME: &'static str = "Ipv6Subnet";
    const WHAT: &'static str = "an IPv6 subnet with its prefix length";
    const PATTERN: &'static str = r"^[0-9a-fA-F:.]+/\d{1,3}$";
    const EXAMPLE: &'static str = "fd00:80::/64";

    fn read(text: &str) -> Result<Self, String> {
        let net: Self = read(text, "an IPv6 subnet")?;
        if net.trunc() == net { Ok(net) } else { Err(format!("is an address within a subnet ({})", net.trunc())) }
    }
}

impl Form for Ipv4Addr {
    const NAME: &'static str = "Ipv4Address";
    const WHAT: &'static str = "an IPv4 address";
    const PATTERN: &'static str = r"^\d{1,3}(\.\d{1,3}){3}$";
    const EXAMPLE: &'static str = "10.64.0.10";

    fn read(text: &str) -> Result<Self, String> {
        read(text, "an IPv4 address")
    }
}

impl Form for Ipv6Addr {
    const NAME: &'static str = "Ipv6Address";
    const WHAT: &'static str = "an IPv6 address";
    const PATTERN: &'static str = r"^[0-9a-fA-F:.]+$";
    const EXAMPLE: &'static str = "fd53:6c69:7000::10";

    fn read(text: &str) -> Result<Self, String> {
        read(text, "an IPv6 address")
    }
}

//! Values as they are written: in a file, in a word `key=value`, in JSON and its schema.

use std::fmt;

use super::shortened;

/// A value that a text may hold, wherever it stands: in a file or in a word `key=value`.
pub trait Value: Sized + fmt::Display {
    /// The expected form, for error messages.
    const EXPECTED: &'static str;

    /// Reads the text.
    ///
    /// # Errors
    /// The fault, then `; write …`.
    fn read(text: &str) -> Result<Self, String>;
}

impl Value for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn read(text: &str) -> Result<Self, String> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| format!("`{}` does not fit here; write {}", shortened(text), Self::EXPECTED))
    }
}

/// The written form of a type, in serde and in the JSON Schema. The type has [`FromStr`](std::str::FromStr) and
/// [`Display`](std::fmt::Display).
///
/// The arguments are the type, its forms for error messages, and the schema's description, pattern and examples. The
/// caller's crate depends on serde and schemars.
#[macro_export]
macro_rules! written {
    ($type:ident, $units:ident, $description:literal, $pattern:literal, $examples:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($units)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl $crate::units::Value for $type {
            const EXPECTED: &'static str = $units;

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error| ToString::to_string(&error))
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": $pattern,
                    "examples": $examples,
                })
            }
        }
    };
}

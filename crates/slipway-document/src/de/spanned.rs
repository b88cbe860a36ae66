//! Values that know where they were written.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::errors::Span;
use crate::shape::part;

/// A value and where it was written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The place in the file.
    pub at: Span,
    /// From the key, or the beginning, to the end of all that belongs to it.
    pub whole: Span,
}

/// The name by which [`Spanned`] asks its reader for the place.
pub(super) const SPANNED: &str = "slipway::Spanned";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value and its place")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let [start, end] = [part(&mut parts)?, part(&mut parts)?];
                let at = Span { start, end };
                let whole = Span { start, end: part(&mut parts)? };
                Ok(Spanned { value: part(&mut parts)?, at, whole })
            }
        }

        deserializer.deserialize_newtype_struct(SPANNED, Parts(PhantomData))
    }
}

/// A map in file order, each entry with the place of its key. An entry without a value has the default one.
#[derive(Debug, Clone)]
pub struct Named<T>(pub Vec<Entry<T>>);

/// One entry of a [`Named`].
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// The key, with its place.
    pub name: Spanned<String>,
    /// The value.
    pub value: T,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map: one `name: value` a line")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Named::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key()? {
                    let value = map.next_value::<Option<T>>()?.unwrap_or_default();
                    entries.push(Entry { name, value });
                }
                Ok(Named(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<Option<T>>();
        json_schema!({ "type": ["object", "null"], "additionalProperties": value })
    }
}

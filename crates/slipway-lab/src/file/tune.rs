//! Kernel settings of a virtual host.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use slipway_document::by_shape;
use slipway_document::de::{Entry, Named, Spanned};
use slipway_document::units::{Rate, Seconds};

use super::Value;
use crate::model::ProfileWord;

/// Kernel settings of a host: a profile, or a map.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Tune {
    /// A profile: `up` takes the settings that the rules of `slipway tune check` advise for it.
    Profile(Spanned<ProfileWord>),
    /// A map of settings.
    Settings(TuneSettings),
}

by_shape!(
    Tune,
    "kernel settings: a profile (`dtn`, `hpc` or `server`), or a map",
    Text => Profile,
    Map => Settings,
);

/// Kernel settings by name, and the profile that gives others.
#[derive(Debug, Default)]
pub(crate) struct TuneSettings {
    pub(crate) profile: Option<Spanned<ProfileWord>>,
    pub(crate) rtt: Option<Spanned<Seconds>>,
    pub(crate) rate: Option<Spanned<Rate>>,
    pub(crate) named: Named<Value>,
}

/// Names of settings are open, so this is no derived reader: it takes the three other keys from among them.
impl<'de> Deserialize<'de> for TuneSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = TuneSettings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("kernel settings: one `name: value` a line, or `profile`, `rtt` and `rate`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TuneSettings, A::Error> {
                let mut read = TuneSettings::default();
                while let Some(name) = map.next_key::<Spanned<String>>()? {
                    match name.value.as_str() {
                        "profile" => read.profile = map.next_value()?,
                        "rtt" => read.rtt = map.next_value()?,
                        "rate" => read.rate = map.next_value()?,
                        _ => {
                            let value = map.next_value::<Option<Value>>()?.unwrap_or_default();
                            read.named.0.push(Entry { name, value });
                        }
                    }
                }
                Ok(read)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

impl JsonSchema for TuneSettings {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TuneSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let profile = generator.subschema_for::<Option<ProfileWord>>();
        let rtt = generator.subschema_for::<Option<Seconds>>();
        let rate = generator.subschema_for::<Option<Rate>>();
        let value = generator.subschema_for::<Option<Value>>();
        json_schema!({
            "description": "Kernel parameters by their names in sysctl(8), all below `net.`, and the profile that gives others. \
                A parameter that is written here goes before the profile's.",
            "type": "object",
            "properties": { "profile": profile, "rtt": rtt, "rate": rate },
            "patternProperties": { r"^net\.": value },
            "additionalProperties": false,
        })
    }
}

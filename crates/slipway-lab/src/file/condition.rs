//! Keys of conditions, as they stand in several places of the file.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use slipway_document::de::Spanned;
use slipway_document::errors::Span;
use slipway_document::units::{ByteRate, Bytes, Fraction, Rate, Seconds, Value};

use crate::change::{Change, NONE};
use crate::condition::{Distribution, Limits, Loss};

/// A key's value, or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Setting<T> {
    Value(T),
    /// Takes a key away that would hold otherwise.
    None,
}

impl<'de, T: Value> Deserialize<'de> for Setting<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);

        impl<T: Value> Visitor<'_> for Text<T> {
            type Value = Setting<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    NONE => Ok(Setting::None),
                    _ => T::read(text).map(Setting::Value).map_err(E::custom),
                }
            }
        }

        deserializer.deserialize_str(Text(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Setting<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}OrNone", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [value, { "const": NONE, "description": "Takes away what would hold otherwise." }] })
    }
}

/// A change, and where each of its keys is written.
#[derive(Default)]
pub(crate) struct Placed<T: Default> {
    pub(crate) change: Change<T>,
    pub(crate) places: Vec<(&'static str, Span)>,
}

impl<T: Default> Placed<T> {
    /// Enters a key, if it is written.
    pub(crate) fn key<V: Clone>(
        &mut self,
        name: &'static str,
        written: Option<&Spanned<Setting<V>>>,
        field: fn(&mut T) -> &mut Option<V>,
    ) {
        let Some(written) = written else { return };
        self.places.push((name, written.at));
        match &written.value {
            Setting::Value(value) => *field(&mut self.change.set) = Some(value.clone()),
            Setting::None => self.change.clear.push(name.to_owned()),
        }
    }

    /// Where a key is written, if it is.
    pub(crate) fn place(&self, key: &str) -> Option<Span> {
        self.places.iter().find(|(name, _)| *name == key).map(|(_, at)| *at)
    }
}

/// A struct with keys of link conditions beside its own.
macro_rules! with_link_keys {
    ($(#[$about:meta])* $name:ident { $($(#[$own_about:meta])* $own:ident: $type:ty,)* }) => {
        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$own_about])* pub(crate) $own: $type,)*
            /// Added to every packet's way, such as `20ms`.
            pub(crate) delay: Option<Spanned<Setting<Seconds>>>,
            /// Variation of `delay`: half the width of `uniform`, one standard deviation of the other distributions.
            pub(crate) jitter: Option<Spanned<Setting<Seconds>>>,
            /// The shape of `jitter`. `uniform` when left out.
            pub(crate) distribution: Option<Spanned<Setting<Distribution>>>,
            /// Dependence of a packet's delay on the one before it.
            pub(crate) delay_correlation: Option<Spanned<Setting<Fraction>>>,
            /// Packets that vanish: `0.5%`, or one of tc-netem(8)'s models.
            pub(crate) loss: Option<Spanned<Setting<Loss>>>,
            /// Dependence of a random loss on the one before it.
            pub(crate) loss_correlation: Option<Spanned<Setting<Fraction>>>,
            /// Packets with one bit turned over.
            pub(crate) corrupt: Option<Spanned<Setting<Fraction>>>,
            /// Packets that come twice.
            pub(crate) duplicate: Option<Spanned<Setting<Fraction>>>,
            /// Packets that are not delayed, and so overtake those that are.
            pub(crate) reorder: Option<Spanned<Setting<Fraction>>>,
            /// Dependence of a reordering on the one before it.
            pub(crate) reorder_correlation: Option<Spanned<Setting<Fraction>>>,
            /// Only every so many packets may be reordered. 1 when left out.
            #[schemars(range(min = 1))]
            pub(crate) gap: Option<Spanned<Setting<u32>>>,
            /// Such as `100mbit`. As fast as it goes when left out.
            pub(crate) rate: Option<Spanned<Setting<Rate>>>,
            /// Packets that may wait. Computed from `rate` and `delay` when left out.
            #[schemars(range(min = 1))]
            pub(crate) limit: Option<Spanned<Setting<u32>>>,
            /// Packets that may wait for `rate`, apart from those that are merely delayed. As `limit` has it when left out.
            #[schemars(range(min = 1))]
            pub(crate) queue: Option<Spanned<Setting<u32>>>,
        }

        impl $name {
            /// The changes that the keys ask for.
            pub(crate) fn change(&self) -> $crate::file::Placed<$crate::condition::LinkConditions> {
                let mut placed = $crate::file::Placed::default();
                $crate::file::place_keys!(self, placed: $crate::condition::LinkConditions,
                    delay, jitter, distribution, delay_correlation, loss, loss_correlation, corrupt, duplicate, reorder,
                    reorder_correlation, gap, rate, limit, queue);
                placed
            }
        }
    };
}

with_link_keys! {
    /// Conditions of an interface: of packets that the node sends, and below `ingress` of those that it receives.
    #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "conditions: a map of keys such as `delay`, `loss` and `rate`")]
    Conditions {
        /// Conditions of packets that the node receives.
        ingress: Option<Spanned<Ingress>>,
    }
}

with_link_keys! {
    /// Conditions of packets that a node receives.
    #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "conditions: a map of keys such as `delay`, `loss` and `rate`")]
    Ingress {}
}

with_link_keys! {
    /// Conditions between nodes. They hold over those of the sender's interface, key by key, and over those of rules above.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, expecting = "a rule between nodes: a map with `between`, with `from` and `to`, or with `matrix`")]
    Link {
        /// Both ways between two: names of nodes or groups, or patterns such as `n*`.
        between: Option<Spanned<Vec<Spanned<String>>>>,
        /// One way: the senders.
        from: Option<Spanned<String>>,
        /// One way: the receivers.
        to: Option<Spanned<String>>,
        /// A CSV file of delays: node names in its first row and its first column, the row's node sends. Relative to the lab file.
        matrix: Option<Spanned<String>>,
        /// The network that it holds on. All that both are on when left out.
        network: Option<Spanned<String>>,
    }
}

/// A struct with keys of what a node may use beside its own.
macro_rules! with_node_keys {
    ($(#[$about:meta])* $name:ident { $($(#[$own_about:meta])* $own:ident: $type:ty,)* }) => {
        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$own_about])* pub(crate) $own: $type,)*
            /// Processor time: `50%` is half of one core; or `2 cores`, or `1200 MHz`. No limit when left out.
            pub(crate) cpu: Option<Spanned<Setting<Cpu>>>,
            /// Over which stretch of time `cpu` is counted, from `1ms` to `1s`. Chosen by itself when left out.
            pub(crate) cpu_period: Option<Spanned<Setting<Seconds>>>,
            /// Memory, such as `512MiB`. No limit when left out.
            pub(crate) memory: Option<Spanned<Setting<Bytes>>>,
            /// The kernel pushes the node back to this size when the machine runs short of memory. No such limit when
            /// left out.
            pub(crate) memory_soft: Option<Spanned<Setting<Bytes>>>,
            /// Swap beyond `memory`. None when left out.
            pub(crate) swap: Option<Spanned<Setting<Bytes>>>,
            /// Processes and threads. No limit when left out.
            #[schemars(range(min = 8))]
            pub(crate) pids: Option<Spanned<Setting<u32>>>,
            /// Limits of its disk, the file system of `/scratch`. No limit when left out.
            pub(crate) disk: Option<Spanned<$crate::file::Disk>>,
        }

        impl $name {
            /// The changes that the keys ask for.
            pub(crate) fn limits(&self) -> $crate::file::Placed<$crate::condition::Limits> {
                let mut placed = $crate::file::Placed::default();
                $crate::file::place_keys!(self, placed: $crate::condition::Limits, cpu, cpu_period, memory, memory_soft, swap, pids);
                if let Some(disk) = &self.disk {
                    disk.value.place(&mut placed);
                }
                placed
            }
        }
    };
}

/// A node's disk.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a disk: a map of `size`, `read`, `write`, `read_iops` and `write_iops`")]
pub(crate) struct Disk {
    /// A block device of the node's own, of this size, such as `1GiB`: then buffered writes are held to the limits too.
    pub(crate) size: Option<Spanned<Setting<Bytes>>>,
    /// Read in a second, such as `20MB/s`.
    pub(crate) read: Option<Spanned<Setting<ByteRate>>>,
    /// Written in a second, such as `20MB/s`.
    pub(crate) write: Option<Spanned<Setting<ByteRate>>>,
    /// Reads in a second.
    #[schemars(range(min = 1))]
    pub(crate) read_iops: Option<Spanned<Setting<u32>>>,
    /// Writes in a second.
    #[schemars(range(min = 1))]
    pub(crate) write_iops: Option<Spanned<Setting<u32>>>,
}

impl Disk {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { size, read, write, read_iops, write_iops } = self;
        size.is_none() && read.is_none() && write.is_none() && read_iops.is_none() && write_iops.is_none()
    }

    /// Enters the keys.
    pub(crate) fn place(&self, placed: &mut Placed<Limits>) {
        placed.key("disk.size", self.size.as_ref(), |limits| &mut limits.disk.size);
        placed.key("disk.read", self.read.as_ref(), |limits| &mut limits.disk.read);
        placed.key("disk.write", self.write.as_ref(), |limits| &mut limits.disk.write);
        placed.key("disk.read_iops", self.read_iops.as_ref(), |limits| &mut limits.disk.read_iops);
        placed.key("disk.write_iops", self.write_iops.as_ref(), |limits| &mut limits.disk.write_iops);
    }
}

/// Enters keys of `$self` under their names.
macro_rules! place_keys {
    ($self:ident, $placed:ident: $type:ty, $($key:ident),+) => {
        $($placed.key(stringify!($key), $self.$key.as_ref(), |set: &mut $type| &mut set.$key);)+
    };
}

pub(crate) use {place_keys, with_node_keys};

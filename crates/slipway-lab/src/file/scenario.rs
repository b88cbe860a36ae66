//! A scenario as it is written: a section of the lab file, or a file of its own.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use slipway_document::by_shape;
use slipway_document::de::{Named, Spanned};
use slipway_document::errors::Span;
use slipway_document::units::{Fraction, Seconds};

use super::{Command, Value};
use crate::change::Keys;
use crate::condition::{Limits, LinkConditions};
use crate::scenario::{Direction, Format};

/// Changes of the lab while it runs, and their times: `slipway play`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a scenario: a map with `events`")]
pub(crate) struct Scenario {
    /// Seed of its random streams. The lab's `seed` when left out.
    pub(crate) seed: Option<u64>,
    /// Length of the scenario. It ends with its last event when left out.
    pub(crate) length: Option<Spanned<Seconds>>,
    /// Names for nodes, to be used wherever nodes are named.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[a-zA-Z][a-zA-Z0-9-]{0,31}$"}))]
    pub(crate) groups: Named<Members>,
    /// The events; each takes place once or again and again.
    pub(crate) events: Vec<Spanned<Event>>,
}

/// Nodes: names, groups, or patterns such as `n*`.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Members {
    /// A name, or several with commas between.
    Word(Spanned<String>),
    /// Several.
    Words(Vec<Spanned<String>>),
}

by_shape!(Members, "nodes: a name, a group, a pattern such as `n*`, or a list of them", Text => Word, List => Words);

impl Default for Members {
    fn default() -> Self {
        Self::Words(Vec::new())
    }
}

impl Members {
    pub(crate) fn words(&self) -> &[Spanned<String>] {
        match self {
            Self::Word(word) => std::slice::from_ref(word),
            Self::Words(words) => words,
        }
    }
}

/// Nodes or interfaces, all of them or some drawn from them.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Selection {
    /// One name, or several with commas between.
    Word(Spanned<String>),
    /// Several.
    Words(Vec<Spanned<String>>),
    /// Some of them, drawn anew for every event.
    Choice(Box<Choice>),
}

by_shape!(
    Selection,
    "names, or a choice such as `{choose: 2, of: n*}`",
    Text => Word,
    List => Words,
    Map => Choice,
);

/// Some of many.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a choice: a map of `choose` or `share`, and `of`")]
pub(crate) struct Choice {
    /// A number of them.
    #[schemars(range(min = 1))]
    pub(crate) choose: Option<Spanned<u32>>,
    /// A share of them.
    pub(crate) share: Option<Spanned<Fraction>>,
    /// The set to draw from.
    pub(crate) of: Members,
}

/// An amount, fixed or drawn.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Amount {
    /// Always the same, such as `20ms`; `always` for a duration without an end, `none` for a condition that goes.
    Fixed(Value),
    /// Drawn from a distribution.
    Drawn(Box<Draw>),
}

by_shape!(
    Amount,
    "a value such as `20ms`, or a distribution such as `{uniform: [10ms, 30ms]}`",
    Text => Fixed,
    Map => Drawn,
);

impl Default for Amount {
    fn default() -> Self {
        Self::Fixed(Value::default())
    }
}

/// A probability distribution: exactly one of these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a distribution such as `{exponential: {mean: 60s}}`")]
pub(crate) struct Draw {
    /// Every value between two is as likely: `[10s, 60s]`.
    pub(crate) uniform: Option<Vec<Spanned<Value>>>,
    /// The time between events that do not depend on each other.
    pub(crate) exponential: Option<Exponential>,
    /// Times to failure.
    pub(crate) weibull: Option<Weibull>,
    /// The logarithm is normal.
    pub(crate) lognormal: Option<Lognormal>,
    /// Few are great, and those are very great.
    pub(crate) pareto: Option<Pareto>,
    /// Normal; negative ones are drawn again.
    pub(crate) normal: Option<Normal>,
    /// A file with one duration a line, taken in their order; relative to this file.
    pub(crate) trace: Option<Spanned<String>>,
}

/// Exponential distribution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`{mean: …}`")]
pub(crate) struct Exponential {
    /// The mean.
    pub(crate) mean: Spanned<Value>,
}

/// Weibull distribution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`{shape: …, scale: …}`")]
pub(crate) struct Weibull {
    /// k. Below 1 the failure rate falls with age, above 1 it rises.
    pub(crate) shape: Spanned<Number>,
    /// λ: 63 % are smaller.
    pub(crate) scale: Spanned<Value>,
}

/// Log-normal distribution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`{median: …, sigma: …}`")]
pub(crate) struct Lognormal {
    /// Half are smaller.
    pub(crate) median: Spanned<Value>,
    /// Standard deviation of the natural logarithm.
    pub(crate) sigma: Spanned<Number>,
}

/// Pareto distribution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`{shape: …, minimum: …}`")]
pub(crate) struct Pareto {
    /// α: the smaller, the greater are the great ones.
    pub(crate) shape: Spanned<Number>,
    /// None is smaller.
    pub(crate) minimum: Spanned<Value>,
}

/// Normal distribution, without its negative part.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "`{mean: …, deviation: …}`")]
pub(crate) struct Normal {
    /// The mean.
    pub(crate) mean: Spanned<Value>,
    /// Standard deviation.
    pub(crate) deviation: Spanned<Value>,
}

/// A decimal number greater than 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number greater than 0, such as `1.5`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let plain = text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                let number = text.parse().ok().filter(|number| plain && *number > 0.0);
                number.map(Number).ok_or_else(|| E::invalid_type(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "exclusiveMinimum": 0 })
    }
}

/// Conditions that change: the keys of `slipway set`.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Set(pub(crate) Named<Spanned<Amount>>);

impl JsonSchema for Set {
    fn schema_name() -> Cow<'static, str> {
        "Set".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let amount = generator.subschema_for::<Amount>();
        let names: Vec<_> = LinkConditions::NAMES.iter().chain(Limits::NAMES).collect();
        json_schema!({
            "type": "object",
            "description": "Conditions that change: the keys of `slipway set`.",
            "propertyNames": { "enum": names },
            "additionalProperties": amount,
        })
    }
}

/// The way in which a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// Programs get SIGTERM, and the time of `grace` to end.
    Graceful,
    /// Every program is ended at once; the kernel closes their connections, and peers see resets.
    Soft,
    /// The links go silent first: no packet leaves, and peers see nothing at all.
    Hard,
}

/// The partition that the nodes leave.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Parted {
    /// A partition.
    Partition,
}

/// A program to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a program to run: a map with `command`")]
pub(crate) struct Run {
    /// Where. All nodes when left out.
    pub(crate) nodes: Option<Spanned<Selection>>,
    /// The program and its arguments.
    pub(crate) command: Spanned<Command>,
}

/// A file with values and times.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a trace: a map of `file`, `format` and `of`")]
pub(crate) struct Trace {
    /// Relative to this file.
    pub(crate) file: Spanned<String>,
    /// The format of the file.
    pub(crate) format: Format,
    /// The subject of the trace: a key of `set`, such as `rate`, or `state` (`up`, `down`, `freeze`, `unfreeze`).
    pub(crate) of: Spanned<String>,
    /// Unit of plain numbers in the file.
    pub(crate) unit: Option<Spanned<String>>,
    /// Over how long packet deliveries are counted (mahimahi). `100ms` when left out.
    pub(crate) window: Option<Spanned<Seconds>>,
}

macro_rules! event {
    ($($(#[$about:meta])* $name:literal $field:ident: $type:ty,)*) => {
        /// An event: when, what (exactly one of `set`, `kill`, `stop`, `start`, `restart`, `freeze`, `thaw`, `cut`, `heal`, `partition`, `join`, `flap`, `churn`, `run` and `trace`), and to whom.
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, expecting = "an event: a map such as `{at: 30s, kill: n1}`")]
        pub(crate) struct Event {
            $($(#[$about])* #[serde(rename = $name)] pub(crate) $field: Option<Spanned<$type>>,)*
        }

        impl Event {
            /// The keys that are written, and where.
            pub(crate) fn keys(&self) -> Vec<(&'static str, Span)> {
                let keys = [$(($name, self.$field.as_ref().map(|field| field.at)),)*];
                keys.into_iter().filter_map(|(name, at)| Some((name, at?))).collect()
            }
        }
    };
}

event! {
    /// A name for its random streams, so that they stay the same wherever the entry stands. Its number when left out.
    "name" name: String,
    /// Time of the first, since the beginning of the scenario.
    "at" at: Amount,
    /// Time from each to the next; without `at`, also from the beginning to the first.
    "every" every: Amount,
    /// None is due later.
    "until" until: Seconds,
    /// There are no more than so many.
    #[schemars(range(min = 1))]
    "times" times: u64,
    /// Duration, after which the change is taken back. Until something else changes it when left out.
    "for" hold: Amount,
    /// `true`: random values are drawn once for all nodes or interfaces. `false`: once for each.
    "together" together: bool,
    /// Changes conditions.
    "set" set: Set,
    /// Ends nodes.
    "kill" kill: Selection,
    /// Ends nodes by asking them to.
    "stop" stop: Selection,
    /// Starts nodes that have ended.
    "start" start: Selection,
    /// Stops nodes and starts them.
    "restart" restart: Selection,
    /// Makes nodes stand still.
    "freeze" freeze: Selection,
    /// Lets frozen nodes go on.
    "thaw" thaw: Selection,
    /// Lets nothing through interfaces (`n1:eth0`) or all those of nodes (`n1`).
    "cut" cut: Selection,
    /// Ends a cut.
    "heal" heal: Selection,
    /// Two sides or more that no longer reach each other; `rest` stands for all other nodes.
    "partition" partition: Vec<Spanned<Selection>>,
    /// `partition`: ends all partitions.
    "join" join: Parted,
    /// Interfaces that go up and down.
    "flap" flap: Selection,
    /// Nodes that come and go.
    "churn" churn: Selection,
    /// Runs a program.
    "run" run: Run,
    /// A file lists the changes.
    "trace" trace: Trace,
    /// Nodes: the conditions of all their interfaces, or their limits.
    "nodes" nodes: Selection,
    /// Interfaces under the conditions: `n1:eth0`, or `n1` for all of them.
    "interfaces" interfaces: Selection,
    /// Only on this network; alone, for all interfaces on it.
    "network" network: String,
    /// Conditions both ways between two.
    "between" between: Vec<Members>,
    /// Conditions one way: the senders.
    "from" from: Members,
    /// Conditions one way: the receivers.
    "to" to: Members,
    /// Direction of the packets: sent (`egress`) or received (`ingress`). `egress` when left out.
    "direction" direction: Direction,
    /// Kind of failure. `soft` when left out.
    "how" how: How,
    /// Time that programs have to end after SIGTERM. `10s` when left out.
    "grace" grace: Seconds,
    /// Time for which interfaces are up (flap).
    "up" up: Amount,
    /// Time for which interfaces are down (flap).
    "down" down: Amount,
    /// Time for which nodes are there (churn).
    "availability" availability: Amount,
    /// Time for which nodes are gone (churn).
    "unavailability" unavailability: Amount,
}

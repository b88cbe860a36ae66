//! Scenarios.

use super::link::put_network;
use super::words::{Names, word_or_words};
use crate::yaml::{Map, Yaml};
use slipway_document::units::{ByteRate, Bytes, Cores, Fraction, Rate, Seconds};
use slipway_lab::change::{Keys, NONE};
use slipway_lab::id::NodeId;
use slipway_lab::scenario::{
    Choose, Direction, Due, Effect, Entry, Format, Generator, Kill, LinkAct, NodeAct, PairAct, Pairs, Port, Quantity,
    Scenario, Selection, Setting, TraceFile,
};

pub(super) fn scenario(scenario: &Scenario, names: &Names) -> Map {
    let mut map = Map::default();
    if let Some(seed) = scenario.seed {
        map.bare("seed", seed);
    }
    if let Some(length) = scenario.length {
        map.bare("length", time(length));
    }
    let events = scenario.entries.iter().enumerate().map(|(number, entry)| Yaml::Map(event(number, entry, names)));
    map.put("events", Yaml::List(events.collect()));
    map
}

fn time(due: Due) -> Seconds {
    Seconds(due.0 as f64 / 1e9)
}

fn event(number: usize, entry: &Entry, names: &Names) -> Map {
    let mut map = Map::default();
    if entry.name != (number + 1).to_string() {
        map.text("name", &entry.name);
    }
    let when = &entry.when;
    for (key, generator) in [("at", &when.at), ("every", &when.every)] {
        put_generator(key, generator.as_ref(), Quantity::Time, &mut map);
    }
    if let Some(until) = when.until {
        map.bare("until", time(until));
    }
    if let Some(times) = when.times {
        map.bare("times", times);
    }
    effect(&entry.effect, names, &mut map);
    put_generator("for", entry.hold.as_ref(), Quantity::Time, &mut map);
    map.flag("together", entry.together);
    map
}

fn put_generator(key: &str, generator: Option<&Generator>, quantity: Quantity, map: &mut Map) {
    if let Some(generator) = generator {
        map.put(key, amount(generator, quantity));
    }
}

fn amount(generator: &Generator, quantity: Quantity) -> Yaml {
    let value = |value: f64| Yaml::Bare(exact(quantity, value));
    let number = |number: f64| Yaml::Bare(number.to_string());
    let (name, parts) = match generator {
        Generator::Always => return Yaml::Bare("always".to_owned()),
        Generator::Constant(constant) => return value(*constant),
        Generator::Trace(path) => {
            let mut map = Map::default();
            map.put("trace", super::text_of(path));
            return Yaml::Map(map);
        }
        Generator::Uniform { least, most } => {
            let mut map = Map::default();
            map.put("uniform", Yaml::List(vec![value(*least), value(*most)]));
            return Yaml::Map(map);
        }
        Generator::Exponential { mean } => ("exponential", vec![("mean", value(*mean))]),
        Generator::Weibull { shape, scale } => ("weibull", vec![("shape", number(*shape)), ("scale", value(*scale))]),
        Generator::LogNormal { median, sigma } => {
            ("lognormal", vec![("median", value(*median)), ("sigma", number(*sigma))])
        }
        Generator::Pareto { shape, least } => ("pareto", vec![("shape", number(*shape)), ("minimum", value(*least))]),
        Generator::Normal { mean, deviation } => {
            ("normal", vec![("mean", value(*mean)), ("deviation", value(*deviation))])
        }
    };
    let mut of = Map::default();
    for (key, value) in parts {
        of.put(key, value);
    }
    let mut map = Map::default();
    map.map(name, of);
    Yaml::Map(map)
}

/// In the written form, to the last bit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "each was read from a whole number of its unit"
)]
fn exact(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Time => Seconds(value).to_string(),
        Quantity::Share => Fraction(value).to_string(),
        Quantity::Cpu => Cores(value).to_string(),
        Quantity::Rate => Rate(value as u64).to_string(),
        Quantity::Bytes => Bytes(value as u64).to_string(),
        Quantity::ByteRate => ByteRate(value as u64).to_string(),
        Quantity::Count => (value as u32).to_string(),
    }
}

fn effect(effect: &Effect, names: &Names, map: &mut Map) {
    match effect {
        Effect::Nodes { on, act } => nodes(on, act, names, map),
        Effect::Links { on, act } => links(on, act, names, map),
        Effect::Pairs { pairs, act } => {
            match act {
                PairAct::Set(setting) => put_setting(setting, map),
                PairAct::Trace(trace) => put_trace(trace, map),
            }
            put_pairs(pairs, names, map);
        }
        Effect::Partition { sides, rest } => {
            // In a list of its own, a node called `rest` is a node.
            let side = |side: &Selection<NodeId>| selection(side.choose, Yaml::texts(names.words(&side.among)));
            let rest = rest.then(|| Yaml::Text("rest".to_owned()));
            map.put("partition", Yaml::List(sides.iter().map(side).chain(rest).collect()));
        }
        Effect::Join => map.text("join", "partition"),
    }
}

/// All of them, or some drawn from them.
fn selection(choose: Option<Choose>, of: Yaml) -> Yaml {
    let Some(choose) = choose else { return of };
    let mut map = Map::default();
    match choose {
        Choose::Count(count) => map.bare("choose", count),
        Choose::Share(share) => map.bare("share", share),
    }
    map.put("of", of);
    Yaml::Map(map)
}

fn nodes(on: &Selection<NodeId>, act: &NodeAct, names: &Names, map: &mut Map) {
    let on = selection(on.choose, names.members(&on.among));
    match act {
        NodeAct::Set(setting) => {
            put_setting(setting, map);
            map.put("nodes", on);
        }
        NodeAct::Kill(how) => {
            map.put("kill", on);
            put_how(*how, map);
        }
        NodeAct::Start => map.put("start", on),
        NodeAct::Restart { grace } => {
            map.put("restart", on);
            map.bare("grace", grace);
        }
        NodeAct::Freeze => map.put("freeze", on),
        NodeAct::Thaw => map.put("thaw", on),
        NodeAct::Churn { how, availability, unavailability } => {
            map.put("churn", on);
            map.put("availability", amount(availability, Quantity::Time));
            map.put("unavailability", amount(unavailability, Quantity::Time));
            put_how(*how, map);
        }
        NodeAct::Run { command } => {
            let mut run = Map::default();
            run.put("nodes", on);
            run.put("command", Yaml::texts(command));
            map.map("run", run);
        }
        NodeAct::Trace { trace, how } => {
            put_trace(trace, map);
            map.put("nodes", on);
            put_how(*how, map);
        }
    }
}

fn put_how(how: Kill, map: &mut Map) {
    match how {
        Kill::Soft => {}
        Kill::Hard => map.text("how", "hard"),
        Kill::Graceful { grace } => {
            map.text("how", "graceful");
            map.bare("grace", grace);
        }
    }
}

fn links(on: &Selection<Port>, act: &LinkAct, names: &Names, map: &mut Map) {
    let on = selection(on.choose, word_or_words(ports(&on.among, names)));
    match act {
        LinkAct::Set { direction, setting } => {
            put_setting(setting, map);
            map.put("interfaces", on);
            put_direction(*direction, map);
        }
        LinkAct::Cut => map.put("cut", on),
        LinkAct::Heal => map.put("heal", on),
        LinkAct::Flap { up, down } => {
            map.put("flap", on);
            map.put("up", amount(up, Quantity::Time));
            map.put("down", amount(down, Quantity::Time));
        }
        LinkAct::Trace { direction, trace } => {
            put_trace(trace, map);
            map.put("interfaces", on);
            put_direction(*direction, map);
        }
    }
}

fn put_direction(direction: Direction, map: &mut Map) {
    if direction == Direction::Ingress {
        map.text("direction", "ingress");
    }
}

/// Interfaces: nodes with all that they have by their names, others each by its own.
fn ports(ports: &[Port], names: &Names) -> Vec<String> {
    let mut words = Vec::new();
    let mut whole: Vec<NodeId> = Vec::new();
    let mut rest = ports;
    while let Some(&(node, slot)) = rest.first() {
        let all = names.lab.nodes[node].interfaces.len();
        if rest.len() >= all && rest[..all].iter().copied().eq((0..all).map(|slot| (node, slot))) {
            whole.push(node);
            rest = &rest[all..];
        } else {
            words.extend(names.words(&std::mem::take(&mut whole)));
            words.push(names.lab.port_name((node, slot)));
            rest = &rest[1..];
        }
    }
    words.extend(names.words(&whole));
    words
}

fn put_pairs(pairs: &Pairs, names: &Names, map: &mut Map) {
    let (from, to) = (names.members(&pairs.from), names.members(&pairs.to));
    if pairs.both {
        map.put("between", Yaml::List(vec![from, to]));
    } else {
        map.put("from", from);
        map.put("to", to);
    }
    put_network(pairs.network, names, map);
}

fn put_setting<T: Keys>(setting: &Setting<T>, map: &mut Map) {
    let mut keys = Map::default();
    for (key, value) in setting.change.set.words() {
        keys.bare(key, value);
    }
    for key in &setting.change.clear {
        keys.bare(key, NONE);
    }
    for drawn in &setting.drawn {
        keys.put(&drawn.key, amount(&drawn.generator, drawn.quantity));
    }
    map.map("set", keys);
}

fn put_trace(trace: &TraceFile, map: &mut Map) {
    let mut file = Map::default();
    file.put("file", super::text_of(&trace.path));
    let format = match trace.format {
        Format::Distem => "distem",
        Format::Csv => "csv",
        Format::Mahimahi => "mahimahi",
    };
    file.text("format", format);
    file.text("of", &trace.of);
    if let Some(unit) = &trace.unit {
        file.text("unit", unit);
    }
    if trace.format == Format::Mahimahi {
        file.bare("window", trace.window);
    }
    map.map("trace", file);
}

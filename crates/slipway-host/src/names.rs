//! Names of facts, for formulas and texts of rules.

mod table;

use serde::{Deserialize, Serialize};

use crate::facts::{Block, Facts, Interrupt, Nic, SYSCTLS};
use crate::formula::Value;
use crate::target::Target;

/// The things that a rule looks at, one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// The machine, once.
    Machine,
    /// Each interface with a link.
    Nic,
    /// Each interrupt of such an interface.
    Irq,
    /// Each block device.
    Block,
}

/// A thing that a rule looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    Machine,
    Nic(&'a Nic),
    Irq(&'a Nic, &'a Interrupt),
    Block(&'a Block),
}

/// Forms of a value in a text: `{bdp:size}`.
pub(crate) const FORMS: [&str; 3] = ["size", "rate", "time"];

/// The prefix of kernel parameters.
const SYSCTL: &str = "sysctl.";

/// Whether there is a fact of that name for such things.
pub(crate) fn is_known(per: Per, name: &str) -> bool {
    match name.strip_prefix(SYSCTL) {
        Some(parameter) => SYSCTLS.contains(&parameter),
        None => all(per).contains(&name),
    }
}

/// Names of the facts that a rule of such things can read, but for `sysctl.NAME`.
#[must_use]
pub fn all(per: Per) -> Vec<&'static str> {
    let mut names: Vec<&str> = table::TARGET.iter().map(|(name, _)| *name).collect();
    names.extend(table::MACHINE.iter().map(|(name, _)| *name));
    if matches!(per, Per::Nic | Per::Irq) {
        names.extend(table::NIC.iter().map(|(name, _)| *name));
    }
    if per == Per::Irq {
        names.extend(table::IRQ.iter().map(|(name, _)| *name));
    }
    if per == Per::Block {
        names.extend(table::BLOCK.iter().map(|(name, _)| *name));
    }
    names
}

/// The value of a fact.
pub(crate) fn value(facts: &Facts, target: &Target, subject: Subject<'_>, name: &str) -> Value {
    if let Some(parameter) = name.strip_prefix(SYSCTL) {
        return match facts.sysctls.get(parameter).map(crate::facts::Fact::as_result) {
            Some(Ok(text)) => Value::read(text),
            Some(Err(reason)) => Value::unknown(reason),
            None => Value::unknown(format!("Slipway does not read {parameter}")),
        };
    }
    let found =
        find(table::TARGET, name).map(|of| of(target)).or_else(|| find(table::MACHINE, name).map(|of| of(facts)));
    let found = found.or_else(|| match subject {
        Subject::Machine => None,
        Subject::Nic(nic) => find(table::NIC, name).map(|of| of(nic)),
        Subject::Irq(nic, irq) => {
            find(table::NIC, name).map(|of| of(nic)).or_else(|| find(table::IRQ, name).map(|of| of(nic, irq)))
        }
        Subject::Block(block) => find(table::BLOCK, name).map(|of| of(block)),
    });
    found.unwrap_or_else(|| Value::unknown(format!("there is no fact `{name}`")))
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, of)| *of)
}

/// The places `{…}` in a text, without their braces.
pub(crate) fn places(text: &str) -> Vec<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(place, _)| place)).collect()
}

/// The text with its places filled.
pub(crate) fn fill(text: &str, value: &dyn Fn(&str) -> Value) -> String {
    let mut filled = String::new();
    let mut parts = text.split('{');
    filled.push_str(parts.next().unwrap_or_default());
    for part in parts {
        match part.split_once('}') {
            Some((place, rest)) => {
                let (name, form) = place.split_once(':').unwrap_or((place, ""));
                filled.push_str(&shown(&value(name), form));
                filled.push_str(rest);
            }
            None => filled.push_str(part),
        }
    }
    filled
}

fn shown(value: &Value, form: &str) -> String {
    let scaled = |number: f64, units: &[(&str, f64)]| {
        let (unit, scale) =
            units.iter().find(|(_, scale)| number.abs() >= *scale).or(units.last()).unwrap_or(&("", 1.0));
        let number = (number / scale * 10.0).round() / 10.0;
        format!("{number} {unit}")
    };
    match (value, form) {
        (Value::Number(bytes), "size") => {
            scaled(*bytes, &[("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1024.0), ("bytes", 1.0)])
        }
        (Value::Number(rate), "rate") => scaled(*rate, &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)]),
        (Value::Number(time), "time") => scaled(*time, &[("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)]),
        (Value::Unknown(_), _) => "an unknown value".to_owned(),
        (value, _) => value.to_string(),
    }
}

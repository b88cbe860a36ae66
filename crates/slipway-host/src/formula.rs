//! Formulas of rules: numbers with units, names of facts, a few functions. Every formula ends, with a value or with the reason why
//! there is none.
//!
//! ```
//! use slipway_host::formula::{Formula, Value};
//!
//! let formula: Formula = "clamp(2 * bdp, 4MiB, 2GiB)".parse().expect("a formula");
//! let value = formula.value(&|name: &str| match name {
//!     "bdp" => Value::Number(100e6),
//!     _ => Value::unknown("nobody knows"),
//! });
//! assert_eq!(value, Value::Number(200e6));
//! ```

mod calls;
mod parse;
mod value;

use std::str::FromStr;

pub use parse::FormulaError;
pub use value::Value;

use calls::Call;

/// A formula, read and known to be well formed.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    root: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Value(Value),
    Name(String),
    Not(Box<Node>),
    Both(Operator, Box<Node>, Box<Node>),
    Call(Call, Vec<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
    Differs,
    Plus,
    Minus,
    Times,
    Over,
}

impl Formula {
    /// The value, with facts that `fact` gives by name.
    #[must_use]
    pub fn value(&self, fact: &dyn Fn(&str) -> Value) -> Value {
        self.root.value(fact)
    }

    /// Names of facts that the formula reads, in its order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.names(&mut names);
        names
    }
}

impl FromStr for Formula {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        parse::parse(text).map(|root| Self { root })
    }
}

impl Node {
    fn names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Value(_) => {}
            Self::Name(name) => names.push(name),
            Self::Not(node) => node.names(names),
            Self::Both(_, left, right) => {
                left.names(names);
                right.names(names);
            }
            Self::Call(_, of) => of.iter().for_each(|node| node.names(names)),
        }
    }

    fn value(&self, fact: &dyn Fn(&str) -> Value) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Name(name) => fact(name),
            Self::Not(node) => node.value(fact).truth().map_or_else(Value::Unknown, |truth| Value::Truth(!truth)),
            Self::Call(call, of) => call.value(of, fact),
            // One known side can decide, whatever the other is.
            Self::Both(Operator::And, left, right) => either(left, right, fact, false),
            Self::Both(Operator::Or, left, right) => either(left, right, fact, true),
            Self::Both(operator, left, right) => {
                operator.of(&left.value(fact), &right.value(fact)).unwrap_or_else(Value::Unknown)
            }
        }
    }
}

/// `or` (`decisive` is true) and `and` (it is false).
fn either(left: &Node, right: &Node, fact: &dyn Fn(&str) -> Value, decisive: bool) -> Value {
    match (left.value(fact).truth(), right.value(fact).truth()) {
        (Ok(truth), _) | (_, Ok(truth)) if truth == decisive => Value::Truth(decisive),
        (Err(reason), _) | (_, Err(reason)) => Value::Unknown(reason),
        _ => Value::Truth(!decisive),
    }
}

impl Operator {
    fn of(self, left: &Value, right: &Value) -> Result<Value, String> {
        if matches!(self, Self::Equal | Self::Differs) {
            return Ok(Value::Truth(left.equals(right)? == (self == Self::Equal)));
        }
        let (left, right) = (left.number()?, right.number()?);
        Ok(match self {
            Self::Less => Value::Truth(left < right),
            Self::AtMost => Value::Truth(left <= right),
            Self::More => Value::Truth(left > right),
            Self::AtLeast => Value::Truth(left >= right),
            Self::Plus => Value::of(left + right),
            Self::Minus => Value::of(left - right),
            Self::Times => Value::of(left * right),
            _ => Value::of(left / right),
        })
    }
}

#[cfg(test)]
mod tests;

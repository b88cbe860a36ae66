//! Conditions on a point's values, such as `speed > 3` or `glass = double`.

use std::cmp::Ordering;

use crate::model::Variable;
use crate::value::Value;

/// A condition on the value of one variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Index of the variable.
    variable: usize,
    relation: Relation,
    value: String,
}

/// A relation between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    Differs,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Longer words first: `<=` begins with `<`.
const RELATIONS: [(&str, Relation); 6] = [
    ("!=", Relation::Differs),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("=", Relation::Equal),
    ("<", Relation::Less),
    (">", Relation::Greater),
];

/// The reason why a text is no condition. Each fits "failed to …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has no relation.
    #[error(
        "read the condition `{0}`: it compares nothing\nHint: write for example `speed > 3` or `glass = double`; there are =, !=, <, <=, > and >="
    )]
    Form(String),
    /// There is no such variable.
    #[error("read the condition `{text}`: there is no variable `{name}`\nHint: {hint}")]
    Variable {
        /// The condition.
        text: String,
        /// The name in it.
        name: String,
        /// The names that there are.
        hint: String,
    },
    /// Texts have no order.
    #[error(
        "read the condition `{text}`: `{value}` is no number, and texts have no order\nHint: = and != compare texts"
    )]
    Order {
        /// The condition.
        text: String,
        /// The value in it.
        value: String,
    },
}

impl Condition {
    /// Reads a condition on one of these variables.
    ///
    /// # Errors
    /// Where the text is none.
    pub fn read(text: &str, variables: &[Variable]) -> Result<Self, ConditionError> {
        let form = || ConditionError::Form(text.to_owned());
        let at = text.find(['=', '!', '<', '>']).ok_or_else(form)?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let found = RELATIONS.iter().find_map(|(word, relation)| Some((*relation, rest.strip_prefix(word)?.trim())));
        let (relation, value) = found.filter(|(_, value)| !value.is_empty()).ok_or_else(form)?;
        let Some(variable) = variables.iter().position(|variable| variable.name == name) else {
            let names: Vec<&str> = variables.iter().map(|variable| variable.name.as_str()).collect();
            let hint = slipway_document::suggest(name, &names);
            return Err(ConditionError::Variable { text: text.to_owned(), name: name.to_owned(), hint });
        };
        if !matches!(relation, Relation::Equal | Relation::Differs) && number(value).is_none() {
            return Err(ConditionError::Order { text: text.to_owned(), value: value.to_owned() });
        }
        Ok(Self { variable, relation, value: value.to_owned() })
    }

    /// Reads conditions that must all hold.
    ///
    /// # Errors
    /// The first text that is none.
    pub fn read_all(texts: &[String], variables: &[Variable]) -> Result<Vec<Self>, ConditionError> {
        texts.iter().map(|text| Self::read(text, variables)).collect()
    }

    /// Whether a point's values, in the variables' order, meet the condition. A text is neither less nor greater than a number.
    #[must_use]
    pub fn holds(&self, values: &[Value]) -> bool {
        let Some(found) = values.get(self.variable) else { return false };
        let numbers = found.number().filter(|_| !matches!(found, Value::Bool(_))).zip(number(&self.value));
        let is_equal = || {
            numbers.map_or_else(
                || found.to_string() == self.value,
                |(found, value)| found.partial_cmp(&value).is_some_and(Ordering::is_eq),
            )
        };
        let compare = |is: fn(&f64, &f64) -> bool| numbers.is_some_and(|(found, value)| is(&found, &value));
        match self.relation {
            Relation::Equal => is_equal(),
            Relation::Differs => !is_equal(),
            Relation::Less => compare(f64::lt),
            Relation::AtMost => compare(f64::le),
            Relation::Greater => compare(f64::gt),
            Relation::AtLeast => compare(f64::ge),
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn variables() -> Vec<Variable> {
        let text = "{run: x, variables: {speed: {uniform: [0, 9]}, n: {integer: [1, 9]}, glass: [single, double], on: [true, false]}}";
        crate::parse("c.yaml", text, Path::new("/")).expect("a campaign").variables
    }

    #[test]
    fn values_are_compared_as_what_they_are() {
        let point = [Value::Number(3.5), Value::Integer(4), Value::Text("double".into()), Value::Bool(true)];
        let holds = |text| Condition::read(text, &variables()).expect("a condition").holds(&point);
        for text in [
            "speed > 3",
            "speed>=3.5",
            "speed <= 3.5",
            "speed != 3",
            "n = 4",
            "n=4.0",
            "n < 5e0",
            "glass = double",
            "on = true",
            "glass != single",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in
            ["speed > 3.5", "speed < 3.5", "n != 4", "glass = doubl", "glass < 3", "on = false", "on = 1", "on > 0"]
        {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_next_step() {
        let error = |text| Condition::read(text, &variables()).expect_err("no condition").to_string();
        for text in ["", "speed", "speed >", "speed ! 3", "speed ~ 3"] {
            assert!(error(text).contains("it compares nothing"), "{text}");
        }
        assert!(error("sped > 3").contains("did you mean `speed`?"));
        assert!(error("glass > single").contains("texts have no order"));
    }
}

//! Texts in which `{variable}` stands for a point's value.

use std::fmt::Write as _;

use crate::value::Value;

/// A text with places for values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Index of a variable.
    Variable(usize),
}

impl Template {
    /// Reads a text. `{{` and `}}` stand for single braces.
    ///
    /// # Errors
    /// The name of the first variable that `variables` lacks.
    pub fn read(text: &str, variables: &[String]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            let brace = &from[..1];
            let name = from[1..].split('}').next().unwrap_or_default();
            if from[1..].starts_with(brace) {
                plain.push_str(brace);
                rest = &from[2..];
            } else if brace == "{" && is_name(name) && from.len() > name.len() + 1 {
                let variable = variables.iter().position(|known| known == name).ok_or_else(|| name.to_owned())?;
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Variable(variable));
                rest = &from[name.len() + 2..];
            } else {
                // A brace on its own is the program's, such as one of awk or JSON.
                plain.push_str(brace);
                rest = &from[1..];
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(Self(pieces))
    }

    /// A text without any place for a value.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self(vec![Piece::Text(text.into())])
    }

    /// The text at a point with these values, one for each variable.
    ///
    /// # Panics
    /// With fewer values than the template's variables.
    #[must_use]
    pub fn fill(&self, values: &[Value]) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable(index) => write!(text, "{}", values[*index]).expect("a String takes all"),
            }
        }
        text
    }
}

/// Longest name of a variable or a result. `OpenStudio`'s are `measure.argument`.
const LONGEST: usize = 128;

/// Whether a text can name a variable or a result: a letter or `_`, then letters, digits, `_` and `.`; at most 128.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.len() <= LONGEST && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let variables = ["x".to_owned(), "name".to_owned()];
        Template::read(text, &variables).map(|read| read.fill(&[Value::Number(0.5), Value::Text("b".into())]))
    }

    #[test]
    fn variables_are_replaced_and_other_braces_stay() {
        assert_eq!(filled("-x {x} --{name}={name}").as_deref(), Ok("-x 0.5 --b=b"));
        assert_eq!(filled("awk '{ print $1 }' {{x}} {").as_deref(), Ok("awk '{ print $1 }' {x} {"));
        assert_eq!(filled("{y}"), Err("y".to_owned()));
    }
}

//! From text to formula.
//!
//! ```text
//! either  = both { "or" both }          both  = not { "and" not }      not = "not" not | compare
//! compare = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum     = product { ("+" | "-") product }                           product = atom { ("*" | "/") atom }
//! atom    = number [unit] | 'text' | on | off | name | function "(" either { "," either } ")" | "(" either ")"
//! ```

use super::calls::Call;
use super::{Node, Operator, Value};

/// Longest formula, bytes.
const LONGEST: usize = 1024;
/// Deepest nesting of parentheses and calls.
const DEEPEST: usize = 24;

/// Units and their sizes in bytes, seconds or bits per second.
const UNITS: [(&str, f64); 14] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("MHz", 1e6),
    ("GHz", 1e9),
];

/// A text that is no formula.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormulaError {
    /// The fault.
    pub message: String,
    /// The byte of the formula at which it shows.
    pub at: usize,
    /// The next step.
    pub help: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Number(f64),
    Text(String),
    Word(String),
    Sign(&'static str),
}

const SIGNS: [&str; 13] = ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ","];

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    depth: usize,
}

pub(super) fn parse(text: &str) -> Result<Node, FormulaError> {
    if text.len() > LONGEST {
        let message = format!("a formula of {} bytes; the longest has {LONGEST}", text.len());
        return Err(FormulaError { message, at: 0, help: "write a part of it under `let`".to_owned() });
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, end: text.len(), depth: 0 };
    let node = parser.either()?;
    match parser.tokens.get(parser.next) {
        None => Ok(node),
        Some((at, _)) => {
            Err(wrong(*at, "an operator is missing here", "join values with + - * / < <= > >= == != and or"))
        }
    }
}

fn wrong(at: usize, message: impl Into<String>, help: impl Into<String>) -> FormulaError {
    FormulaError { message: message.into(), at, help: help.into() }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FormulaError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let until = |end: fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
        let (token, length) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if first.is_ascii_digit() {
            let digits = until(|c| !c.is_ascii_digit() && c != '.');
            let letters = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
            (number(at, &rest[..digits], &rest[digits..digits + letters])?, digits + letters)
        } else if first == '\'' {
            let Some(length) = rest[1..].find('\'') else {
                return Err(wrong(at, "a text without its end", "close it with '"));
            };
            (Token::Text(rest[1..=length].to_owned()), length + 2)
        } else if first.is_ascii_alphabetic() {
            let length = until(|c| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
            (Token::Word(rest[..length].to_owned()), length)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return Err(wrong(at, format!("`{first}` does not belong in a formula"), "texts stand in '…'"));
        };
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

fn number(at: usize, digits: &str, unit: &str) -> Result<Token, FormulaError> {
    let scale = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() => 1.0,
        None => {
            let units: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
            return Err(wrong(at, format!("`{unit}` is no unit"), slipway_document::suggest(unit, &units)));
        }
    };
    match digits.parse::<f64>() {
        Ok(number) if number < 1e18 => Ok(Token::Number(number * scale)),
        _ => {
            Err(wrong(at, format!("`{digits}` is no number"), "write digits, and one point where there is a fraction"))
        }
    }
}

impl Parser {
    fn takes(&mut self, wanted: &str) -> bool {
        let found = match self.tokens.get(self.next) {
            Some((_, Token::Sign(sign))) => *sign == wanted,
            Some((_, Token::Word(word))) => word == wanted,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn operator(&mut self, known: &[(&str, Operator)]) -> Option<Operator> {
        known.iter().find(|(word, _)| self.takes(word)).map(|(_, operator)| *operator)
    }

    fn chain(
        &mut self,
        known: &[(&str, Operator)],
        part: fn(&mut Self) -> Result<Node, FormulaError>,
    ) -> Result<Node, FormulaError> {
        let mut left = part(self)?;
        while let Some(operator) = self.operator(known) {
            left = Node::Both(operator, Box::new(left), Box::new(part(self)?));
        }
        Ok(left)
    }

    fn either(&mut self) -> Result<Node, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(wrong(self.place(), "nested too deep", "write a part of it under `let`"));
        }
        let node = self.chain(&[("or", Operator::Or)], Self::both);
        self.depth -= 1;
        node
    }

    fn both(&mut self) -> Result<Node, FormulaError> {
        self.chain(&[("and", Operator::And)], Self::not)
    }

    fn not(&mut self) -> Result<Node, FormulaError> {
        let mut turns = false;
        while self.takes("not") {
            turns = !turns;
        }
        let node = self.compare()?;
        Ok(if turns { Node::Not(Box::new(node)) } else { node })
    }

    fn compare(&mut self) -> Result<Node, FormulaError> {
        let left = self.sum()?;
        let known = [
            ("<=", Operator::AtMost),
            (">=", Operator::AtLeast),
            ("==", Operator::Equal),
            ("!=", Operator::Differs),
            ("<", Operator::Less),
            (">", Operator::More),
        ];
        match self.operator(&known) {
            Some(operator) => Ok(Node::Both(operator, Box::new(left), Box::new(self.sum()?))),
            None => Ok(left),
        }
    }

    fn sum(&mut self) -> Result<Node, FormulaError> {
        self.chain(&[("+", Operator::Plus), ("-", Operator::Minus)], Self::product)
    }

    fn product(&mut self) -> Result<Node, FormulaError> {
        self.chain(&[("*", Operator::Times), ("/", Operator::Over)], Self::atom)
    }

    fn atom(&mut self) -> Result<Node, FormulaError> {
        let at = self.place();
        let Some((_, token)) = self.tokens.get(self.next).cloned() else {
            return Err(wrong(at, "the formula ends where a value belongs", "write a number, a text in '…' or a fact"));
        };
        self.next += 1;
        match token {
            Token::Number(number) => Ok(Node::Value(Value::Number(number))),
            Token::Text(text) => Ok(Node::Value(Value::Text(text))),
            Token::Word(word) if word == "on" || word == "off" => Ok(Node::Value(Value::Truth(word == "on"))),
            Token::Word(word) if ["and", "or", "not"].contains(&word.as_str()) => Err(wrong(
                at,
                format!("`{word}` stands where a value belongs"),
                "write a number, a text in '…' or a fact",
            )),
            Token::Word(word) if self.takes("(") => self.call(at, &word),
            Token::Word(word) => Ok(Node::Name(word)),
            Token::Sign("(") => {
                let node = self.either()?;
                self.close()?;
                Ok(node)
            }
            Token::Sign(sign) => Err(wrong(
                at,
                format!("`{sign}` stands where a value belongs"),
                "write a number, a text in '…' or a fact",
            )),
        }
    }

    fn call(&mut self, at: usize, word: &str) -> Result<Node, FormulaError> {
        let Some((_, call, fewest, most)) = Call::ALL.iter().find(|(name, ..)| *name == word) else {
            let names: Vec<&str> = Call::ALL.iter().map(|(name, ..)| *name).collect();
            return Err(wrong(at, format!("there is no function `{word}`"), slipway_document::suggest(word, &names)));
        };
        let mut of = vec![self.either()?];
        while self.takes(",") {
            of.push(self.either()?);
        }
        self.close()?;
        if of.len() < *fewest || of.len() > *most {
            let takes = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
            return Err(wrong(at, format!("`{word}` with {} arguments", of.len()), format!("it takes {takes}")));
        }
        Ok(Node::Call(*call, of))
    }

    fn close(&mut self) -> Result<(), FormulaError> {
        if self.takes(")") { Ok(()) } else { Err(wrong(self.place(), "a `)` is missing here", "close each `(`")) }
    }

    fn place(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }
}

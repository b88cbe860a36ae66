//! serde's view of the tree.

use std::cell::RefCell;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::Error;
use super::spanned::SPANNED;
use crate::errors::{Report, Span};
use crate::shape::{SHAPED, Shape};
use crate::tree::{Key, Kind, Node, NodeId, State, Tree};

/// A node being read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'de, 'r> {
    pub(super) tree: &'de Tree,
    pub(super) report: &'r RefCell<Report>,
    pub(super) id: NodeId,
}

impl<'de> Reader<'de, '_> {
    fn node(self) -> &'de Node {
        self.tree.node(self.id)
    }

    fn is_void(self) -> bool {
        self.node().state.get() != State::Good
    }

    fn is_null(self) -> bool {
        let written = match &self.node().kind {
            Kind::Text { text, plain } => *plain && matches!(text.as_str(), "" | "~" | "null"),
            _ => false,
        };
        written || self.is_void()
    }

    /// The text, unless this is a list, a map, or nothing.
    fn text(self) -> Option<&'de str> {
        match &self.node().kind {
            Kind::Text { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    fn found(self) -> Unexpected<'de> {
        if self.is_null() {
            return Unexpected::Unit;
        }
        match &self.node().kind {
            Kind::Text { text, .. } => Unexpected::Str(text),
            Kind::List(_) => Unexpected::Seq,
            Kind::Map(_) => Unexpected::Map,
        }
    }

    fn shape(self) -> Shape {
        match &self.node().kind {
            _ if self.is_null() => Shape::Nothing,
            Kind::List(_) => Shape::List,
            Kind::Map(_) => Shape::Map,
            Kind::Text { text, plain: true } if matches!(text.as_str(), "true" | "false") => Shape::Bool,
            Kind::Text { text, plain: true } if text.bytes().all(|byte| byte.is_ascii_digit()) => Shape::Number,
            Kind::Text { text, plain: true } if is_decimal(text) => Shape::Decimal,
            Kind::Text { .. } => Shape::Text,
        }
    }

    fn mismatch(self, expected: &dyn Expected) -> Error {
        de::Error::invalid_type(self.found(), expected)
    }

    fn number<T: std::str::FromStr>(self, expected: &dyn Expected) -> Result<T, Error> {
        // `+5` and `٣` are numbers to some parsers; here a number is its digits.
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        self.text().filter(digits).and_then(|text| text.parse().ok()).ok_or_else(|| self.mismatch(expected))
    }

    /// A number with a sign or a fraction.
    fn decimal<T: std::str::FromStr>(self, expected: &str) -> Result<T, Error> {
        let text = self.text().filter(|text| is_decimal(text));
        text.and_then(|text| text.parse().ok()).ok_or_else(|| self.mismatch(&expected))
    }

    fn map<V: Visitor<'de>>(self, visitor: V, known: Option<&'static [&'static str]>) -> Result<V::Value, Error> {
        match &self.node().kind {
            Kind::Map(entries) if !self.is_void() => {
                if let Some(known) = known {
                    self.report_unknown(entries, known);
                }
                visitor.visit_map(Entries { reader: self, rest: entries.iter(), value: None })
            }
            _ if self.is_null() => visitor.visit_unit(),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn report_unknown(self, entries: &[(Key, NodeId)], known: &'static [&'static str]) {
        for (key, value) in entries {
            let state = &self.tree.node(*value).state;
            if state.get() != State::Unknown && !known.contains(&key.text.as_str()) {
                state.set(State::Unknown);
                let Error { message, help, .. } = de::Error::unknown_field(&key.text, known);
                self.report.borrow_mut().add(key.at, message, help.unwrap_or_default());
            }
        }
    }
}

/// Whether a text is a number in the form of JSON's (RFC 8259, section 6), and finite.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = |text| str::strip_prefix(text, ['-', '+']).unwrap_or(text);
    digits(whole.strip_prefix('-').unwrap_or(whole))
        && digits(fraction)
        && digits(unsigned(exponent))
        && text.parse().is_ok_and(f64::is_finite)
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let expected = format!("a whole number from 0 to {}", <$type>::MAX);
            visitor.$visit(self.number::<$type>(&expected.as_str())?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node().kind {
            _ if self.is_null() => visitor.visit_unit(),
            Kind::Text { text, plain: true } => match (text.as_str(), text.parse()) {
                ("true", _) => visitor.visit_bool(true),
                ("false", _) => visitor.visit_bool(false),
                (_, Ok(number)) => visitor.visit_u64(number),
                _ => visitor.visit_borrowed_str(text),
            },
            Kind::Text { text, .. } => visitor.visit_borrowed_str(text),
            Kind::List(items) => visitor.visit_seq(Items { reader: self, rest: items.iter() }),
            Kind::Map(_) => self.map(visitor, None),
        }
    }

    numbers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(self.decimal("a whole number")?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(self.decimal("a number such as `20`, `0.5` or `-1e-3`")?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text() {
            Some("true") => visitor.visit_bool(true),
            Some("false") => visitor.visit_bool(false),
            _ => Err(self.mismatch(&"`true` or `false`")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text() {
            Some(text) => visitor.visit_borrowed_str(text),
            None => Err(self.mismatch(&"a text, in quotes where it has special characters")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node().kind {
            Kind::List(items) if !self.is_void() => visitor.visit_seq(Items { reader: self, rest: items.iter() }),
            _ => Err(self.mismatch(&"a list: `[a, b]`, or one `- a` a line")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.map(visitor, None)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.map(visitor, Some(fields))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == SHAPED {
            let shape = self.shape().among(variants).ok_or_else(|| self.mismatch(&visitor))?;
            return visitor.visit_seq(Parts { before: vec![Part::Word(shape)].into_iter(), value: Some(self) });
        }
        match self.text() {
            Some(text) => visitor.visit_enum(text.into_deserializer()),
            None => Err(self.mismatch(&format!("one of: {}", variants.join(", ")).as_str())),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == SPANNED {
            return visitor.visit_seq(Parts::placed(self.node().at, self.node().end, self));
        }
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items<'de, 'r> {
    reader: Reader<'de, 'r>,
    rest: std::slice::Iter<'de, NodeId>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let mut good = self.rest.by_ref().filter(|id| self.reader.tree.node(**id).state.get() == State::Good);
        let Some(&id) = good.next() else {
            return Ok(None);
        };
        seed.deserialize(Reader { id, ..self.reader }).map(Some).map_err(|error| error.at(id))
    }
}

struct Entries<'de, 'r> {
    reader: Reader<'de, 'r>,
    rest: std::slice::Iter<'de, (Key, NodeId)>,
    value: Option<NodeId>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let tree = self.reader.tree;
        let Some((key, id)) = self.rest.by_ref().find(|(_, id)| tree.node(*id).state.get() != State::Unknown) else {
            return Ok(None);
        };
        self.value = Some(*id);
        seed.deserialize(KeyReader { key, end: tree.node(*id).end }).map(Some).map_err(|error| error.at(*id))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let id = self.value.take().ok_or_else(|| Error::new("a value was read before its key", "report this"))?;
        seed.deserialize(Reader { id, ..self.reader }).map_err(|error| error.at(id))
    }
}

/// A key being read.
struct KeyReader<'de> {
    key: &'de Key,
    /// The end of its value, in bytes from the beginning.
    end: usize,
}

impl<'de> Deserializer<'de> for KeyReader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(&self.key.text)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        if name == SPANNED {
            let text = self.key.text.as_str().into_deserializer();
            return visitor.visit_seq(Parts::<StrDeserializer<'_, Error>>::placed(self.key.at, self.end, text));
        }
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// The input of a [`super::Spanned`] or a type [`by_shape`](crate::by_shape): the place or the shape, then the value.
struct Parts<D> {
    before: std::vec::IntoIter<Part>,
    value: Option<D>,
}

enum Part {
    Place(usize),
    Word(&'static str),
}

impl<D> Parts<D> {
    fn placed(at: Span, end: usize, value: D) -> Self {
        let before = vec![Part::Place(at.start), Part::Place(at.end), Part::Place(end.max(at.end))];
        Self { before: before.into_iter(), value: Some(value) }
    }
}

impl<'de, D: Deserializer<'de, Error = Error>> SeqAccess<'de> for Parts<D> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        match self.before.next() {
            Some(Part::Place(place)) => seed.deserialize(place.into_deserializer()).map(Some),
            Some(Part::Word(word)) => seed.deserialize(word.into_deserializer()).map(Some),
            None => self.value.take().map(|value| seed.deserialize(value)).transpose(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_decimal;

    #[test]
    fn decimals_have_the_form_of_json() {
        assert!(["0", "-0", "20", "-1.5", "1e3", "1.25E-7"].into_iter().all(is_decimal));
        assert!(
            !["", "-", "+1", ".5", "1.", "1e", "0x7", "1_000", "inf", "NaN", "1e999", "٣"].into_iter().any(is_decimal)
        );
    }
}

//! Values with several spellings: a word or a map, a list or a map, a text or a list of words. serde's own untagged
//! enums forget places, and their errors say only that nothing fitted.

use serde::Deserialize;
use serde::de::{self, SeqAccess};

/// The shape of a value, before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Nothing,
    Bool,
    Number,
    Decimal,
    Text,
    List,
    Map,
}

impl Shape {
    /// The word for the shape among those that a type knows; a number may also be read as a text.
    pub(crate) fn among(self, known: &[&'static str]) -> Option<&'static str> {
        let find = |word: &str| known.iter().copied().find(|known| *known == word);
        match self {
            Self::Nothing => None,
            Self::Bool => find("Bool").or_else(|| find("Text")),
            Self::Number => find("Number").or_else(|| find("Decimal")).or_else(|| find("Text")),
            Self::Decimal => find("Decimal").or_else(|| find("Text")),
            Self::Text => find("Text"),
            Self::List => find("List"),
            Self::Map => find("Map"),
        }
    }
}

/// The name by which a type asks its reader for the shape, as one of the words that it knows, then the value.
pub const SHAPED: &str = "slipway::Shape";

/// The next part of what a reader hands out in parts: a place or a shape, then the value.
///
/// # Errors
/// The value's own, or there is none.
pub fn part<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(parts: &mut A) -> Result<T, A::Error> {
    parts.next_element()?.ok_or_else(|| de::Error::custom("a place is not complete"))
}

/// `Deserialize` for an enum whose variants differ in the shape of the value: `Bool`, `Number` (whole, not
/// negative), `Decimal` (any number), `Text`, `List` or `Map`.
/// The caller's crate depends on serde.
///
/// ```
/// # use slipway_document::by_shape;
/// enum Image {
///     Path(String),
///     Layers(Vec<String>),
/// }
///
/// by_shape!(Image, "an image: a path, or a list of layers", Text => Path, List => Layers);
/// ```
#[macro_export]
macro_rules! by_shape {
    ($type:ident, $expected:literal, $($shape:ident => $variant:ident),+ $(,)?) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Shaped;

                impl<'de> serde::de::Visitor<'de> for Shaped {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut parts: A) -> Result<$type, A::Error> {
                        let shape: String = $crate::shape::part(&mut parts)?;
                        $(if shape == stringify!($shape) {
                            return $crate::shape::part(&mut parts).map($type::$variant);
                        })+
                        Err(serde::de::Error::unknown_variant(&shape, &[$(stringify!($shape)),+]))
                    }
                }

                deserializer.deserialize_enum($crate::shape::SHAPED, &[$(stringify!($shape)),+], Shaped)
            }
        }
    };
}

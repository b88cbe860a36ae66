//! A piece of the log of a node's own programs.

use serde::{Deserialize, Serialize};

/// Bytes of a log, which are counted since the lab came up. The anchor keeps the last of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// Position of the piece's first byte. It is later than asked for if the log no longer has that byte.
    pub from: u64,
    /// Length of the log, bytes.
    pub end: u64,
    /// Output of the programs. A message has a character for each byte (ISO 8859-1), so that text stays readable.
    #[serde(with = "characters")]
    pub bytes: Vec<u8>,
}

mod characters {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.iter().copied().map(char::from).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let byte = |character| u8::try_from(character).map_err(|_| D::Error::custom("a character is no byte"));
        text.chars().map(byte).collect()
    }
}

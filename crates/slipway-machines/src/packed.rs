//! A lab on its way to many machines: packed once, and the same bytes for all.

use std::io::{self, Read as _};
use std::sync::Arc;

use data_encoding::BASE64_NOPAD;
use serde::{Deserialize, Serialize, Serializer};
use slipway_lab::model::Lab;

/// Most bytes of a lab as JSON, and of any message: 40,000 nodes have 41 MB.
pub(crate) const LONGEST: u64 = 256 << 20;

/// A lab as JSON, compressed by Zstandard (RFC 8878), in the letters of base 64.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Packed(Arc<str>);

impl From<String> for Packed {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Packed {
    /// Packs a lab. Nodes of a group are much alike, so little is left of them.
    ///
    /// # Errors
    /// Of the serialiser.
    pub fn new(lab: &Lab) -> io::Result<Self> {
        let packed = zstd::encode_all(serde_json::to_vec(lab)?.as_slice(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
        Ok(Self(BASE64_NOPAD.encode(&packed).into()))
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The lab.
    ///
    /// # Errors
    /// `InvalidData` for what is no lab, or is longer than 256 MiB once it is unpacked.
    pub fn lab(&self) -> io::Result<Lab> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let packed = BASE64_NOPAD.decode(self.0.as_bytes()).map_err(|error| invalid(error.to_string()))?;
        let mut text = Vec::new();
        zstd::Decoder::new(packed.as_slice())?.take(LONGEST + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LONGEST {
            return Err(invalid("the lab is too long".to_owned()));
        }
        Ok(serde_json::from_slice(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lab(nodes: u32) -> Lab {
        let text = format!("networks: {{net: vxlan}}\nnodes: {{n: {{count: {nodes}}}}}\n");
        slipway_lab::parse("lab.yaml", &text, std::path::Path::new("/")).expect("a lab")
    }

    #[test]
    fn a_lab_comes_out_as_it_was_packed_and_in_few_bytes() {
        let lab = lab(1000);
        let packed = Packed::new(&lab).expect("packed");
        assert_eq!(packed.lab().expect("unpacked"), lab);
        let plain = serde_json::to_vec(&lab).expect("JSON").len();
        assert!(packed.bytes() * 8 < plain, "{} of {plain} bytes", packed.bytes());
    }

    #[test]
    fn what_grows_too_long_is_refused() {
        let bomb = zstd::encode_all(io::repeat(b' ').take(LONGEST + 2), 1).expect("packed");
        let error = Packed(BASE64_NOPAD.encode(&bomb).into()).lab().expect_err("too long");
        assert_eq!(error.to_string(), "the lab is too long");
    }

    proptest! {
        #[test]
        fn any_letters_are_a_lab_or_refused(text in "[A-Za-z0-9+/]{0,200}") {
            prop_assert!(Packed(text.into()).lab().is_err());
        }
    }
}

//! Keys, and how files write them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::HEXLOWER_PERMISSIVE;
use rustls::Error;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{CertifiedKey, SigningKey};
use serde::{Serialize, Serializer};

/// The bytes before the 32 bytes of a seed in PKCS #8 (RFC 8410, section 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The bytes before the 32 bytes of a key in its SPKI form (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// An Ed25519 public key. Its text is 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// A text that is no key.
#[derive(Debug, thiserror::Error)]
#[error("a public key is 64 hexadecimal digits")]
pub struct TextError;

impl PublicKey {
    /// The key of what a peer shows in its handshake. `None`: it is of another kind.
    #[must_use]
    pub fn of(shown: &[u8]) -> Option<Self> {
        Some(Self(shown.strip_prefix(&SPKI)?.try_into().ok()?))
    }
}

impl FromStr for PublicKey {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| TextError)?;
        bytes.try_into().map(Self).map_err(|_| TextError)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER_PERMISSIVE.encode(&self.0))
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A key pair. `Debug` shows its public half alone.
#[derive(Clone)]
pub struct OwnKey {
    signing: Arc<dyn SigningKey>,
    public: PublicKey,
}

impl OwnKey {
    /// The pair that follows from 32 random bytes.
    ///
    /// # Errors
    /// When rustls refuses the key.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, Error> {
        let document = [&PKCS8[..], seed].concat();
        let signing = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(document))?;
        let public = signing.public_key().and_then(|shown: SubjectPublicKeyInfoDer<'_>| PublicKey::of(&shown));
        let public = public.ok_or_else(|| Error::General("a key without its public half".into()))?;
        Ok(Self { signing, public })
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// As rustls takes it. A raw public key stands in a certificate's place.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        let shown = [&SPKI[..], &self.public.0].concat();
        Arc::new(CertifiedKey::new(vec![CertificateDer::from(shown)], self.signing.clone()))
    }
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnKey").field(&self.public).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_public_key_survives_its_text(seed: [u8; 32]) {
            let public = OwnKey::from_seed(&seed).expect("a key").public();
            prop_assert_eq!(public.to_string().parse::<PublicKey>().expect("its own text"), public);
            let shown = [&SPKI[..], &public.0].concat();
            prop_assert_eq!(PublicKey::of(&shown), Some(public));
        }

        #[test]
        fn other_bytes_are_no_key(bytes: Vec<u8>) {
            prop_assert_eq!(PublicKey::of(&bytes), None);
        }

        #[test]
        fn other_texts_are_no_key(text in "\\PC{0,63}") {
            prop_assert!(text.parse::<PublicKey>().is_err());
        }
    }
}

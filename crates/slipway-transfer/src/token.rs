//! The secret that both ends know, and the keys that follow from it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rand::TryRng as _;

use crate::error::TransferError;

/// Bytes of a token. Written as twice as many hexadecimal digits.
pub const LENGTH: usize = 32;

/// 256 random bits that both ends know. Never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; LENGTH]);

impl Token {
    /// A new one, by the kernel's generator.
    pub fn random() -> Result<Self, TransferError> {
        let mut bytes = [0; LENGTH];
        fill(&mut bytes).map_err(TransferError::io("get random bytes"))?;
        Ok(Self(bytes))
    }

    /// The token that `text` writes, with white space around it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text.trim().to_ascii_lowercase()).ok()?;
        Some(Self(*hash.as_bytes()))
    }

    /// The token of a file.
    pub fn read(file: &Path) -> Result<Self, TransferError> {
        let failed = |why: String| TransferError::Token { file: file.display().to_string(), why };
        let mut text = String::new();
        let opened = File::open(file).and_then(|file| file.take(1024).read_to_string(&mut text));
        opened.map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).ok_or_else(|| failed(format!("it is not {} hexadecimal digits", 2 * LENGTH)))
    }

    /// The token of a file, which is written for its owner alone where it is missing.
    pub fn read_or_write(file: &Path) -> Result<Self, TransferError> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
            Ok(mut opened) => {
                let token = Self::random()?;
                let written =
                    opened.write_all(format!("{}\n", token.text()).as_bytes()).and_then(|()| opened.sync_all());
                written.map_err(TransferError::io(format!("write {}", file.display())))?;
                Ok(token)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(file),
            Err(error) => Err(TransferError::io(format!("write {}", file.display()))(error)),
        }
    }

    /// Hexadecimal digits.
    #[must_use]
    pub fn text(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// The seed of the server's Ed25519 key.
    pub(crate) fn server_seed(&self) -> [u8; 32] {
        blake3::derive_key("slipway transfer 1: server key", &self.0)
    }

    /// The client's proof for one connection, whose TLS exporter gives `binding`.
    #[must_use]
    pub fn proof(&self, binding: &[u8; 32]) -> blake3::Hash {
        let key = blake3::derive_key("slipway transfer 1: client proof", &self.0);
        blake3::keyed_hash(&key, binding)
    }

    /// Whether hexadecimal digits are the client's proof for the connection. It takes as long whatever differs.
    #[must_use]
    pub fn is_proof(&self, binding: &[u8; 32], digits: &str) -> bool {
        blake3::Hash::from_hex(digits).is_ok_and(|proof| proof == self.proof(binding))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Fills `bytes` by the kernel's generator.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    rand::rngs::SysRng.try_fill_bytes(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let made = Token::read_or_write(&file).expect("made");
        assert_eq!(Token::read_or_write(&file).expect("read"), made);
        assert_ne!(Token::random().expect("random"), made);
        std::fs::write(&file, "short").expect("written");
        assert!(Token::read(&file).is_err());
    }
}

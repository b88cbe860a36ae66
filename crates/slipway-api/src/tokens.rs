//! Tokens: who may do what. A file has the SHA-256 of each, so that the file is no secret.

use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use slipway_document::FileError;
use utoipa::ToSchema;

/// Rights. Each has those of the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// To see everything.
    Read,
    /// To start campaigns and change their course: it runs programs on this machine.
    Run,
    /// To delete campaigns, and to make and revoke tokens.
    Admin,
}

impl Role {
    const ALL: [(Self, &'static str); 3] = [(Self::Read, "read"), (Self::Run, "run"), (Self::Admin, "admin")];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(role, _)| role == self).map_or("", |(_, word)| word))
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, word)| *word == text);
        found.map(|(role, _)| *role).ok_or_else(|| "a role is read, run or admin".to_owned())
    }
}

/// A token, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// Its rights.
    pub role: Role,
    #[serde(skip)]
    hash: [u8; 32],
}

/// The reason why tokens cannot be read or changed. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is wrong.
    #[error(
        "read {}: line {line} is no `ROLE NAME SHA256`\nHint: `slipway campaign token` writes the lines", path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// Others can write the file.
    #[error("trust {}: other users can write it\nHint: chmod 600 it", .0.display())]
    Writable(PathBuf),
    /// The name is taken, or no name.
    #[error("name the token `{0}`: a name is new, of letters, digits, `-` and `_`, at most 64")]
    Name(String),
}

/// All tokens.
#[derive(Debug, Default)]
pub struct Tokens {
    file: Option<PathBuf>,
    list: RwLock<Vec<Key>>,
}

impl Tokens {
    /// The tokens of a file; none where it is not there yet.
    ///
    /// # Errors
    /// Where the file is wrong.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let io = FileError::of("read", path);
        let tokens = |list| Self { file: Some(path.to_owned()), list: RwLock::new(list) };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(tokens(Vec::new())),
            Err(error) => return Err(io(error).into()),
        };
        if fs::metadata(path).map_err(&io)?.mode() & 0o022 != 0 {
            return Err(TokenError::Writable(path.to_owned()));
        }
        let mut list = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            list.push(key(line).ok_or_else(|| TokenError::Line { path: path.to_owned(), line: number + 1 })?);
        }
        Ok(tokens(list))
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Makes a token, and returns its secret, which nothing keeps.
    ///
    /// # Errors
    /// Where the name is taken, or the file cannot be written.
    pub fn add(&self, name: &str, role: Role) -> Result<String, TokenError> {
        let is_name = (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if !is_name || list.iter().any(|key| key.name == name) {
            return Err(TokenError::Name(name.to_owned()));
        }
        let secret = secret();
        let mut next = list.clone();
        next.push(Key { name: name.to_owned(), role, hash: hash(&secret) });
        self.write(&next)?;
        *list = next;
        Ok(secret)
    }

    /// Revokes a token. Returns whether there was one of this name.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<bool, TokenError> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let next: Vec<Key> = list.iter().filter(|key| key.name != name).cloned().collect();
        let is_there = next.len() < list.len();
        if is_there {
            self.write(&next)?;
            *list = next;
        }
        Ok(is_there)
    }

    /// All tokens, without secrets.
    #[must_use]
    pub fn list(&self) -> Vec<Key> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The token with this secret. Its time tells nothing about secrets: hashes are compared, each as a whole.
    #[must_use]
    pub(crate) fn find(&self, secret: &str) -> Option<Key> {
        let wanted = hash(secret);
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().fold(None, |found, key| if same(&key.hash, &wanted) { Some(key.clone()) } else { found })
    }

    fn write(&self, list: &[Key]) -> Result<(), TokenError> {
        let Some(path) = &self.file else { return Ok(()) };
        let mut text = "# Tokens of `slipway campaign serve`: role, name, SHA-256 of the secret.\n".to_owned();
        for Key { name, role, hash } in list {
            let _ = writeln!(text, "{role} {name} {}", hex(hash));
        }
        let fresh = path.with_extension("new");
        let io = FileError::of("write", path);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh).map_err(&io)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(&io)?;
        Ok(fs::rename(&fresh, path).map_err(io)?)
    }
}

fn key(line: &str) -> Option<Key> {
    let mut words = line.split_whitespace();
    let (role, name, digits) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?);
    let digest: slipway_results::Digest = digits.parse().ok().filter(|_| words.next().is_none())?;
    let text = digest.to_string();
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Key { name, role, hash })
}

/// 256 random bits, in hexadecimal.
pub(crate) fn secret() -> String {
    hex(&rand::random::<[u8; 32]>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Whether two hashes are the same, in a time that does not depend on them.
pub(crate) fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_by_their_secret_and_last_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let tokens = Tokens::read(&path).unwrap();
        assert!(tokens.is_empty());
        let (ada, bob) = (tokens.add("ada", Role::Run).unwrap(), tokens.add("bob", Role::Read).unwrap());
        assert!(matches!(tokens.add("ada", Role::Run), Err(TokenError::Name(_))));
        assert!(matches!(tokens.add("a b", Role::Run), Err(TokenError::Name(_))));
        assert_eq!(tokens.find(&ada).map(|key| (key.name, key.role)), Some(("ada".to_owned(), Role::Run)));
        assert!(tokens.remove("ada").unwrap() && !tokens.remove("ada").unwrap());
        let again = Tokens::read(&path).unwrap();
        assert_eq!(again.find(&bob).map(|key| key.role), Some(Role::Read));
        assert_eq!(again.find(&ada), None);
        assert!(!fs::read_to_string(&path).unwrap().contains(&bob));
        fs::write(&path, "read x\n").unwrap();
        assert!(matches!(Tokens::read(&path), Err(TokenError::Line { line: 1, .. })));
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(matches!(Tokens::read(&path), Err(TokenError::Writable(_))));
    }
}

//! The lab's key, and the keys that a session derives from it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use slipway_lab::model::Secret;
use zeroize::{Zeroize, Zeroizing};

/// HMAC-SHA-256 (RFC 2104, FIPS 180-4) with a key in it. Wiped when dropped.
pub(super) type HmacSha256 = Hmac<Sha256>;

/// Bytes of a key, a nonce and a MAC.
pub(super) const WIDTH: usize = 32;

/// The secret of a lab's routers. Wiped when dropped; `Debug` does not show it.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; WIDTH]>);

/// A lab's key in a file without a name. The anchor holds the file, and only routers read it. So the key is in no memory but
/// theirs, and a router that takes another's place has the same key.
#[derive(Debug)]
pub struct KeyFile(File);

/// A number used once. Each side draws one for each handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub(super) [u8; WIDTH]);

impl From<Secret> for Key {
    /// The key that all machines of a lab have.
    fn from(Secret(mut bytes): Secret) -> Self {
        Self::take(&mut bytes)
    }
}

impl Key {
    /// Draws a new key from the kernel (`getrandom(2)`).
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub fn draw() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; WIDTH]);
        fill(&mut key[..])?;
        Ok(Self(key))
    }

    /// Takes the key from `bytes`, and wipes them.
    #[must_use]
    pub fn take(bytes: &mut [u8; WIDTH]) -> Self {
        let key = Self(Zeroizing::new(*bytes));
        bytes.zeroize();
        key
    }

    /// The key's bytes, for a router.
    #[must_use]
    pub fn bytes(&self) -> &[u8; WIDTH] {
        &self.0
    }

    /// Another key, for a purpose of its own: nobody who has it learns this one (HKDF-Expand, RFC 5869, section 2.3).
    #[must_use]
    pub fn derived(&self, purpose: &str) -> Self {
        let mac = keyed(&self.0[..]).chain_update(b"slipway key ").chain_update(purpose).chain_update([1]);
        let mut bytes = mac.finalize().into_bytes();
        let key = Self(Zeroizing::new(bytes.into()));
        bytes.as_mut_slice().zeroize();
        key
    }

    /// HKDF-Expand (RFC 5869, section 2.3): its first block, not finished yet. The key is uniformly random, so it needs no
    /// HKDF-Extract (section 3.3).
    fn expand(&self, purpose: &[u8], nonces: (&Nonce, &Nonce)) -> HmacSha256 {
        keyed(&self.0[..])
            .chain_update(b"slipway router ")
            .chain_update(purpose)
            .chain_update(nonces.0.0)
            .chain_update(nonces.1.0)
            .chain_update([1])
    }

    /// The answerer's proof that it has the key, and had it after the caller drew its nonce.
    pub(super) fn proof(&self, nonces: (&Nonce, &Nonce)) -> HmacSha256 {
        self.expand(b"proof  ", nonces)
    }

    /// The keys of the two directions: from the caller, and from the answerer.
    pub(super) fn directions(&self, nonces: (&Nonce, &Nonce)) -> (HmacSha256, HmacSha256) {
        let direction = |purpose: &[u8]| {
            let mut key = self.expand(purpose, nonces).finalize().into_bytes();
            let keyed = keyed(&key);
            key.as_mut_slice().zeroize();
            keyed
        };
        (direction(b"calls  "), direction(b"answers"))
    }
}

impl KeyFile {
    /// Makes a file with a new key, and wipes the key from this process's memory.
    ///
    /// # Errors
    /// As `getrandom(2)` and `memfd_create(2)`.
    pub fn draw() -> io::Result<Self> {
        Self::of(&Key::draw()?)
    }

    /// Makes a file with this key, which routers of several machines share.
    ///
    /// # Errors
    /// As `memfd_create(2)`.
    pub fn of(key: &Key) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"slipway-key", flags)?);
        file.write_all(key.bytes())?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self(file))
    }

    /// Reads the key, for a router.
    ///
    /// # Errors
    /// As `pread(2)`.
    pub fn read(&self) -> io::Result<Key> {
        let mut key = Zeroizing::new([0; WIDTH]);
        self.0.read_exact_at(&mut key[..], 0)?;
        Ok(Key(key))
    }

    /// Another descriptor of the file, for a router.
    ///
    /// # Errors
    /// As `dup(2)`.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

impl AsFd for KeyFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Nonce {
    /// Draws a new nonce from the kernel.
    ///
    /// # Errors
    /// As `getrandom(2)`.
    pub fn draw() -> io::Result<Self> {
        let mut nonce = [0; WIDTH];
        fill(&mut nonce)?;
        Ok(Self(nonce))
    }

    /// A nonce of these bytes, for tests, which must be repeatable.
    #[must_use]
    pub fn fixed(bytes: [u8; WIDTH]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

fn keyed(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of every length")
}

/// Fills `bytes` with random data. The kernel fills at most 256 bytes whole or not at all (`getrandom(2)`).
fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let wanted = bytes.len();
    match getrandom(bytes, GetRandomFlags::empty())? {
        filled if filled == wanted => Ok(()),
        _ => Err(io::Error::other("the kernel gave fewer random bytes than asked for")),
    }
}

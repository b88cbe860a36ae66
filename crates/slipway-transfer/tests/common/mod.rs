//! A server in this process, and trees to send to it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rand::{Rng as _, SeedableRng as _};
use slipway_transfer::TransferError;
use slipway_transfer::send::{Report, Request, send};
use slipway_transfer::serve::Server;
use slipway_transfer::token::Token;
use tempfile::TempDir;

pub struct Ends {
    pub folder: TempDir,
    pub token: Token,
    pub address: SocketAddr,
}

impl Ends {
    /// A source `from`, and a server whose root is `root`.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::with_root(folder, |folder| folder.join("root"))
    }

    pub fn with_root(folder: TempDir, root: impl FnOnce(&Path) -> PathBuf) -> Self {
        for name in ["from", "root"] {
            fs::create_dir_all(folder.path().join(name)).expect("made");
        }
        let token = Token::random().expect("random");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(any, &token, Some(root(folder.path())), true).expect("bound");
        let address = server.address().expect("bound");
        std::thread::spawn(move || server.sending(true).run(false, |_| {}));
        Self { folder, token, address }
    }

    pub fn from(&self) -> PathBuf {
        self.folder.path().join("from")
    }

    pub fn to(&self) -> PathBuf {
        self.folder.path().join("root/to")
    }

    pub fn request(&self) -> Request {
        Request {
            sources: vec![PathBuf::from(format!("{}/", self.from().display()))],
            destination: b"to".to_vec(),
            verify: false,
            clear: false,
            limit: None,
            sync: false,
        }
    }

    pub fn send(&self, request: &Request) -> Result<Report, TransferError> {
        send(request, self.address, &self.token, |_| {})
    }

    /// Sends everything, which must leave both trees equal.
    #[track_caller]
    pub fn complete(&self) -> Report {
        let report = self.send(&self.request()).expect("transferred");
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(tree(&self.from()), tree(&self.to()));
        report
    }
}

/// All that is below a folder: path, and kind, mode, time, owner, content.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("listed") {
            let path = entry.expect("listed").path();
            let about = fs::symlink_metadata(&path).expect("there");
            let content = if about.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if about.is_symlink() {
                format!("link to {}", fs::read_link(&path).expect("read").display())
            } else {
                format!("file {}", blake3::hash(&fs::read(&path).expect("read")))
            };
            let kind = about.file_type();
            let (mode, time) =
                if kind.is_symlink() { (0, 0) } else { (about.permissions().mode(), about.mtime_nsec()) };
            let line = format!(
                "{content} {mode:o} {} {time} {}:{} names {}",
                about.mtime(),
                about.uid(),
                about.gid(),
                if about.is_dir() { 0 } else { about.nlink() }
            );
            found.insert(path.strip_prefix(folder).expect("below").to_owned(), line);
        }
    }
    found
}

/// `length` bytes that nothing compresses or repeats.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rand::rngs::StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

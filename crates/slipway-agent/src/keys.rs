//! The key of this machine, and the machines that it knows.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE;
use rand::TryRng as _;
use slipway_tls::{OwnKey, PublicKey};

use crate::error::AgentError;

/// Where keys are, unless the user names another folder.
pub const FOLDER: &str = "/etc/slipway/agent";
/// Port of an agent (TCP).
pub const PORT: u16 = 7412;
/// Most bytes of a file of machines.
const MOST: u64 = 1 << 20;

/// A machine that this one knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The name that commands use.
    pub name: String,
    /// The address of its agent.
    pub address: SocketAddr,
    /// The key that it proves.
    pub key: PublicKey,
}

/// The folder of keys.
#[derive(Debug, Clone)]
pub struct Keys(PathBuf);

impl Keys {
    /// The keys in this folder.
    #[must_use]
    pub fn of(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The file of the machines that this one knows.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        self.0.join("machines")
    }

    /// This machine's key: the file `key` of the folder. It is made where it is missing.
    ///
    /// # Errors
    /// When others may read the file, or it holds no key.
    pub fn own(&self) -> Result<OwnKey, AgentError> {
        let file = self.0.join("key");
        let shown = || file.display().to_string();
        let seed = match File::open(&file) {
            Ok(opened) => read_seed(&file, opened)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.make(&file)?,
            Err(error) => return Err(AgentError::io(format!("read {}", shown()))(error)),
        };
        Ok(OwnKey::from_seed(&seed)?)
    }

    fn make(&self, file: &Path) -> Result<[u8; 32], AgentError> {
        let mut seed = [0; 32];
        rand::rngs::SysRng
            .try_fill_bytes(&mut seed)
            .map_err(io::Error::other)
            .map_err(AgentError::io("get random bytes"))?;
        let written = std::fs::create_dir_all(&self.0).and_then(|()| {
            let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            opened.write_all(format!("{}\n", HEXLOWER_PERMISSIVE.encode(&seed)).as_bytes())?;
            opened.sync_all()
        });
        written.map_err(AgentError::io(format!("write {}", file.display())))?;
        Ok(seed)
    }

    /// The machines that this one knows.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is none.
    pub fn machines(&self) -> Result<Vec<Known>, AgentError> {
        let file = self.list();
        let mut text = String::new();
        let read = File::open(&file).and_then(|opened| opened.take(MOST).read_to_string(&mut text));
        read.map_err(AgentError::io(format!("read {}", file.display())))?;
        parse(&text).map_err(|(line, why)| AgentError::File { file: format!("{}:{line}", file.display()), why })
    }

    /// A machine by its name.
    ///
    /// # Errors
    /// When the file does not name it, or cannot be read.
    pub fn machine(&self, name: &str) -> Result<Known, AgentError> {
        let found = self.machines()?.into_iter().find(|machine| machine.name == name);
        let file = self.list().display().to_string();
        found.ok_or_else(|| AgentError::Unknown { name: name.to_owned(), file })
    }
}

fn read_seed(file: &Path, opened: File) -> Result<[u8; 32], AgentError> {
    let failed = |why: &str| AgentError::File { file: file.display().to_string(), why: why.to_owned() };
    let facts = opened.metadata().map_err(AgentError::io(format!("read {}", file.display())))?;
    if facts.mode() & 0o077 != 0 {
        return Err(failed("others may read it\nHint: remove the file, and run `slipway agent key` for a new one"));
    }
    let mut text = String::new();
    let read = opened.take(1024).read_to_string(&mut text);
    read.map_err(AgentError::io(format!("read {}", file.display())))?;
    let seed = HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    seed.ok_or_else(|| failed("it is no key\nHint: remove the file, and run `slipway agent key` for a new one"))
}

/// The machines of a text: `NAME ADDRESS[:PORT] KEY` a line; `#` begins a comment.
///
/// # Errors
/// The number of the line that is none, and why.
pub fn parse(text: &str) -> Result<Vec<Known>, (usize, String)> {
    let mut names = HashSet::new();
    let mut machines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |why: String| (number + 1, why);
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, address, key] = words[..] else {
            if words.is_empty() {
                continue;
            }
            return Err(wrong("a line is NAME ADDRESS KEY".to_owned()));
        };
        let with_port = address.parse().or_else(|_| address.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT)));
        let address = with_port.map_err(|_| wrong(format!("`{address}` is neither ADDRESS nor ADDRESS:PORT")))?;
        let key = key.parse().map_err(|error| wrong(format!("`{key}`: {error}")))?;
        if !names.insert(name) {
            return Err(wrong(format!("`{name}` has a line already")));
        }
        machines.push(Known { name: name.to_owned(), address, key });
    }
    Ok(machines)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_stays_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = Keys::of(folder.path().join("agent"));
        let made = keys.own().expect("made").public();
        assert_eq!(keys.own().expect("read").public(), made);
        let file = folder.path().join("agent/key");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("set");
        assert!(keys.own().unwrap_err().to_string().contains("others may read it"));
    }

    #[test]
    fn lines_that_are_none_are_said_with_their_number() {
        let key = "ab".repeat(32);
        let good = format!("# ours\na 192.0.2.1 {key}\n\nb [2001:db8::2]:99 {key} # the second\n");
        let machines = parse(&good).expect("two machines");
        assert_eq!(machines[0].address, "192.0.2.1:7412".parse().expect("an address"));
        assert_eq!(machines[1].address, "[2001:db8::2]:99".parse().expect("an address"));
        for (line, why) in [
            ("c 192.0.2.3".to_owned(), "NAME ADDRESS KEY"),
            (format!("c here {key}"), "neither ADDRESS"),
            ("c 192.0.2.3 abc".to_owned(), "64 hexadecimal digits"),
            (format!("a 192.0.2.3 {key}"), "has a line already"),
        ] {
            let (number, said) = parse(&format!("{good}{line}\n")).expect_err("a wrong line");
            assert!(number == 5 && said.contains(why), "{number}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

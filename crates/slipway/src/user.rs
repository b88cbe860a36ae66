//! Users and groups by name, as a node's own files have them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use slipway_engine::exec::{Entry, User};

use crate::failure::Failure;

/// More than any node's `/etc/passwd`, bytes.
const LONGEST: u64 = 1 << 20;

/// The user that `word` means in the node: `USER` or `USER:GROUP`, each a name or a number.
pub(crate) fn find(entry: &Entry, word: &str) -> Result<User, Failure> {
    let (user, group) = word.split_once(':').map_or((word, None), |(user, group)| (user, Some(group)));
    let node = &entry.node;
    let read = |file: &str| {
        read(entry, file).map_err(Failure::io(format!("look `{word}` up in /etc/{file} of node `{node}`")))
    };
    let unknown = |what: &str, name: &str| {
        Failure::usage(format!("find {what} `{name}` in node `{node}`\nHint: give its number, which needs no name"))
    };
    let (uid, mut gid) = match user.parse() {
        Ok(uid) => (uid, 0),
        Err(_) => passwd(&read("passwd")?, user).ok_or_else(|| unknown("user", user))?,
    };
    if let Some(group) = group {
        gid = match group.parse() {
            Ok(gid) => gid,
            Err(_) => number(&read("group")?, group).ok_or_else(|| unknown("group", group))?,
        };
    }
    Ok(User { uid, gid })
}

/// The node may have put anything there: it is resolved within its own root, and nothing but a file is read.
fn read(entry: &Entry, file: &str) -> io::Result<String> {
    let gone = || io::Error::other("the node has ended");
    let root: OwnedFd = File::open(format!("/proc/{}/root", entry.init.pid))?.into();
    if !entry.init.is_alive() {
        return Err(gone());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(&root, format!("etc/{file}"), flags, Mode::empty(), resolve)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `passwd(5)`: name, password, user, group, …
fn passwd(text: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = line(text, name)?.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// `group(5)`: name, password, group, …
fn number(text: &str, name: &str) -> Option<u32> {
    line(text, name)?.split(':').nth(1)?.parse().ok()
}

/// The fields after the name, of the line that begins with it.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_words_and_broken_lines_are_none() {
        let text = "rooty:x:7:7\nroot:x:0:1:root:/root:/bin/sh\nbad:x:one:2\nshort\n";
        assert_eq!(passwd(text, "root"), Some((0, 1)));
        assert_eq!(passwd(text, "roo"), None);
        assert_eq!(passwd(text, "bad"), None);
        assert_eq!(passwd(text, "short"), None);
        assert_eq!(number("tty:x:5:\n", "tty"), Some(5));
    }
}

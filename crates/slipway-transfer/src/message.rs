//! Messages: what the two ends say to each other. In a frame they stand one behind the other, as postcard writes them.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::path::Relative;
use crate::report::{List, Named, Report};

/// Version of the protocol. Ends of other versions refuse each other.
pub const VERSION: u32 = 5;
/// Bytes of paths and attributes of files that are announced and not settled, by [`Entry::weight`], that a sender keeps to.
pub const HEAVY: usize = 64 << 20;
/// Bytes of file data in one frame, at most.
pub const LARGEST_DATA: usize = 1 << 20;

/// The first message of a connection, from the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hello {
    /// Opens a session. The connection carries [`Order`]s from then on.
    Session {
        /// [`VERSION`] of the client.
        version: u32,
        /// Proof of the token, bound to this connection of TLS.
        proof: [u8; 32],
    },
    /// Joins a session as stream `number`: 1 carries [`Answer`]s from the server, those from 2 on [`Item`]s to it.
    Stream {
        /// The session, as [`Welcome`] named it.
        session: [u8; 16],
        /// The stream's number, of one connection only.
        number: u32,
        /// Proof of the session's secret: the number, keyed.
        proof: [u8; 32],
    },
}

/// The server's reply to [`Hello::Session`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Welcome {
    /// The session is open.
    Session {
        /// Names the session.
        session: [u8; 16],
        /// From it follow the keys of all streams.
        secret: [u8; 32],
    },
    /// The server speaks another version.
    Version(u32),
    /// The server has as many sessions as it takes.
    Busy,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file of so many bytes.
    File(u64),
    /// A symbolic link and the bytes that it holds, which nobody follows.
    Symlink(Vec<u8>),
    /// Another name of a file that was listed before. Sent when all files are there.
    Hardlink(Relative),
}

/// Attributes of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits, with set-user-id and its like (`07777`).
    pub mode: u32,
    /// User ID. Applied where the receiver is root.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Time of the last change: seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
    /// Extended attributes, name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A file, directory or link of the data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The sender's number for it.
    pub id: u64,
    /// Its path below the destination.
    pub path: Relative,
    /// Its kind.
    pub kind: Kind,
    /// Its attributes.
    pub meta: Meta,
}

impl Entry {
    /// Bytes that an end keeps for the entry, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let xattrs = self.meta.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64);
        self.path.as_bytes().len() + 256 + xattrs.sum::<usize>()
    }
}

/// From the sender, in order. A client that wants to receive begins with [`Order::Fetch`], and all others come from the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// The first: where everything goes.
    Begin {
        /// Path of the destination, as the server understands it.
        destination: Vec<u8>,
        /// Compare, and change nothing.
        verify: bool,
        /// Have the file system write a file's content to the disk before the file takes its name, and everything before
        /// [`Answer::Over`].
        sync: bool,
    },
    /// One of the data set.
    Entry(Entry),
    /// Nothing; said where there is nothing else for a while.
    Alive,
    /// The last before the receiver is done: all files are settled.
    Finish,
    /// Instead of all others, from a client: send these.
    Fetch {
        /// Paths as the server understands them.
        sources: Vec<Vec<u8>>,
        /// Compare, and change nothing.
        verify: bool,
        /// Bits per second of data, at most.
        limit: Option<u64>,
    },
    /// From a server, after [`Answer::Over`]: an entry of a list of its report.
    Told(List, Named),
    /// The report without its lists. Nothing follows.
    Report(Box<Report>),
    /// Nothing more comes, for this reason.
    Refused(String),
}

/// A copy of a file, whole or not, that the receiver has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Basis {
    /// An incomplete file, whose blocks may stay where they are.
    Part,
    /// An older version.
    Old,
}

/// A block that the receiver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Offset of the block, bytes.
    pub offset: u64,
    /// Length of the block, bytes.
    pub length: u32,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
}

/// From the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The destination is open.
    Ready,
    /// The receiver has nothing of these files.
    Fresh(Vec<u64>),
    /// Blocks that it has of one.
    Blocks(u64, Basis, Vec<Block>),
    /// It listed all blocks. The older version, if any, has so many bytes.
    Listed(u64, Option<u64>),
    /// These entries are at the destination, their content on its disk where [`Order::Begin`] asked for that.
    Settled(Vec<u64>),
    /// One is not, with its path and the reason.
    Failed(u64, Relative, String),
    /// With `verify`: one is missing, or not the same.
    Differs(u64, Relative, String),
    /// With `verify`: the receiver has one that the sender has not.
    Extra(Relative),
    /// Progress: bytes and nanoseconds of writing, summed over streams.
    Wrote(u64, u64),
    /// Nothing; said where there is nothing else for a while.
    Alive,
    /// Everything is done.
    Over,
    /// Nothing more is.
    Refused(String),
}

/// On a stream of data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// So many bytes of a file follow: its number, the offset, the length.
    Data(u64, u64, u32),
    /// All bytes of a file follow, and nothing else of it: its number, and how many.
    Whole(u64, u32),
    /// A hole: number, offset, length.
    Hole(u64, u64, u64),
    /// Bytes of the incomplete file stay: number, offset, length.
    Keep(u64, u64, u64),
    /// A block of the older version: number, offset in the new, offset in the old, length, BLAKE3 of its bytes.
    Copy(u64, u64, u64, u32, [u8; 32]),
    /// All of a file was sent.
    End(u64),
    /// The older version is the same; its attributes may differ.
    Same(u64),
    /// The file changed while it was read: the receiver forgets it.
    Abandon(u64),
}

/// Appends `message` to `body`.
pub fn put<T: Serialize>(message: &T, body: &mut Vec<u8>) -> io::Result<()> {
    let taken = std::mem::take(body);
    *body = postcard::to_extend(message, taken).map_err(io::Error::other)?;
    Ok(())
}

/// Takes a message off the front of `bytes`.
///
/// # Errors
/// `InvalidData` where there is none.
pub fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> io::Result<T> {
    let (message, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    *bytes = rest;
    Ok(message)
}

/// Takes an item off the front of `bytes`, with its data (empty for all but [`Item::Data`] and [`Item::Whole`]).
///
/// # Errors
/// `InvalidData` where there is none, where its data is cut short, or where its range ends beyond 2^63.
pub fn take_item<'a>(bytes: &mut &'a [u8]) -> io::Result<(Item, &'a [u8])> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let item: Item = take(bytes)?;
    let (offset, length) = match item {
        Item::Data(_, offset, length) => (offset, length.into()),
        Item::Hole(_, offset, length) | Item::Keep(_, offset, length) => (offset, length),
        Item::Copy(_, offset, from, length, _) => (offset.max(from), length.into()),
        Item::Whole(..) | Item::End(_) | Item::Same(_) | Item::Abandon(_) => (0, 0),
    };
    if offset.checked_add(length).is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(wrong("a range ends beyond all files"));
    }
    let (Item::Data(_, _, length) | Item::Whole(_, length)) = item else { return Ok((item, &[])) };
    let (data, rest) = bytes.split_at_checked(length as usize).ok_or_else(|| wrong("data is cut short"))?;
    *bytes = rest;
    Ok((item, data))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_items_or_refused(bytes: Vec<u8>) {
            let mut rest = bytes.as_slice();
            while let Ok((_, data)) = take_item(&mut rest) {
                prop_assert!(data.len() <= bytes.len());
            }
            let mut rest = bytes.as_slice();
            while take::<Order>(&mut rest).is_ok() {}
            let mut rest = bytes.as_slice();
            while take::<Answer>(&mut rest).is_ok() {}
        }

        #[test]
        fn items_come_back(file: u64, offset in 0..u64::MAX / 4, data: Vec<u8>) {
            let length = u32::try_from(data.len()).expect("short");
            let mut body = Vec::new();
            put(&Item::Data(file, offset, length), &mut body).expect("written");
            body.extend_from_slice(&data);
            put(&Item::End(file), &mut body).expect("written");
            put(&Item::Whole(file, length), &mut body).expect("written");
            body.extend_from_slice(&data);
            let mut rest = body.as_slice();
            prop_assert_eq!(take_item(&mut rest).expect("data"), (Item::Data(file, offset, length), data.as_slice()));
            prop_assert_eq!(take_item(&mut rest).expect("end"), (Item::End(file), &[][..]));
            prop_assert_eq!(take_item(&mut rest).expect("all"), (Item::Whole(file, length), data.as_slice()));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_range_beyond_all_files_is_refused() {
        let mut body = Vec::new();
        put(&Item::Hole(1, u64::MAX, 2), &mut body).expect("written");
        assert!(take_item(&mut body.as_slice()).is_err());
    }
}

//! A tar stream, member by member (POSIX.1-2017 `pax`, "ustar Interchange Format" and "pax Extended Header"; GNU long
//! names). It streams, in bounded memory. The `tar` crate reads long names and extended headers of any length into
//! memory, splits binary attributes at newlines, and takes PAX sparse files for ordinary ones.

use std::io::{self, Read};

use rustix::fs::Timespec;
use tar::{EntryType, Header};

use slipway_document::text::printable;

use super::holes::Runs;

const BLOCK: usize = 512;
/// Enough for every extended attribute that Linux lets a file have (`XATTR_SIZE_MAX`, 64 KiB) several times over.
const MAX_EXTENSION: u64 = 1 << 20;

/// The kind of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `size` bytes follow, to be read from [`Members`].
    File,
    /// A folder.
    Directory,
    /// A symbolic link, with its text.
    Symlink(Vec<u8>),
    /// Another name of the member of this path.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A device, whose numbers are not read.
    Device,
}

/// One entry of the archive, as written: nothing in it has been judged yet.
#[derive(Debug)]
pub struct Member {
    /// The member's name.
    pub path: Vec<u8>,
    /// The member's kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change of its content.
    pub mtime: Timespec,
    /// Extended attributes.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Where the content of a sparse file goes.
    pub runs: Option<Runs>,
}

/// The fault of the stream.
#[derive(Debug)]
pub enum Fault {
    /// Reading it failed.
    Io(io::Error),
    /// In the words of a "read archive …: WHAT".
    Malformed(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(what.into()))
}

/// The content of extension headers for the member that follows them.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<Timespec>,
    xattrs: Vec<(String, Vec<u8>)>,
    /// Of a sparse file: its size, and the list of its runs of data.
    sparse: (Option<u64>, Option<Vec<u8>>),
}

/// Reads members; itself reads the content of the one last returned.
pub struct Members<R> {
    input: R,
    /// Content of the current member not read yet, and what fills its last block.
    left: u64,
    padding: u64,
    first: bool,
    end_marked: bool,
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.input.read(&mut buffer[..most])?;
        if n == 0 && most > 0 {
            return Err(io::Error::other("it ends in the middle of a file"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

impl<R: Read> Members<R> {
    /// Begins with the stream's first byte.
    pub fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, first: true, end_marked: true }
    }

    /// Takes the end of the stream for the end of the archive too, as umoci 0.4 writes neither the mark nor the last
    /// file's padding. Only where a digest tells whether the stream was cut short.
    #[must_use]
    pub fn without_end_mark(self) -> Self {
        Self { end_marked: false, ..self }
    }

    /// How many bytes of the current member's content are still to come.
    pub fn announced(&self) -> u64 {
        self.left
    }

    /// The next member; `None` at the mark that ends an archive.
    #[expect(clippy::should_implement_trait, reason = "a fault ends the stream, and members borrow it meanwhile")]
    pub fn next(&mut self) -> Result<Option<Member>, Fault> {
        let mut extended = Extended::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            match header.entry_type() {
                EntryType::XHeader => {
                    let records = self.extension(&header)?;
                    extended.read_pax(&records)?;
                }
                EntryType::XGlobalHeader => {
                    let records = self.extension(&header)?;
                    let mut global = Extended::default();
                    global.read_pax(&records)?;
                    if global.path.is_some() || global.link.is_some() || global.size.is_some() {
                        return malformed("a global header names every entry alike");
                    }
                }
                EntryType::GNULongName => {
                    extended.path = Some(text(self.extension(&header)?));
                }
                EntryType::GNULongLink => {
                    extended.link = Some(text(self.extension(&header)?));
                }
                _ => return self.member(&header, extended).map(Some),
            }
        }
    }

    fn member(&mut self, header: &Header, extended: Extended) -> Result<Member, Fault> {
        let path = extended.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link =
            extended.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned)).unwrap_or_default();
        let kind = match header.entry_type() {
            // Version 7 tar had no type for directories.
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(link),
            EntryType::Link => Kind::HardLink(link),
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char | EntryType::Block => Kind::Device,
            EntryType::GNUSparse => return sparse(&path),
            other => {
                return malformed(format!("entry `{}` is of an unknown kind ({:#04x})", shown(&path), other.as_byte()));
            }
        };
        let size = match extended.size {
            Some(size) => size,
            None => header.entry_size()?,
        };
        if size > 0 && kind != Kind::File {
            return malformed(format!("entry `{}` has content although it is no file", shown(&path)));
        }
        let runs = match extended.sparse {
            (None, None) => None,
            (Some(size), Some(list)) if kind == Kind::File => match Runs::read(size, &list) {
                None => return malformed(format!("entry `{}` has a list of holes that does not fit it", shown(&path))),
                runs => runs,
            },
            _ => return sparse(&path),
        };
        if runs.as_ref().is_some_and(|runs| runs.stored() != size) {
            return malformed(format!("entry `{}` has another size than its list of holes says", shown(&path)));
        }
        self.expect(size)?;
        let old = header.as_old();
        let id = |pax: Option<u64>, field: &[u8], read: io::Result<u64>| -> Result<u32, Fault> {
            let id = pax.map_or_else(|| or_blank(field, read), Ok)?;
            // -1 is "leave it" to chown(2), never an owner.
            u32::try_from(id)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| Fault::Malformed(format!("entry `{}` has no valid owner", shown(&path))))
        };
        Ok(Member {
            mode: or_blank(&old.mode, header.mode())?,
            uid: id(extended.uid, &old.uid, header.uid())?,
            gid: id(extended.gid, &old.gid, header.gid())?,
            mtime: match extended.mtime {
                Some(time) => time,
                None => Timespec { tv_sec: or_blank(&old.mtime, header.mtime())?.cast_signed(), tv_nsec: 0 },
            },
            xattrs: extended.xattrs,
            runs,
            path,
            kind,
        })
    }

    /// One header whose checksum is right; `None` for a block of zeros.
    fn header(&mut self) -> Result<Option<Header>, Fault> {
        let first = std::mem::replace(&mut self.first, false);
        let mut header = Header::new_old();
        if let Err(error) = self.input.read_exact(header.as_mut_bytes()) {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof if first => malformed(NOT_AN_ARCHIVE),
                io::ErrorKind::UnexpectedEof if !self.end_marked => Ok(None),
                io::ErrorKind::UnexpectedEof => {
                    malformed("it ends without an end mark\nHint: it was cut short; copy it again")
                }
                _ => Err(error.into()),
            };
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let found = sum(&bytes[..148]) + sum(&[b' '; 8]) + sum(&bytes[156..]);
        if header.cksum().is_ok_and(|written| written == found) {
            Ok(Some(header))
        } else if first {
            malformed(NOT_AN_ARCHIVE)
        } else {
            malformed("a header's checksum is wrong\nHint: the file is damaged; copy it again")
        }
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, Fault> {
        let size = header.entry_size()?;
        if size > MAX_EXTENSION {
            return malformed(format!("an extended header of {size} bytes"));
        }
        self.expect(size)?;
        let mut content = Vec::new();
        self.take(size).read_to_end(&mut content)?;
        Ok(content)
    }

    fn expect(&mut self, size: u64) -> Result<(), Fault> {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        if size > i64::MAX as u64 {
            return malformed(format!("a file of {size} bytes"));
        }
        Ok(())
    }

    /// To the next header.
    fn skip(&mut self) -> Result<(), Fault> {
        io::copy(self, &mut io::sink())?;
        // Where the stream ends in it, the next header will be missing too, and that is judged.
        let padding = std::mem::take(&mut self.padding);
        io::copy(&mut self.input.by_ref().take(padding), &mut io::sink())?;
        Ok(())
    }
}

const NOT_AN_ARCHIVE: &str = "it is neither a tar archive (plain, gzip or zstd) nor an image\nHint: an image is `host`, a directory, a tar, or an OCI or docker image";

impl Extended {
    /// Records of the form `LENGTH KEY=VALUE\n`; the value may hold any bytes.
    fn read_pax(&mut self, mut records: &[u8]) -> Result<(), Fault> {
        while !records.is_empty() {
            let Some((record, rest)) = pax_record(records) else {
                return malformed("an extended header does not follow the pax format");
            };
            let (key, value) = record;
            self.set(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Fault> {
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.size = Some(number(key, value)?),
            "uid" => self.uid = Some(number(key, value)?),
            "gid" => self.gid = Some(number(key, value)?),
            "mtime" => self.mtime = Some(time(value)?),
            "GNU.sparse.size" => self.sparse.0 = Some(number(key, value)?),
            "GNU.sparse.map" => self.sparse.1 = Some(value.to_vec()),
            // The list says as much.
            "GNU.sparse.numblocks" => {}
            _ if key.starts_with("GNU.sparse.") => {
                return sparse(self.path.as_deref().unwrap_or_default());
            }
            _ => {
                if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                    self.xattrs.push((name.to_owned(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

type Record<'a> = (&'a str, &'a [u8]);

fn pax_record(records: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let digits = records.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..digits]).ok()?.parse().ok()?;
    let body = records.get(digits + 1..length)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    let key = std::str::from_utf8(&body[..equals]).ok()?;
    Some(((key, &body[equals + 1..]), &records[length..]))
}

/// Some tools leave out what does not matter to an entry.
fn or_blank<T: Default>(field: &[u8], read: io::Result<T>) -> io::Result<T> {
    let blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if blank { Ok(T::default()) } else { read }
}

fn number(key: &str, value: &[u8]) -> Result<u64, Fault> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Fault::Malformed(format!("an extended header's {key} is no number")))
}

/// Seconds since 1970 with an optional fraction, perhaps negative.
fn time(value: &[u8]) -> Result<Timespec, Fault> {
    let parse = || {
        let text = std::str::from_utf8(value).ok()?;
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let seconds: i64 = whole.parse().ok()?;
        let digits = &fraction[..fraction.len().min(9)];
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let nanos: i64 = format!("{digits:0<9}").parse().ok()?;
        // -1.25 is 2 seconds before 1970 and 0.75 after that.
        if whole.starts_with('-') && nanos > 0 {
            Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos))
        } else {
            Some((seconds, nanos))
        }
    };
    match parse() {
        Some((seconds, nanos)) => Ok(Timespec { tv_sec: seconds, tv_nsec: nanos }),
        None => malformed("an extended header's mtime is no time"),
    }
}

fn sparse<T>(path: &[u8]) -> Result<T, Fault> {
    malformed(format!(
        "entry `{}` is a sparse file in a format that is not read\nHint: make the archive without `--sparse`, or with `--format=posix --sparse-version=0.1`",
        shown(path)
    ))
}

/// GNU long names end in a NUL.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// A name fit for a terminal.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    printable(&String::from_utf8_lossy(path).replace(['\n', '\t'], "\u{fffd}")).chars().take(300).collect()
}

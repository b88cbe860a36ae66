//! Figures for people: how far a transfer is, and how it went.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::path::Relative;

/// A path, and what is the matter with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Below the destination.
    pub path: String,
    /// The reason, or the difference.
    pub why: String,
}

impl Named {
    pub(crate) fn new(path: &Relative, why: String) -> Self {
        Self { path: path.to_string(), why }
    }
}

/// Paths that need a word.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) failed: Vec<Named>,
    pub(crate) changed: Vec<Named>,
    pub(crate) skipped: Vec<String>,
    pub(crate) different: Vec<Named>,
    pub(crate) extra: Vec<String>,
    /// Bytes of what the receiver named.
    heard: usize,
}

/// Bytes of names and reasons that a receiver may send.
const HEARD: usize = 256 << 20;

impl Outcome {
    fn hear(&mut self, bytes: usize) -> Result<(), TransferError> {
        self.heard += bytes + 64;
        if self.heard > HEARD {
            return Err(TransferError::Protocol("it names too many entries".to_owned()));
        }
        Ok(())
    }

    /// Takes an entry that the receiver names, into one of the lists.
    pub(crate) fn name(
        &mut self,
        list: impl FnOnce(&mut Self) -> &mut Vec<Named>,
        path: &Relative,
        why: String,
    ) -> Result<(), TransferError> {
        self.hear(path.as_bytes().len() + why.len())?;
        list(self).push(Named::new(path, why));
        Ok(())
    }

    /// Takes an entry that only the receiver has.
    pub(crate) fn extra(&mut self, path: &Relative) -> Result<(), TransferError> {
        self.hear(path.as_bytes().len())?;
        self.extra.push(path.to_string());
        Ok(())
    }
}

/// The activity that takes most of the streams' time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// Reading files.
    DiskRead,
    /// Waiting for the network.
    Network,
    /// Waiting for the receiver to write.
    DiskWrite,
    /// Hashing and encrypting.
    Processor,
    /// Waiting for files to be listed, or for the receiver to look for what it has.
    Listing,
    /// `--limit`.
    Limit,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DiskRead => "the disk here",
            Self::Network => "the network",
            Self::DiskWrite => "the disk at the destination",
            Self::Processor => "the processor",
            Self::Listing => "listing files",
            Self::Limit => "--limit",
        })
    }
}

/// Figures of a transfer that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes of files that were dealt with.
    pub done: u64,
    /// Bytes of files that were listed so far.
    pub total: u64,
    /// Files at the destination.
    pub files: u64,
    /// Files listed so far.
    pub files_total: u64,
    /// Bytes per second, since the beginning.
    pub rate: f64,
    /// Streams of data.
    pub streams: u32,
    /// The bottleneck so far.
    pub limit: Bottleneck,
}

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Regular files listed.
    pub files: u64,
    /// Directories listed.
    pub directories: u64,
    /// Symbolic and hard links listed.
    pub links: u64,
    /// Bytes of the files, holes included.
    pub bytes: u64,
    /// Bytes of frames that went over the streams of data.
    pub sent: u64,
    /// Bytes that the receiver had already.
    pub kept: u64,
    /// Files that were the same at the destination.
    pub unchanged: u64,
    /// Files that changed while they were read: the destination has no version, or the older one.
    pub changed: Vec<Named>,
    /// Files that could not be read, or not be written.
    pub failed: Vec<Named>,
    /// Sockets, FIFOs and devices.
    pub skipped: Vec<String>,
    /// With `--verify-only`: entries that are missing, or not the same.
    pub different: Vec<Named>,
    /// With `--verify-only`: entries of the destination alone.
    pub extra: Vec<String>,
    /// Seconds, from the first connection to the receiver's last word.
    pub seconds: f64,
    /// Seconds from the first frame of data to the last: `sent` in this time keeps to `--limit`.
    pub data_seconds: f64,
    /// Round-trip time, seconds: of opening a connection.
    pub rtt: f64,
    /// Streams of data, at the end.
    pub streams: u32,
    /// Congestion control of the streams.
    pub congestion_control: String,
    /// The options of the streams, with their reasons.
    pub choices: Vec<Choice>,
    /// The bottleneck of the whole transfer.
    pub limited_by: Bottleneck,
}

/// An option of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// The congestion control of the sender.
    CongestionControl,
    /// Buffers of a sender's sockets.
    SendBuffer,
    /// Buffers of a receiver's sockets.
    ReceiveBuffer,
    /// Streams at the beginning.
    Streams,
    /// The rate that no stream exceeds for a moment.
    Pacing,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CongestionControl => "congestion control",
            Self::SendBuffer => "send buffer",
            Self::ReceiveBuffer => "receive buffer",
            Self::Streams => "streams",
            Self::Pacing => "pacing",
        })
    }
}

/// An option that an end chose for its streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The option.
    pub setting: Setting,
    /// The value, in words.
    pub value: String,
    /// The rule of `slipway tune` that leads to it.
    pub rule: Option<String>,
    /// The reason.
    pub why: String,
}

/// A list of a [`Report`], for one of its entries on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum List {
    /// [`Report::changed`].
    Changed,
    /// [`Report::failed`].
    Failed,
    /// [`Report::skipped`].
    Skipped,
    /// [`Report::different`].
    Different,
    /// [`Report::extra`].
    Extra,
}

impl Outcome {
    /// Takes an entry of a report that comes from the other end.
    pub(crate) fn told(&mut self, list: List, named: Named) -> Result<(), TransferError> {
        self.hear(named.path.len() + named.why.len())?;
        match list {
            List::Changed => self.changed.push(named),
            List::Failed => self.failed.push(named),
            List::Skipped => self.skipped.push(named.path),
            List::Different => self.different.push(named),
            List::Extra => self.extra.push(named.path),
        }
        Ok(())
    }
}

impl Report {
    /// Takes all lists out, entry by entry: together they may be longer than a message.
    pub(crate) fn take_lists(&mut self) -> impl Iterator<Item = (List, Named)> {
        let plain = |paths: Vec<String>| paths.into_iter().map(|path| Named { path, why: String::new() }).collect();
        let lists: [(List, Vec<Named>); 5] = [
            (List::Changed, std::mem::take(&mut self.changed)),
            (List::Failed, std::mem::take(&mut self.failed)),
            (List::Skipped, plain(std::mem::take(&mut self.skipped))),
            (List::Different, std::mem::take(&mut self.different)),
            (List::Extra, plain(std::mem::take(&mut self.extra))),
        ];
        lists.into_iter().flat_map(|(list, all)| all.into_iter().map(move |named| (list, named)))
    }

    /// Puts the lists in.
    pub(crate) fn with(mut self, outcome: Outcome) -> Self {
        self.changed.extend(outcome.changed);
        self.failed.extend(outcome.failed);
        self.skipped.extend(outcome.skipped);
        self.different.extend(outcome.different);
        self.extra.extend(outcome.extra);
        self
    }

    /// True where nothing was left out and nothing differs.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.changed.is_empty() && self.failed.is_empty() && self.different.is_empty() && self.extra.is_empty()
    }
}

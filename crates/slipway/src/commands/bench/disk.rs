//! `slipway bench disk`

use std::path::PathBuf;

use clap::ValueEnum;
use slipway_document::units::{ByteRate, Bytes, Seconds, UnitError};
use slipway_study::bench::Subject;
use slipway_study::bench::disk::{Disk, Mode};

use super::{Rounds, distinct, take, whole};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Measure sequential reads and writes of a disk, by fio
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command makes files in a folder of their own in DIRECTORY, at most twice --size, and removes them at the end and
after Ctrl-C. It looks for the free space first. The limit is direct access with 32 requests of 1 MiB at once, measured
in the same rounds, or --limit.

--readahead is a setting of the whole disk, so it takes root and a disk that is a loop device. The command puts it back.

Examples:
  slipway bench disk /data
  slipway bench disk /data --block 16KiB,256KiB,1MiB,16MiB
  slipway bench disk /data --mode direct --depth 8 --limit 2.7GB/s
  slipway bench disk /mnt/loop --mode buffered --readahead 128KiB,4MiB,32MiB")]
pub(super) struct Args {
    /// A folder on the disk
    directory: PathBuf,
    /// Size of the file
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = size)]
    size: Bytes,
    /// Sizes of a request
    #[arg(long, value_delimiter = ',', default_value = "1MiB", value_name = "SIZE,…", value_parser = size)]
    block: Vec<Bytes>,
    /// How data pass the page cache; fdatasync: through it, and a write ends when the data are on the disk
    #[arg(long, value_delimiter = ',', value_name = "MODE,…", default_value = "direct,buffered,fdatasync")]
    mode: Vec<ModeWord>,
    /// Requests at once, of direct access
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Sizes to read ahead
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…")]
    readahead: Vec<Bytes>,
    /// The limit [default: measured]
    #[arg(long, value_name = "RATE")]
    limit: Option<ByteRate>,
    /// End each pass over the file after this time
    #[arg(long, default_value = "10s", value_name = "TIME")]
    time: Seconds,
    #[command(flatten)]
    rounds: Rounds,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum ModeWord {
    Direct,
    Buffered,
    Fdatasync,
}

/// fio and disks take multiples of 4 KiB, and iperf3 takes more than nothing.
fn size(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: UnitError| error.to_string())?;
    if bytes.0 >= 4096 && bytes.0.is_multiple_of(4096) { Ok(bytes) } else { Err("write a multiple of 4KiB".to_owned()) }
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(block) = self.block.iter().find(|block| **block > self.size) {
            return Err(Failure::usage(format!(
                "read in blocks of {block}: the file has {}\nHint: give a greater --size or a smaller --block",
                self.size
            )));
        }
        let mode = |word: &ModeWord| match word {
            ModeWord::Direct => Mode::Direct,
            ModeWord::Buffered => Mode::Buffered,
            ModeWord::Fdatasync => Mode::Synced,
        };
        if !self.readahead.is_empty() && !self.mode.contains(&ModeWord::Buffered) {
            return Err(Failure::usage("vary the readahead: direct access does without\nHint: add --mode buffered"));
        }
        let disk = Disk {
            folder: self.directory,
            size: self.size,
            blocks: distinct(self.block),
            modes: distinct(self.mode.iter().map(mode).collect()),
            depth: self.depth,
            readaheads: distinct(self.readahead),
            limit: self.limit,
            most_seconds: whole(self.time),
        };
        take(context, Subject::Disk(disk), self.rounds)
    }
}

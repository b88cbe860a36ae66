//! The orders of a coordinator, as bytes: they end with the coordinator, with the part that they are about, with a signal,
//! or with silence.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use slipway_sys::signals::Taken;

/// A coordinator's orders, as bytes.
#[derive(Debug)]
pub struct Input {
    file: File,
    end: Option<OwnedFd>,
    /// Readable once this process is asked to end.
    asked: Option<OwnedFd>,
    /// Longest silence of a coordinator that is there.
    patience: Option<Duration>,
}

impl Input {
    /// Reads from a descriptor.
    ///
    /// # Errors
    /// As `dup(2)`.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { file: descriptor.try_clone_to_owned()?.into(), end: None, asked: None, patience: None })
    }

    /// Has the input end as soon as this process is asked to end, by one of these signals.
    ///
    /// # Errors
    /// As `dup(2)`.
    pub fn end_by(&mut self, signals: &Taken) -> io::Result<()> {
        self.asked = Some(signals.as_fd().try_clone_to_owned()?);
        Ok(())
    }

    /// Has the input end as soon as this can be read, which a process's descriptor can once it has ended (`pidfd_open(2)`).
    /// A coordinator whose connection is cut may never be heard of again.
    pub(crate) fn end_with(&mut self, end: Option<OwnedFd>) {
        self.end = end;
    }

    /// Has the input end once nothing has come for so long: the coordinator speaks more often.
    pub(crate) fn end_after(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut on = vec![PollFd::new(&self.file, PollFlags::IN)];
        on.extend(self.end.iter().chain(&self.asked).map(|end| PollFd::new(end, PollFlags::IN)));
        let patience = self.patience.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        while let Err(error) = poll(&mut on, patience.as_ref()) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        // Orders that have come go first.
        if on[0].revents().is_empty() { Ok(0) } else { self.file.read(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn it_ends_with_its_sender_or_with_what_it_is_about_or_after_silence() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = Input::of(reader.as_fd()).unwrap();
        let (ends, end) = io::pipe().unwrap();
        input.end_with(Some(ends.into()));
        writer.write_all(b"order").unwrap();
        drop(end);
        let mut bytes = [0; 8];
        assert_eq!(input.read(&mut bytes).unwrap(), 5);
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "the part has ended");
        input.end_with(None);
        input.end_after(Duration::from_millis(1));
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "the sender says nothing");
        writer.write_all(b"order").unwrap();
        assert_eq!(input.read(&mut bytes).unwrap(), 5);
        let (asks, asked) = io::pipe().unwrap();
        input.asked = Some(asks.into());
        drop(asked);
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "this process is asked to end");
        input.asked = None;
        drop(writer);
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "the sender has ended");
    }
}

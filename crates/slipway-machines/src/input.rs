//! The orders of a coordinator, as bytes: they end with the coordinator, or with the part that they are about.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A coordinator's orders, as bytes.
#[derive(Debug)]
pub struct Input {
    file: File,
    end: Option<OwnedFd>,
}

impl Input {
    /// Reads from a descriptor.
    ///
    /// # Errors
    /// As `dup(2)`.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { file: descriptor.try_clone_to_owned()?.into(), end: None })
    }

    /// Has the input end as soon as this can be read, which a process's descriptor can once it has ended (`pidfd_open(2)`).
    /// A coordinator whose connection is cut may never be heard of again.
    pub(crate) fn end_with(&mut self, end: Option<OwnedFd>) {
        self.end = end;
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(end) = &self.end else { return self.file.read(bytes) };
        let mut on = [PollFd::new(&self.file, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        while let Err(error) = poll(&mut on, None) {
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
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn it_ends_with_its_sender_or_with_what_it_is_about() {
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
        drop(writer);
        assert_eq!(input.read(&mut bytes).unwrap(), 0, "the sender has ended");
    }
}

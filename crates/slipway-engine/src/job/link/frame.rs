//! Frames of a link, and their bytes: a kind, then its content. [`Frames`](crate::protocol::Frames) says where each ends.

use std::io;

/// Longest message, bytes: a command with its environment, or the nodes of a large job.
pub const LONGEST: usize = 16 << 20;
/// Most bytes of a stream in one frame.
pub const CHUNK: usize = 16 * 1024;

/// A stream of a program: the program's number, and the descriptor that the program has it as (0 to 2).
pub type Id = (u32, u8);

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message of those who use the link: JSON.
    Message(&'a [u8]),
    /// Bytes of a stream.
    Data(Id, &'a [u8]),
    /// So many bytes of a stream found a reader, and as many more may come.
    Taken(Id, u32),
    /// A stream ends: no more bytes come.
    Closed(Id),
    /// A stream has no reader any more.
    Unread(Id),
}

impl Frame<'_> {
    /// Appends the frame with its length to `to`. The length fits: the bytes are bounded by the callers.
    pub fn write(&self, to: &mut impl Extend<u8>) {
        let stream = |(program, stream): Id| {
            let mut bytes = program.to_be_bytes().to_vec();
            bytes.push(stream);
            bytes
        };
        let (kind, id, content): (u8, Option<Id>, &[u8]) = match self {
            Self::Message(text) => (0, None, text),
            Self::Data(id, bytes) => (1, Some(*id), bytes),
            Self::Taken(id, count) => (2, Some(*id), &count.to_be_bytes()),
            Self::Closed(id) => (3, Some(*id), &[]),
            Self::Unread(id) => (4, Some(*id), &[]),
        };
        let id = id.map(stream).unwrap_or_default();
        let length = u32::try_from(1 + id.len() + content.len()).unwrap_or(u32::MAX);
        to.extend(length.to_be_bytes());
        to.extend([kind]);
        to.extend(id);
        to.extend(content.iter().copied());
    }
}

/// Reads a frame without its length.
///
/// # Errors
/// `InvalidData` for bytes that are none.
pub fn read(bytes: &[u8]) -> io::Result<Frame<'_>> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "a frame is none of this protocol");
    let (&kind, rest) = bytes.split_first().ok_or_else(nonsense)?;
    if kind == 0 {
        return Ok(Frame::Message(rest));
    }
    let (program, rest) = rest.split_first_chunk::<4>().ok_or_else(nonsense)?;
    let (&stream, rest) = rest.split_first().filter(|(stream, _)| **stream < 3).ok_or_else(nonsense)?;
    let id = (u32::from_be_bytes(*program), stream);
    match kind {
        1 if rest.len() <= CHUNK => Ok(Frame::Data(id, rest)),
        2 => Ok(Frame::Taken(id, u32::from_be_bytes(rest.try_into().map_err(|_| nonsense())?))),
        3 if rest.is_empty() => Ok(Frame::Closed(id)),
        4 if rest.is_empty() => Ok(Frame::Unread(id)),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::Frames;

    fn id() -> impl Strategy<Value = Id> {
        (any::<u32>(), 0..3_u8)
    }

    proptest! {
        #[test]
        fn frames_come_back_as_they_were_written(
            id in id(), bytes in prop::collection::vec(any::<u8>(), 0..300), count: u32, kind in 0..5,
        ) {
            let frame = match kind {
                0 => Frame::Message(&bytes),
                1 => Frame::Data(id, &bytes),
                2 => Frame::Taken(id, count),
                3 => Frame::Closed(id),
                _ => Frame::Unread(id),
            };
            let (mut wire, mut frames) = (Vec::new(), Frames::default());
            frame.write(&mut wire);
            frames.push(&wire);
            let whole = frames.take(LONGEST).expect("it is short").expect("it is whole");
            prop_assert_eq!(read(&whole).expect("it is a frame"), frame);
            prop_assert!(frames.is_empty());
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&bytes);
        }
    }
}

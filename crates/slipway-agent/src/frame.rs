//! Frames of a connection, each a kind, a length and bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Most bytes of a frame's content.
pub const MOST: usize = 256 << 10;
/// Bytes before the content: the kind, and the content's length, big endian.
const HEAD: usize = 5;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command, as a shell reads it. The client's first frame.
    Words,
    /// Bytes for standard input.
    Input,
    /// The end of standard input.
    InputEnd,
    /// Bytes of standard output.
    Output,
    /// Bytes of standard error.
    Errors,
    /// The command's exit code, one byte. The agent's last frame.
    Ended,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Words, Self::Input, Self::InputEnd, Self::Output, Self::Errors, Self::Ended];

    fn byte(self) -> u8 {
        self as u8
    }

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// The next frame; none where the connection ended between two.
///
/// # Errors
/// When the connection fails or ends within a frame, or what comes is none.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; HEAD];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let kind = Kind::of(head[0]).ok_or_else(|| wrong("a frame of no kind"))?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > MOST {
        return Err(wrong("a frame that is too long"));
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content).await?;
    Ok(Some((kind, content)))
}

/// Sends a frame. The content has at most [`MOST`] bytes.
///
/// # Errors
/// When the connection fails, or the content is too long.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), kind: Kind, content: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let length = u32::try_from(content.len()).ok().filter(|_| content.len() <= MOST).ok_or_else(too_long)?;
    let mut frame = Vec::with_capacity(HEAD + content.len());
    frame.push(kind.byte());
    frame.extend(length.to_be_bytes());
    frame.extend(content);
    to.write_all(&frame).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    proptest! {
        #[test]
        fn frames_survive_the_way(kind in proptest::sample::select(&Kind::ALL), content: Vec<u8>) {
            let read = block_on(async {
                let mut way = Vec::new();
                write(&mut way, kind, &content).await.expect("it fits");
                read(&mut &way[..]).await.expect("a frame")
            });
            prop_assert_eq!(read, Some((kind, content)));
        }

        #[test]
        fn any_bytes_are_a_frame_or_refused(bytes: Vec<u8>) {
            if let Ok(Some((_, content))) = block_on(read(&mut &bytes[..])) {
                prop_assert!(content.len() + HEAD <= bytes.len());
            }
        }
    }
}

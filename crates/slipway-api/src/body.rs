//! Bodies that are files.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;

use crate::app::aside;
use crate::error::ApiError;

/// Longest archive, as it comes, in bytes.
pub(crate) const ARCHIVE: u64 = 1 << 30;
/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;

/// A body in a file without others' access, gone with the value.
#[derive(Debug)]
pub(crate) struct Kept(PathBuf);

impl Kept {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a body to a file of at most `most` bytes.
pub(crate) async fn keep<E>(
    mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    most: u64,
) -> Result<Kept, ApiError> {
    let path = std::env::temp_dir().join(format!("slipway-{}", crate::tokens::secret()));
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.write(true).create_new(true).open(&path)?;
    let kept = Kept(path);
    let mut size = 0;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| ApiError::bad("read the body: the connection ended"))?;
        size += piece.len() as u64;
        if size > most {
            return Err(ApiError::large("read the body: it is too large"));
        }
        file = aside(move || {
            file.write_all(&piece)?;
            Ok(file)
        })
        .await?;
    }
    Ok(kept)
}

/// A body that a thread writes: `write` gets a writer, and ends early with an error once nobody reads.
pub(crate) fn written(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()> + Send + 'static) -> Body {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(4);
    tokio::task::spawn_blocking(move || {
        let mut pieces = io::BufWriter::with_capacity(PIECE, Pieces(sender.clone()));
        if let Err(error) = write(&mut pieces).and_then(|()| io::Write::flush(&mut pieces)) {
            tracing::debug!("send a body: {error}");
            // The reader learns that the body is cut off, as its connection ends.
            let _ = sender.blocking_send(Err(error));
        }
    });
    Body::from_stream(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }))
}

struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(piece)));
        sent.map(|()| piece.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Objects from a worker's folder to the bucket.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMultipartOptions, WriteMultipart};
use slipway_results::Digest;
use slipway_results::objects::Waiting;
use slipway_results::objects::service::Fault;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use crate::bucket::{PIECE, Store};

/// Objects on their way at once, of all workers. Each has some pieces in memory.
const AT_ONCE: usize = 16;
/// Pieces of one object that are on their way at once.
const PIECES: usize = 3;

/// The bound of what is on its way.
pub(crate) fn bound() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// Takes objects over from a worker's folder. Returns the bytes by which storage grew.
pub(crate) async fn adopt(
    store: &Arc<Store>,
    bound: &Arc<Semaphore>,
    out: &Path,
    digests: Vec<Digest>,
) -> Result<u64, Fault> {
    let mut uploads = JoinSet::new();
    for digest in digests {
        let (store, bound, out) = (store.clone(), bound.clone(), out.to_owned());
        uploads.spawn(async move {
            // It is never closed.
            let _turn = bound.acquire().await;
            adopt_one(&store, &out, digest).await
        });
    }
    let mut grew = 0;
    // The first error ends the others, as the set is dropped.
    while let Some(upload) = uploads.join_next().await {
        grew += upload.map_err(|error| Fault::Service(error.to_string()))??;
    }
    Ok(grew)
}

async fn adopt_one(store: &Store, out: &Path, digest: Digest) -> Result<u64, Fault> {
    let failed = |error: io::Error| Fault::Service(format!("take object {digest} from a worker's folder: {error}"));
    let waiting = match Waiting::open(out, &digest) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(Fault::Content(digest, error.to_string()));
        }
        waiting => waiting.map_err(failed)?,
    };
    let Some(waiting) = waiting else {
        return if store.find(&digest).await?.is_some() { Ok(0) } else { Err(Fault::Missing(digest)) };
    };
    let waiting = Arc::new(waiting);
    // Equal content is compressed to equal bytes. So a different size means that one of the two is not what its name says.
    let grows = match store.find(&digest).await? {
        None => true,
        Some(found) if found.size == waiting.size() => false,
        Some(_) => {
            let ours = waiting.clone();
            spawn_blocking(move || ours.is_right()).await.map_err(|error| failed(error.into()))?.map_err(failed)?
        }
    };
    let size = waiting.size();
    if grows {
        upload(store, &digest, &waiting).await?;
    }
    Arc::into_inner(waiting).map_or(Ok(()), Waiting::remove).map_err(failed)?;
    Ok(if grows { size } else { 0 })
}

/// Uploads an object. It appears whole, or not at all: a request that breaks off leaves none.
async fn upload(store: &Store, digest: &Digest, waiting: &Waiting) -> Result<(), Fault> {
    let path = store.object(digest);
    let refused = store.failed("store results in");
    let failed = |error: io::Error| Fault::Service(format!("read object {digest} of a worker: {error}"));
    let mut left = waiting.size();
    let mut file = waiting.file().map_err(failed)?;
    if left <= PIECE {
        let (_, bytes) = piece(file, left).await.map_err(failed)?;
        return store.s3.put(&path, bytes.into()).await.map(drop).map_err(refused);
    }
    let upload = store.s3.put_multipart_opts(&path, PutMultipartOptions::default()).await.map_err(&refused)?;
    let chunk = usize::try_from(PIECE).unwrap_or(usize::MAX);
    let mut upload = WriteMultipart::new_with_chunk_size(upload, chunk);
    let mut outcome = Ok(());
    while left > 0 {
        let bytes;
        (file, bytes) = match piece(file, left.min(PIECE)).await {
            Ok(piece) => piece,
            Err(error) => {
                outcome = Err(failed(error));
                break;
            }
        };
        left -= bytes.len() as u64;
        if let Err(error) = upload.wait_for_capacity(PIECES).await {
            outcome = Err(refused(error));
            break;
        }
        upload.put(bytes.into());
    }
    match outcome {
        Ok(()) => upload.finish().await.map(drop).map_err(refused),
        Err(fault) => {
            // The first error is the cause. The server's own rules remove parts that no request removed.
            let _ = upload.abort().await;
            Err(fault)
        }
    }
}

/// The next bytes of a file. One that became shorter since is an error.
async fn piece(mut file: File, size: u64) -> io::Result<(File, Vec<u8>)> {
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        file.read_exact(&mut bytes)?;
        Ok((file, bytes))
    });
    read.await?
}

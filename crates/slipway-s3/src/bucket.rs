//! A part of a bucket, and what is done with its objects.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions,
    RetryConfig,
};
use slipway_campaign::model::Bucket;
use slipway_results::Digest;
use slipway_results::objects::service::{Fault, Listed, Owner};

use crate::fault::fault;
use crate::key;

/// Bytes that are read or written by one request. Memory is bounded by it.
pub(crate) const PIECE: u64 = 8 << 20;
/// Longest time of one request: a piece at 1 Mbit/s.
const REQUEST: Duration = Duration::from_secs(70);
const CONNECT: Duration = Duration::from_secs(5);
/// Time for which a server may be busy or restart, before a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRIES: usize = 8;
/// Objects of an answer.
const PAGE: usize = 1000;
/// Name of the object that says whose the part of the bucket is.
const OWNER: &str = "campaign.json";

/// A part of a bucket.
pub(crate) struct Store {
    pub(crate) s3: AmazonS3,
    pub(crate) bucket: Bucket,
}

impl Store {
    /// Prepares to use a bucket. Nothing is sent.
    pub(crate) fn open(bucket: Bucket) -> Result<Self, Fault> {
        let key = key::find(&bucket)?;
        let is_plain = bucket.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT).with_allow_http(is_plain);
        let backoff =
            BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(3), base: 2.0 };
        let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: PATIENCE };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&bucket.name)
            .with_region(&bucket.region)
            .with_access_key_id(key.id)
            .with_secret_access_key(key.secret)
            .with_client_options(client)
            .with_retry(retry);
        if let Some(token) = key.token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = &bucket.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        match builder.build() {
            Ok(s3) => Ok(Self { s3, bucket }),
            Err(error) => Err(Fault::Service(format!("use {bucket}: {error}"))),
        }
    }

    /// The fault that an error is.
    pub(crate) fn failed(&self, doing: &str) -> impl Fn(Error) -> Fault {
        let (doing, bucket) = (doing.to_owned(), self.bucket.clone());
        move |error| fault(&doing, &bucket, &error)
    }

    fn path(&self, name: &str) -> Path {
        self.bucket.prefix.split('/').chain(name.split('/')).filter(|part| !part.is_empty()).collect()
    }

    pub(crate) fn object(&self, digest: &Digest) -> Path {
        self.path(&format!("objects/{digest}.zst"))
    }

    /// Looks whether the bucket is there and its objects can be listed.
    pub(crate) async fn look(&self) -> Result<(), Fault> {
        match self.s3.list(Some(&self.path("objects"))).next().await {
            Some(Err(error)) => Err(self.failed("look into")(error)),
            _ => Ok(()),
        }
    }

    /// Makes sure that the bucket takes objects, and belongs to this campaign: `gc` removes what no result of it names.
    pub(crate) async fn begin(&self, owner: &Owner) -> Result<(), Fault> {
        let failed = self.failed("store results in");
        let path = self.path(OWNER);
        let text = serde_json::to_vec(owner).map_err(|error| Fault::Service(error.to_string()))?;
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.s3.put_opts(&path, text.clone().into(), create).await {
            Ok(_) => return Ok(()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let there = self.s3.get(&path).await.map_err(&failed)?.bytes().await.map_err(&failed)?;
        let campaign = match serde_json::from_slice::<Owner>(&there) {
            Ok(there) if there.id == owner.id => return Ok(()),
            Ok(there) => format!("campaign `{}` of another folder", there.campaign.escape_default()),
            Err(_) => format!("somebody else: {OWNER} there is not ours"),
        };
        Err(Fault::Service(format!(
            "store results in {}: it belongs to {campaign}\nHint: give each campaign a prefix of its own in `storage:`",
            self.bucket
        )))
    }

    /// The object's size and age; `None` where storage lacks it.
    pub(crate) async fn find(&self, digest: &Digest) -> Result<Option<ObjectMeta>, Fault> {
        match self.s3.head(&self.object(digest)).await {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look into")(error)),
        }
    }

    /// Names all objects, page by page.
    pub(crate) async fn list(&self, mut see: impl AsyncFnMut(Vec<Listed>) -> std::io::Result<()>) -> Result<(), Fault> {
        let mut pages = self.s3.list(Some(&self.path("objects"))).try_chunks(PAGE);
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| self.failed("list")(error.1))?;
            let objects = page.iter().filter_map(listed).collect();
            see(objects).await.map_err(|error| Fault::Service(error.to_string()))?;
        }
        Ok(())
    }

    pub(crate) async fn remove(&self, digest: &Digest) -> Result<(), Fault> {
        match self.s3.delete(&self.object(digest)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove an object of")(error)),
        }
    }

    /// Reads an object piece by piece, so that neither memory nor the time of a request depends on its size.
    pub(crate) async fn read(
        &self,
        digest: &Digest,
        mut see: impl AsyncFnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Fault> {
        let path = self.object(digest);
        let failed = |error: Error| match error {
            Error::NotFound { .. } if !error.to_string().contains("NoSuchBucket") => Fault::Gone(*digest),
            error => self.failed("read an object of")(error),
        };
        let gone = |error: std::io::Error| Fault::Service(error.to_string());
        let found = self.s3.get(&path).await.map_err(failed)?;
        let size = found.meta.size;
        if size <= PIECE {
            let bytes = found.bytes().await.map_err(failed)?;
            return if bytes.is_empty() { Ok(()) } else { see(&bytes).await.map_err(gone) };
        }
        drop(found);
        let mut at = 0;
        while at < size {
            let end = size.min(at + PIECE);
            let bytes = self.s3.get_range(&path, at..end).await.map_err(failed)?;
            see(&bytes).await.map_err(gone)?;
            at = end;
        }
        Ok(())
    }
}

fn listed(found: &ObjectMeta) -> Option<Listed> {
    let digest = found.location.filename()?.strip_suffix(".zst")?.parse().ok()?;
    let adopted = u64::try_from(found.last_modified.timestamp()).unwrap_or(0);
    Some(Listed { digest, stored: found.size, adopted })
}

//! Requests on standard input, answers on standard output.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use slipway_results::objects::service::{Answer, Fault, Hello, LONGEST, PULSE, Request, Told, What, line};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Stdin, Stdout};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, interval_at};

use crate::bucket::Store;
use crate::upload;

/// The state that all requests share.
struct Desk {
    /// The bucket, or the reason why it cannot be used: each request gets it.
    store: Result<Arc<Store>, Fault>,
    uploads: Arc<Semaphore>,
    output: Mutex<Stdout>,
}

/// Answers requests until the caller closes its end.
pub(crate) async fn serve() -> io::Result<()> {
    let mut input = BufReader::new(tokio::io::stdin());
    let Some(Hello { version, bucket }) = next(&mut input).await? else { return Ok(()) };
    let own = env!("CARGO_PKG_VERSION");
    let store = if version == own {
        Store::open(bucket).map(Arc::new)
    } else {
        Err(Fault::Service(format!(
            "work for slipway {version}: this slipway-s3 is of version {own}\nHint: install both programs from one build"
        )))
    };
    let desk = Arc::new(Desk { store, uploads: upload::bound(), output: Mutex::new(tokio::io::stdout()) });
    while let Some(Request { id, what }) = next(&mut input).await? {
        let desk = desk.clone();
        tokio::task::spawn_local(async move {
            let told = desk.answer(id, what).await.unwrap_or_else(Told::Failed);
            // Without a caller, nobody hears of it.
            let _ = desk.tell(id, told, &[]).await;
        });
    }
    Ok(())
}

/// The next message; `None` at the end.
async fn next<T: serde::de::DeserializeOwned>(input: &mut BufReader<Stdin>) -> io::Result<Option<T>> {
    let mut text = Vec::new();
    input.take(LONGEST).read_until(b'\n', &mut text).await?;
    if text.is_empty() { Ok(None) } else { serde_json::from_slice(&text).map(Some).map_err(io::Error::from) }
}

impl Desk {
    async fn tell(&self, id: u64, what: Told, data: &[u8]) -> io::Result<()> {
        let mut output = self.output.lock().await;
        output.write_all(&line(&Answer { id, what })).await?;
        output.write_all(data).await?;
        output.flush().await
    }

    /// Says that the program lives, for as long as the work takes. A caller replaces a program that is silent.
    async fn with_pulse<T>(&self, id: u64, work: impl Future<Output = T>) -> T {
        let mut pulse = interval_at(Instant::now() + PULSE, PULSE);
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = pulse.tick() => {
                    // Without a caller, nobody hears of it.
                    let _ = self.tell(id, Told::Working, &[]).await;
                }
            }
        }
    }

    /// Answers a request. Returns the last answer.
    async fn answer(&self, id: u64, what: What) -> Result<Told, Fault> {
        let store = self.store.as_ref().map_err(Clone::clone)?;
        let told = match what {
            What::Look => store.look().await.map(|()| Told::Done(0))?,
            What::Begin(owner) => store.begin(&owner).await.map(|()| Told::Done(0))?,
            What::Adopt { out, digests } => {
                let adopted = self.with_pulse(id, upload::adopt(store, &self.uploads, &out, digests));
                Told::Done(adopted.await?)
            }
            What::Remove(digest) => store.remove(&digest).await.map(|()| Told::Done(0))?,
            What::Open(digest) => {
                store.read(&digest, async |bytes: &[u8]| self.tell(id, Told::Data(bytes.len()), bytes).await).await?;
                Told::Data(0)
            }
            What::List => {
                let page = async |page: Vec<_>| {
                    if page.is_empty() { Ok(()) } else { self.tell(id, Told::Objects(page), &[]).await }
                };
                store.list(page).await?;
                Told::Objects(Vec::new())
            }
        };
        Ok(told)
    }
}

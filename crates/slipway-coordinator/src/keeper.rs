//! Storage as the coordinator uses it: objects go there without the coordinator's thread waiting for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use slipway_results::Digest;
use slipway_results::objects::service::{Answer, LONGEST, PULSE, Request, Service, Told, What, line};
use slipway_results::objects::{Directory, ObjectError, Storage as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::helper::Helper;

/// Storage of a campaign's objects.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// A folder: files of workers are moved there.
    Here(Directory),
    /// A bucket: another program sends them there.
    There(Client),
}

impl Keeper {
    /// Takes objects over from a worker's folder `out`. A repeated call changes nothing.
    pub(crate) async fn adopt(&self, out: &Path, digests: &[Digest]) -> Result<(), ObjectError> {
        match self {
            Self::Here(directory) => directory.adopt(out, digests).map(drop),
            Self::There(_) if digests.is_empty() => Ok(()),
            Self::There(client) => client.adopt(out, digests).await,
        }
    }
}

/// So long a program may be silent while somebody waits for it. One that is frozen gets a successor.
const SILENCE: Duration = PULSE.saturating_mul(10);

/// Callers that wait for an answer, by the number of their request.
#[derive(Debug)]
struct Callers {
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), ObjectError>>>,
    /// When the program last said something, or was first asked after it had answered all.
    heard: Instant,
}

/// `None`: the program has ended, or counts as ended.
type Waiting = Arc<Lock<Option<Callers>>>;

/// The program that speaks S3. It starts with the first request, and again where it was killed.
#[derive(Debug)]
pub(crate) struct Client {
    service: Service,
    line: Lock<Option<Line>>,
}

/// A program that runs.
#[derive(Debug)]
struct Line {
    _helper: Helper,
    /// Lines on their way. A caller may end at any time, and must not leave half a line.
    lines: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Waiting,
    next: u64,
    tasks: [JoinHandle<()>; 3],
}

impl Client {
    pub(crate) fn new(service: Service) -> Self {
        Self { service, line: Lock::new(None) }
    }

    async fn adopt(&self, out: &Path, digests: &[Digest]) -> Result<(), ObjectError> {
        let what = What::Adopt { out: out.to_owned(), digests: digests.to_vec() };
        // Adopting twice is adopting once. So a program that something killed or froze gets a successor, once.
        for _ in 0..2 {
            if let Ok(answer) = self.send(&what)?.await {
                return answer;
            }
        }
        Err(self.service.broken("ended, and so did its successor"))
    }

    /// Sends a request. The answer does not come where the program ends.
    fn send(&self, what: &What) -> Result<oneshot::Receiver<Result<(), ObjectError>>, ObjectError> {
        let mut place = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match place.take() {
            Some(line) if !line.has_ended() => line,
            _ => Line::open(&self.service)?,
        };
        Ok(place.insert(line).send(what))
    }
}

impl Line {
    fn open(service: &Service) -> Result<Self, ObjectError> {
        let started = Helper::start(&mut service.command());
        let (helper, input, output) = started.map_err(|error| service.unstarted(&error))?;
        let (lines, to_send) = mpsc::unbounded_channel();
        // Its other end is ours still.
        let _ = lines.send(service.hello());
        let callers = Callers { waiting: BTreeMap::new(), heard: Instant::now() };
        let waiting: Waiting = Arc::new(Lock::new(Some(callers)));
        let tasks = [
            tokio::spawn(write(input, to_send)),
            tokio::spawn(listen(output, waiting.clone())),
            tokio::spawn(watch(waiting.clone())),
        ];
        Ok(Self { _helper: helper, lines, waiting, next: 0, tasks })
    }

    fn has_ended(&self) -> bool {
        locked(&self.waiting).is_none()
    }

    fn send(&mut self, what: &What) -> oneshot::Receiver<Result<(), ObjectError>> {
        let (answer, receiver) = oneshot::channel();
        let id = self.next;
        self.next += 1;
        if let Some(callers) = locked(&self.waiting).as_mut() {
            if callers.waiting.is_empty() {
                callers.heard = Instant::now();
            }
            callers.waiting.insert(id, answer);
        }
        // Where it fails, the program has ended, and the listener drops the sender.
        let _ = self.lines.send(line(&Request { id, what: what.clone() }));
        receiver
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Writes lines to the program. Where it takes none, it has ended, and the listener says so.
async fn write(mut input: pipe::Sender, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

fn locked(waiting: &Waiting) -> MutexGuard<'_, Option<Callers>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the program for ended where it is silent while somebody waits.
async fn watch(waiting: Waiting) {
    let mut at = Instant::now() + SILENCE;
    loop {
        sleep_until(at).await;
        let now = Instant::now();
        let mut locked = locked(&waiting);
        at = match locked.as_ref() {
            None => return,
            Some(callers) if callers.waiting.is_empty() => now + SILENCE,
            Some(callers) => callers.heard + SILENCE,
        };
        if at <= now {
            // Those who waited hear that it has ended.
            *locked = None;
            return;
        }
    }
}

/// Hands answers to those who wait, until the program ends.
async fn listen(mut output: BufReader<pipe::Receiver>, waiting: Waiting) {
    loop {
        let mut text = Vec::new();
        let read = (&mut output).take(LONGEST).read_until(b'\n', &mut text).await;
        let answer = read.ok().and_then(|_| serde_json::from_slice::<Answer>(&text).ok());
        let mut waiting = locked(&waiting);
        let Some(Answer { id, what }) = answer else {
            *waiting = None;
            return;
        };
        let Some(callers) = waiting.as_mut() else { return };
        callers.heard = Instant::now();
        let told = match what {
            Told::Working => continue,
            Told::Failed(fault) => Err(fault.into()),
            // Objects that are adopted have no other answer.
            Told::Done(_) | Told::Data(_) | Told::Objects(_) => Ok(()),
        };
        if let Some(caller) = callers.waiting.remove(&id) {
            // The caller may have ended: its worker did.
            let _ = caller.send(told);
        }
    }
}

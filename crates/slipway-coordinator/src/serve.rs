//! The coordinator's end of workers' calls.
//!
//! Each worker has a socket of its own, which only its node sees: the socket says who calls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::future::join_all;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::desk::{Desk, Given, Handed};
use crate::keeper::Keeper;
use crate::protocol::{Answer, BEAT, LARGEST, Report, SETUP, Setup, TURN, Turn};
use crate::store::StoreError;

/// What all calls share.
pub(crate) struct Office {
    desk: Mutex<Desk>,
    keeper: Keeper,
    setup: Setup,
    idle: Duration,
    /// Told whenever points may be there to give out, or no more will be.
    pub(crate) changed: Notify,
    /// Told whenever attempts ended.
    pub(crate) progress: Notify,
    fault: Mutex<Option<StoreError>>,
}

impl Office {
    pub(crate) fn new(desk: Desk, keeper: Keeper, setup: Setup, idle: Duration) -> Arc<Self> {
        let (changed, progress) = (Notify::new(), Notify::new());
        Arc::new(Self { desk: Mutex::new(desk), keeper, setup, idle, changed, progress, fault: Mutex::new(None) })
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that a call met, once: the campaign cannot go on.
    pub(crate) fn fault(&self) -> Option<StoreError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn failed(&self, error: StoreError) -> StatusCode {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.progress.notify_one();
        StatusCode::INTERNAL_SERVER_ERROR
    }

    /// Has storage take a report's objects over. The worker waits; it has its lease, and its pulse goes on.
    async fn hand_in(&self, worker: u32, out: &Path, report: Report) -> Handed {
        let mut stored = self.desk().check(worker, &report);
        if stored.is_ok() {
            stored = self.keeper.adopt(out, &report.objects).await.map_err(Into::into);
        }
        Handed { report, stored }
    }

    /// One request for points; it waits for some until the worker has been idle for long enough.
    async fn turn(&self, worker: u32, out: &Path, turn: Turn) -> Result<Answer, StoreError> {
        if !turn.ended.is_empty() {
            // At once: a bucket's answer takes longer than a short point.
            let handed = join_all(turn.ended.into_iter().map(|report| self.hand_in(worker, out, report))).await;
            self.desk().record(worker, handed)?;
            self.changed.notify_waiters();
            self.progress.notify_one();
        }
        if self.desk().settle(worker)? > 0 {
            self.changed.notify_waiters();
        }
        let end = Instant::now() + self.idle;
        loop {
            let changed = self.changed.notified();
            let due = match self.desk().give(worker)? {
                Given::Run { leases, limit, values } => return Ok(Answer::Run { leases, limit, values }),
                Given::End => return Ok(Answer::End),
                Given::Wait(due) => due,
            };
            if Instant::now() >= end {
                return Ok(Answer::End);
            }
            let until = due.map_or(end, |due| end.min(Instant::now() + due));
            // Whether a change or the time ended the wait, the queue knows.
            let _ = timeout_at(until, changed).await;
        }
    }
}

/// A worker's part of the office.
#[derive(Clone)]
struct Counter {
    office: Arc<Office>,
    worker: u32,
    out: PathBuf,
}

async fn setup(State(counter): State<Counter>) -> Json<Setup> {
    Json(counter.office.setup.clone())
}

async fn turn(State(counter): State<Counter>, Json(turn): Json<Turn>) -> Result<Json<Answer>, StatusCode> {
    let Counter { office, worker, out } = counter;
    office.turn(worker, &out, turn).await.map(Json).map_err(|error| office.failed(error))
}

async fn beat(State(counter): State<Counter>) -> Json<()> {
    counter.office.desk().beat(counter.worker);
    Json(())
}

/// Answers a worker's calls on its socket, until the returned task is aborted.
pub(crate) fn open(
    office: &Arc<Office>,
    worker: u32,
    socket: &Path,
    out: PathBuf,
) -> io::Result<tokio::task::JoinHandle<()>> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    let counter = Counter { office: office.clone(), worker, out };
    let routes = Router::new()
        .route(SETUP, get(setup))
        .route(TURN, post(turn))
        .route(BEAT, post(beat))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(counter);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(worker, "answer a worker: {error}");
        }
    }))
}

//! The worker's end of its calls: points from the coordinator, results to it.

use std::io;
use std::path::Path;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use super::{Worker, WorkerError};
use crate::protocol::{Answer, BEAT, LARGEST, PULSE, Report, SETUP, Setup, SetupError, TURN, Turn};

/// The reason why a worker ends before the coordinator says so.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The coordinator cannot be reached.
    #[error("call the coordinator at {socket}: {source}")]
    Connect {
        /// Its socket.
        socket: String,
        /// The error.
        source: io::Error,
    },
    /// A call broke off.
    #[error("call the coordinator: {0}")]
    Call(#[from] hyper::Error),
    /// The coordinator refused a call.
    #[error("call the coordinator: it answered {0}")]
    Refused(StatusCode),
    /// An answer that is none.
    #[error("read the coordinator's answer: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    /// The campaign.
    #[error(transparent)]
    Setup(#[from] Box<SetupError>),
    /// Inputs, outputs, or the worker's folder.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Runs points until the coordinator says that there are none. `inputs` has the campaign's inputs; the worker writes below
/// `work`, and objects of results to `out`, alone.
///
/// # Errors
/// Where the coordinator cannot be reached, or the campaign's inputs or outputs cannot be used.
pub fn work(socket: &Path, inputs: &Path, work: &Path, out: &Path) -> Result<(), CallError> {
    let mut line = Line::open(socket)?;
    let mut pulse = Line::open(socket)?;
    // A thread, since a program or the packing of its files may take hours. It ends with the process: where the coordinator
    // is gone, the other line says so.
    std::thread::spawn(move || {
        while pulse.call::<()>("POST", BEAT, &()).is_ok() {
            std::thread::sleep(PULSE);
        }
    });
    let setup: Setup = line.call("GET", SETUP, &())?;
    let (campaign, plan) = setup.read().map_err(Box::new)?;
    let worker = Worker::new(campaign, plan, inputs, work, out)?;
    let mut turn = Turn::default();
    while let Answer::Run { leases, limit, values } = line.call("POST", TURN, &turn)? {
        let mut values = values.into_iter();
        let run = |lease: crate::store::Lease| {
            let ended = worker.attempt(lease, values.next(), limit);
            let super::Ended { outcome, usage, objects } = ended;
            Report { point: lease.point, fence: lease.fence, outcome, usage, objects }
        };
        turn = Turn { ended: leases.into_iter().map(run).collect() };
    }
    Ok(())
}

/// A connection to the coordinator.
struct Line {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
}

impl Line {
    fn open(socket: &Path) -> Result<Self, CallError> {
        let failed = |source| CallError::Connect { socket: socket.display().to_string(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let sender = runtime.block_on(async {
            let stream = UnixStream::connect(socket).await.map_err(failed)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            // Its error is that of the call that waits for it.
            tokio::spawn(connection);
            Ok::<_, CallError>(sender)
        })?;
        Ok(Self { runtime, sender })
    }

    fn call<T: DeserializeOwned>(&mut self, method: &str, path: &str, body: &impl Serialize) -> Result<T, CallError> {
        let answer = |error: Box<dyn std::error::Error + Send + Sync>| CallError::Answer(error);
        let body = serde_json::to_vec(body).map_err(|error| answer(error.into()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "coordinator")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| answer(error.into()))?;
        self.runtime.block_on(async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(CallError::Refused(response.status()));
            }
            let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(CallError::Answer)?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| answer(error.into()))
        })
    }
}

//! Connections, plain or with TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Most connections at once. Others wait in the kernel's queue.
const MOST: usize = 512;
/// Time for a request's header, and for a handshake.
const HEADER: Duration = Duration::from_secs(15);
/// Longest header in bytes.
const LONGEST: usize = 32 << 10;
/// Pause after an error of `accept`, such as too many open files, which others' ends may clear.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers connections for as long as the process lives.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, routes: Router) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (tls, routes) = (tls.clone(), routes.clone());
        tokio::spawn(async move {
            if let Err(error) = one(stream, tls, routes).await {
                tracing::debug!("answer a connection: {error}");
            }
            drop(place);
        });
    }
}

async fn one(stream: TcpStream, tls: Option<TlsAcceptor>, routes: Router) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match tls {
        None => http(stream, routes).await,
        Some(tls) => {
            let shaken = tokio::time::timeout(HEADER, tls.accept(stream)).await;
            http(shaken.map_err(|_| io::ErrorKind::TimedOut)??, routes).await
        }
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) -> io::Result<()> {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(LONGEST);
    server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await.map_err(io::Error::other)
}

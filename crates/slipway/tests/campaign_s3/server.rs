//! A real S3 server on loopback.

use std::net::TcpListener;
use std::path::Path;
use std::thread::JoinHandle;

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::sync::oneshot;

/// The key that the server knows.
pub(crate) const ID: &str = "AKTEST";
/// Its secret.
pub(crate) const SECRET: &str = "a-secret-that-nobody-may-see";

/// An S3 server in this process: `s3s-fs`, whose buckets are folders.
pub(crate) struct Server {
    /// Its port on loopback.
    pub(crate) port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on this port, or on any free one (0).
    pub(crate) fn start(root: &Path, port: u16) -> Self {
        let files = s3s_fs::FileSystem::new(root).expect("the server has a folder");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(ID, SECRET));
        let service = service.build();
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        listener.set_nonblocking(true).expect("a socket can wait");
        let port = listener.local_addr().expect("it has an address").port();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let serve = async {
                    while let Ok((socket, _)) = listener.accept().await {
                        let connection = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(socket), service.clone());
                        tokio::spawn(connection);
                    }
                };
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
            // Requests break off, as at the server's death.
            runtime.shutdown_background();
        });
        Self { port, stop: Some(stop), thread: Some(thread) }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
